"""Where blocks come from: one contract, one file per protocol."""
