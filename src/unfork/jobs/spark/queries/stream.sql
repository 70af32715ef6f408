-- name: stream_register
-- Puts a stream on record at a journal entry: what follows it is kept.
INSERT INTO {raw}.streams (name, seq, number, hash)
SELECT $1, $2::bigint, entry.ref_number, entry.ref_hash
FROM (SELECT) AS once LEFT JOIN {raw}.journal AS entry ON entry.seq = $2::bigint
ON CONFLICT (name) DO UPDATE
SET seq = excluded.seq, number = excluded.number, hash = excluded.hash, seen_at = now();

-- name: stream_forget
-- Takes a stream off the record.
DELETE FROM {raw}.streams WHERE name = $1;

-- name: stream_state
-- The last journal entry, and up to which fork orphaned rows may be gone.
SELECT chain.seq, coalesce(pruned.unwind_seq, 0) AS pruned
FROM {raw}.chain LEFT JOIN {raw}.pruned ON true;

-- name: stream_entry
-- The position after a journal entry.
SELECT seq, ref_number AS number, ref_hash AS hash FROM {raw}.journal WHERE seq = $1;

-- name: stream_span
-- The blocks that journal entries are about.
SELECT min(first) AS first, max(last) AS last
FROM {raw}.journal WHERE seq > $1 AND seq <= $2;

-- name: stream_changes
-- What journal entries did to the rows of some blocks, wherever the rows are now.
SELECT {inserted}
FROM {raw}.{table} AS row
JOIN {raw}.blocks AS block ON block.number = row.{number}
WHERE row.{number} BETWEEN {first} AND {last}
  AND block.number BETWEEN {first} AND {last}
  AND block.journal_seq > {after} AND block.journal_seq <= {upto}
UNION ALL
SELECT {inserted}
FROM {raw}.{orphaned} AS row
JOIN {raw}.orphaned_blocks AS block
  ON block.number = row.{number} AND block.unwind_seq = row.unwind_seq
WHERE row.{number} BETWEEN {first} AND {last}
  AND block.journal_seq > {after} AND block.journal_seq <= {upto}
UNION ALL
SELECT {deleted}
FROM {raw}.{orphaned} AS row
WHERE row.{number} BETWEEN {first} AND {last}
  AND row.unwind_seq > {after} AND row.unwind_seq <= {upto};

-- name: stream_snapshot
-- The rows of some blocks as they were after a journal entry, wherever they are now.
SELECT {inserted}
FROM {raw}.{table} AS row
JOIN {raw}.blocks AS block ON block.number = row.{number}
WHERE row.{number} BETWEEN {first} AND {last}
  AND block.number BETWEEN {first} AND {last}
  AND block.journal_seq <= {upto}
UNION ALL
SELECT {inserted}
FROM {raw}.{orphaned} AS row
JOIN {raw}.orphaned_blocks AS block
  ON block.number = row.{number} AND block.unwind_seq = row.unwind_seq
WHERE row.{number} BETWEEN {first} AND {last}
  AND block.journal_seq <= {upto} AND block.unwind_seq > {upto};
