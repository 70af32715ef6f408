"""Derived datasets: jobs from the configuration, planned, leased, run on Spark and committed."""
