"""The pure core: blocks, spans, forks and finality, with the standard library alone."""
