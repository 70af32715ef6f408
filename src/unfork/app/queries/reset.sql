-- name: reset_app
-- Removes the schema with all that is in it.
DROP SCHEMA IF EXISTS {app} CASCADE;
