"""Proves what the stores hold: each block against its hash, and the blocks among themselves."""
