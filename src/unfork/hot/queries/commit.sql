-- name: commit_rows
-- Takes rows of one table in.
COPY {raw}.{table} ({columns}) FROM STDIN (FORMAT binary);

-- name: commit_payloads
-- Records the payloads the rows refer to, or that they are still in use.
INSERT INTO {raw}.payloads (hash, ref, size)
SELECT * FROM unnest(%(hashes)s::bytea[], %(refs)s::text[], %(sizes)s::bigint[])
ON CONFLICT (hash) DO UPDATE SET touched_at = now();

-- name: commit_chain
-- Moves position, floor and head, extends the span in its scope and writes the journal entry.
WITH held AS (
    SELECT number, hash FROM {raw}.blocks WHERE number = %(floor)s
), extended AS (
    UPDATE {raw}.spans
    SET last = %(last)s
    WHERE first = (SELECT max(first) FROM {raw}.spans)
      AND last = %(first)s - 1
      AND scope_digest = %(scope_digest)s
    RETURNING first
), opened AS (
    INSERT INTO {raw}.spans (first, last, scope_digest, scope)
    SELECT %(first)s, %(last)s, %(scope_digest)s, %(scope)s::jsonb
    WHERE NOT EXISTS (SELECT FROM extended)
), entry AS (
    INSERT INTO {raw}.journal
        (seq, epoch, kind, first, last, ref_number, ref_hash, parent_hash)
    VALUES
        (%(seq)s, %(epoch)s, 'commit', %(first)s, %(last)s, %(last)s, %(hash)s, %(parent_hash)s)
)
UPDATE {raw}.chain
SET seq = %(seq)s,
    position_number = %(last)s,
    position_hash = %(hash)s,
    floor_number = coalesce((SELECT number FROM held), floor_number),
    floor_hash = coalesce((SELECT hash FROM held), floor_hash),
    finalized_seen = %(finalized_seen)s,
    head_number = %(head_number)s,
    head_hash = %(head_hash)s,
    head_at = now(),
    updated_at = now()
RETURNING *;
