"""The configuration: one frozen tree (tree.py) and the one way to read it (load.py)."""
