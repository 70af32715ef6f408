-- name: unwind_rows
-- Moves the rows above the target to the orphaned ones.
WITH moved AS (
    DELETE FROM {raw}.{table}
    WHERE {number} > %(target)s AND {number} <= %(position)s
    RETURNING {columns}
)
INSERT INTO {raw}.{orphaned} ({columns}, unwind_seq)
SELECT {columns}, %(seq)s FROM moved;

-- name: unwind_lookup
-- Removes the lookups of the blocks above the target.
DELETE FROM {raw}.{table}
WHERE block_number > %(target)s AND block_number <= %(position)s;

-- name: unwind_plan
-- Makes the statements of this transaction find their few rows by index, however stale statistics are.
SET LOCAL enable_seqscan = off;

-- name: unwind_chain
-- Moves the position back, clips the spans and writes the journal entry.
WITH removed AS (
    DELETE FROM {raw}.spans WHERE first > %(target)s
), clipped AS (
    UPDATE {raw}.spans SET last = %(target)s WHERE first <= %(target)s AND last > %(target)s
), entry AS (
    INSERT INTO {raw}.journal (seq, epoch, kind, first, last, ref_number, ref_hash, fork)
    VALUES (%(seq)s, %(epoch)s, 'unwind', %(first)s, %(last)s,
            %(ref_number)s, %(ref_hash)s, %(fork)s::jsonb)
)
UPDATE {raw}.chain
SET seq = %(seq)s,
    epoch = %(epoch)s,
    position_number = %(ref_number)s,
    position_hash = %(ref_hash)s,
    floor_number = %(floor_number)s,
    floor_hash = %(floor_hash)s,
    finalized_seen = %(finalized_seen)s,
    updated_at = now()
RETURNING *;
