"""Decoding: events of a contract's ABI as typed rows."""
