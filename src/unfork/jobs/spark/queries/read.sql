-- name: read_chain
-- What the store holds of its chain.
SELECT first_number, position_number, position_hash, floor_number, seq, epoch
FROM {raw}.chain;

-- name: read_scopes
-- What was asked of the source for the blocks of a span.
SELECT first, last, scope::text AS scope
FROM {raw}.spans
WHERE first <= $2 AND last >= $1
ORDER BY first;

-- name: read_ref
-- The block held at a number, and the epoch it is held in.
SELECT chain.epoch, block.hash
FROM {raw}.chain LEFT JOIN {raw}.blocks AS block ON block.number = $1;

-- name: read_rows
-- The rows of some blocks.
SELECT {expressions}
FROM {raw}.{table} AS row
WHERE row.{number} BETWEEN {first} AND {last} {conditions};
