"""A seeded chain that forks, stalls and finalizes, served over real protocols."""
