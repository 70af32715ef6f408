"""The app side: everything derived from raw data, in schemas and databases of its own."""
