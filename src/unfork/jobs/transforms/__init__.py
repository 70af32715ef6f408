"""The built-in jobs: DataFrames in, a DataFrame out, native expressions only."""
