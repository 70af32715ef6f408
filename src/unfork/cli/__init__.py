"""The command line: one command a file, each thin; output.py speaks to people and to scripts."""
