"""The hot store: raw chain data in Postgres, moved forward and back in single transactions."""
