-- name: chain_create
-- Makes the one row of the chain.
INSERT INTO {raw}.chain (name, family) VALUES (%(name)s, %(family)s) ON CONFLICT DO NOTHING;

-- name: chain_read
-- What the store holds of its chain.
SELECT * FROM {raw}.chain;

-- name: chain_lock
-- The same, kept from everybody else to the end of the transaction.
SELECT * FROM {raw}.chain FOR UPDATE;

-- name: chain_take
-- Makes every earlier writer a stale one.
UPDATE {raw}.chain SET token = token + 1, updated_at = now() RETURNING *;

-- name: chain_claim
-- Records which chain this is and where it starts.
UPDATE {raw}.chain
SET chain_id = %(chain_id)s, first_number = %(first)s, updated_at = now()
RETURNING *;

-- name: chain_head
-- Records the source's tip while no commit does; only for who may write.
UPDATE {raw}.chain
SET head_number = %(number)s, head_hash = %(hash)s, head_at = now()
WHERE token = %(token)s;

-- name: payloads_owner
-- What the payload store of this chain must be called, and whether there is anything in it.
SELECT store_id::text AS store_id, EXISTS (SELECT FROM {raw}.payloads) AS has_payloads
FROM {raw}.chain;

-- name: chain_beyond
-- Blocks past the position, or another block at it: there must be none.
SELECT block.number, block.hash
FROM {raw}.blocks AS block
WHERE block.number >= %(position)s
  AND (block.number > %(position)s OR block.hash <> %(hash)s)
LIMIT 1;

-- name: refs_in_span
-- The blocks held in a span, ascending.
SELECT number, hash FROM {raw}.blocks
WHERE number BETWEEN %(first)s AND %(last)s
ORDER BY number;

-- name: ref_at
-- The block held at a number.
SELECT number, hash FROM {raw}.blocks WHERE number = %(number)s;

-- name: rows_in_span
-- The rows of a table in a span, in the order of its key.
SELECT {columns} FROM {raw}.{table}
WHERE {number} BETWEEN %(first)s AND %(last)s
ORDER BY {key};

-- name: rows_above
-- How many rows of a table an unwind to a number would remove.
SELECT count(*) AS row_count FROM {raw}.{table} WHERE {number} > %(target)s;

-- name: chain_refs
-- The blocks held at some numbers.
SELECT number, hash FROM {raw}.blocks WHERE number = ANY (%(numbers)s) ORDER BY number;
