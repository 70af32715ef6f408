-- name: follower_read
-- How far the app side has come.
SELECT * FROM {app}.follower;

-- name: follower_lock
-- The same, kept from everybody else to the end of the transaction.
SELECT * FROM {app}.follower FOR UPDATE;

-- name: follower_ref
-- The block of the chain at a number, from the floor up.
SELECT number, hash FROM {app}.refs WHERE number = %(number)s;

-- name: follower_refs
-- The blocks of the chain in a span, from the floor up.
SELECT number, hash FROM {app}.refs
WHERE number BETWEEN %(first)s AND %(last)s
ORDER BY number;

-- name: follower_days
-- The days of the chain, ascending.
SELECT day, first_number, last_number FROM {app}.days ORDER BY first_number, day;

-- name: follower_advance
-- Adds blocks and days, raises the floor, forgets what lies below it and moves on.
WITH came AS (
    SELECT * FROM unnest(%(numbers)s::bigint[], %(hashes)s::bytea[]) AS block (number, hash)
), added AS (
    INSERT INTO {app}.refs (number, hash) SELECT number, hash FROM came
), returned AS (
    -- Blocks that a fork took away and another one brought back.
    DELETE FROM {app}.orphans USING came
    WHERE orphans.number = came.number AND orphans.hash = came.hash
), dated AS (
    INSERT INTO {app}.days AS known (day, first_number, last_number)
    SELECT * FROM unnest(%(days)s::date[], %(firsts)s::bigint[], %(lasts)s::bigint[])
    ON CONFLICT (day) DO UPDATE
    SET first_number = least(known.first_number, excluded.first_number),
        last_number = greatest(known.last_number, excluded.last_number)
), forgotten AS (
    DELETE FROM {app}.refs WHERE number < %(floor_number)s
), unread AS (
    -- What contracts answered on another fork, for as long as the hashes of the chain are known.
    DELETE FROM {app}.contract_reads AS answer
    USING {app}.follower AS held
    WHERE answer.block_number > coalesce(held.floor_number, -1)
      AND answer.block_number <= %(floor_number)s
      AND NOT EXISTS (
          SELECT FROM {app}.refs AS known
          WHERE known.number = answer.block_number AND known.hash = answer.block_hash
      )
      AND NOT EXISTS (
          SELECT FROM came
          WHERE came.number = answer.block_number AND came.hash = answer.block_hash
      )
)
UPDATE {app}.follower
SET seq = %(seq)s,
    epoch = %(epoch)s,
    first_number = %(first)s,
    position_number = %(position_number)s,
    position_hash = %(position_hash)s,
    floor_number = %(floor_number)s,
    floor_hash = %(floor_hash)s,
    updated_at = now()
RETURNING *;

-- name: follower_retreat
-- Forgets the blocks and days above the target.
WITH gone AS (
    DELETE FROM {app}.refs WHERE number > %(target)s
), cut AS (
    DELETE FROM {app}.days WHERE first_number > %(target)s
), unread AS (
    DELETE FROM {app}.contract_reads WHERE block_number > %(target)s
), reached AS (
    -- An operator went deeper than history was kept: from there on it is kept again.
    UPDATE {app}.follower SET history_floor = least(history_floor, %(target)s)
    WHERE history_floor > %(target)s
)
UPDATE {app}.days SET last_number = %(target)s
WHERE first_number <= %(target)s AND last_number > %(target)s;
