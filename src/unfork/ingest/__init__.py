"""Following a chain: one step, and the loop around it."""
