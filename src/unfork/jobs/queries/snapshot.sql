-- name: snapshot_mode
-- Makes the transaction see one state.
SET TRANSACTION ISOLATION LEVEL REPEATABLE READ, READ ONLY;

-- name: snapshot_limit
-- Lets the server end the transaction when it is held for too long.
SELECT set_config('idle_in_transaction_session_timeout', %(timeout)s, true);

-- name: snapshot_export
-- How far the app side has come, and the name by which others can see this very state.
SELECT follower.*, pg_export_snapshot() AS snapshot FROM {app}.follower;

-- name: snapshot_ref
-- The block of the chain at a number, from the floor up.
SELECT hash FROM {app}.refs WHERE number = %(number)s;
