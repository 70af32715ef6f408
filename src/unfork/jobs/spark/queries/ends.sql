-- name: read_ends
-- The chain, and the two blocks that tie a span to it.
SELECT chain.epoch, chain.first_number, chain.floor_number, lowest.parent_hash,
       lowest.hash AS first_hash, highest.hash
FROM {raw}.chain
LEFT JOIN {raw}.blocks AS lowest ON lowest.number = $1
LEFT JOIN {raw}.blocks AS highest ON highest.number = $2;

-- name: lake_count
-- The rows of some blocks, counted.
SELECT count(*) AS row_count FROM {raw}.{table} AS row
WHERE row.{number} BETWEEN {first} AND {last};
