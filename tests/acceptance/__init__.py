"""The real command, in processes of its own."""
