-- name: held_patience
-- A worker that stops in the middle of a commit holds nothing for longer than this.
SELECT set_config('idle_in_transaction_session_timeout', '15s', true);

-- name: held_lock
-- The build, kept from whoever else writes to it; leases of it can be claimed.
SELECT generation.*, cursor.cursor_value, cursor.cursor_hash, cursor.history_floor
FROM {app}.generations AS generation
JOIN {app}.dataset_cursors AS cursor ON cursor.generation_id = generation.id
WHERE generation.id = %(id)s
FOR NO KEY UPDATE OF cursor;

-- name: held_lock_dependents
-- The build and those that read it and may be invalidated, kept from writers and from new leases.
SELECT generation.*, cursor.cursor_value, cursor.cursor_hash, cursor.history_floor
FROM {app}.generations AS generation
JOIN {app}.dataset_cursors AS cursor ON cursor.generation_id = generation.id
WHERE generation.id = %(id)s
   OR (generation.state <> 'retired'
       AND generation.job IN (
           SELECT job FROM {app}.jobs WHERE inputs @> ARRAY[%(dataset)s]
       ))
ORDER BY generation.id
FOR UPDATE OF cursor;

-- name: held_read
-- What the chain is now, as far as a run is judged by it.
SELECT follower.*,
       (SELECT state FROM {app}.generations WHERE id = %(id)s) AS state,
       (SELECT config_hash FROM {app}.generations WHERE id = %(id)s) AS config_hash,
       ARRAY(SELECT number FROM {app}.refs WHERE number = ANY (%(numbers)s) ORDER BY number)
           AS ref_numbers,
       ARRAY(SELECT hash FROM {app}.refs WHERE number = ANY (%(numbers)s) ORDER BY number)
           AS ref_hashes
FROM {app}.follower;

-- name: held_move
-- Moves the watermark of a build.
UPDATE {app}.dataset_cursors
SET cursor_value = %(number)s, cursor_hash = %(hash)s,
    history_floor = greatest(history_floor, %(history_floor)s), updated_at = now()
WHERE generation_id = %(id)s;
