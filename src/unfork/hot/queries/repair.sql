-- name: repair_lookup_differences
-- Blocks of a window whose lookup rows are not those that their rows ask for.
SELECT block_number, 'missing' AS kind, count(*) AS row_count
FROM (
    SELECT {source_columns} FROM {raw}.{source} WHERE {number} BETWEEN %(first)s AND %(last)s
    EXCEPT
    SELECT {columns} FROM {raw}.{table} WHERE block_number BETWEEN %(first)s AND %(last)s
) AS missing ({columns})
GROUP BY block_number
UNION ALL
SELECT block_number, 'dangling', count(*)
FROM (
    SELECT {columns} FROM {raw}.{table} WHERE block_number BETWEEN %(first)s AND %(last)s
    EXCEPT
    SELECT {source_columns} FROM {raw}.{source} WHERE {number} BETWEEN %(first)s AND %(last)s
) AS dangling ({columns})
GROUP BY block_number
ORDER BY 1, 2;

-- name: repair_lookup_outside
-- Lookup rows of blocks that the chain row does not include, found by index on either side.
SELECT block_number, 'dangling' AS kind, count(*) AS row_count
FROM (
    SELECT block_number FROM {raw}.{table}
    WHERE block_number > (SELECT coalesce(max(position_number), -1) FROM {raw}.chain)
    UNION ALL
    SELECT block_number FROM {raw}.{table}
    WHERE block_number < (SELECT min(first_number) FROM {raw}.chain)
      AND block_number <= (SELECT coalesce(max(position_number), -1) FROM {raw}.chain)
) AS outside
GROUP BY block_number
ORDER BY 1
LIMIT %(limit)s;

-- name: repair_lookup_clear
-- Takes the lookup rows of some blocks away, to be made again.
DELETE FROM {raw}.{table} WHERE block_number = ANY (%(numbers)s);

-- name: repair_lookup_fill
-- Makes the lookup rows of some blocks from their rows.
INSERT INTO {raw}.{table} ({columns})
SELECT {source_columns} FROM {raw}.{source} WHERE {number} = ANY (%(numbers)s)
ON CONFLICT ({key}) DO UPDATE
SET block_number = excluded.block_number, timestamp = excluded.timestamp;

-- name: repair_payloads_after
-- Payloads on record, in the order of their hashes, and whether they were used lately.
SELECT hash, ref, touched_at < now() - make_interval(secs => %(grace_s)s) AS is_old
FROM {raw}.payloads
WHERE hash > %(after)s
ORDER BY hash
LIMIT %(limit)s;

-- name: repair_payloads_used
-- Which of some payloads the rows of a table refer to, with a block that does.
SELECT {hash} AS hash, min({number}) AS block_number
FROM {raw}.{table}
WHERE {hash} = ANY (%(hashes)s)
GROUP BY {hash};

-- name: repair_payloads_unrecorded
-- Payloads that rows refer to and that are not on record.
SELECT {hash} AS hash, min({ref}) AS ref, min({number}) AS block_number
FROM {raw}.{table} AS row
WHERE {hash} > %(after)s
  AND NOT EXISTS (SELECT FROM {raw}.payloads WHERE payloads.hash = row.{hash})
GROUP BY {hash}
ORDER BY {hash}
LIMIT %(limit)s;

-- name: repair_payloads_record
-- Puts a payload on record.
INSERT INTO {raw}.payloads (hash, ref, size) VALUES (%(hash)s, %(ref)s, %(size)s)
ON CONFLICT (hash) DO NOTHING;

-- name: repair_payloads_known
-- Which of some payloads are on record.
SELECT ref FROM {raw}.payloads WHERE hash = ANY (%(hashes)s);

-- name: repair_payloads_forget
-- Takes payloads off the record that were not used lately.
DELETE FROM {raw}.payloads
WHERE hash = ANY (%(hashes)s) AND touched_at < now() - make_interval(secs => %(grace_s)s)
RETURNING ref;
