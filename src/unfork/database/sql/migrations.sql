-- name: migrations_present
-- Whether the schema has a record of migrations at all.
SELECT 1
FROM pg_class AS class
JOIN pg_namespace AS namespace ON namespace.oid = class.relnamespace
WHERE namespace.nspname = %(schema)s AND class.relname = 'schema_migrations';

-- name: migrations_lock
-- Lets one process at a time change the schema; held to the end of the transaction.
SELECT pg_advisory_xact_lock(%(key)s);

-- name: migrations_prepare
-- Makes the schema and its record of migrations.
CREATE SCHEMA IF NOT EXISTS {schema};
CREATE TABLE IF NOT EXISTS {schema}.schema_migrations (
    version integer PRIMARY KEY,
    name text NOT NULL,
    checksum text NOT NULL,
    applied_at timestamptz NOT NULL DEFAULT now()
);

-- name: migrations_applied
-- What has run.
SELECT version, name, checksum FROM {schema}.schema_migrations ORDER BY version;

-- name: migrations_record
-- Records that a file has run.
INSERT INTO {schema}.schema_migrations (version, name, checksum)
VALUES (%(version)s, %(name)s, %(checksum)s);
