"""Measures what the project promises about speed and memory, each number against its limit."""
