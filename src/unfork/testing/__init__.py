"""Shipped test tools: a simulated clock, in-memory wires, an oracle of rows and invariants."""
