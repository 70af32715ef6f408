"""unfork keeps tables of chain data equal to what the canonical chain says, through any fork."""

__version__ = "0.1.0"
