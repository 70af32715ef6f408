"""Postgres as unfork sees it: one wrapper of psycopg, named queries, migrations, binary COPY."""
