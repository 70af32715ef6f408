-- name: read_ends
-- The chain, and the two blocks that tie a span to it.
SELECT chain.epoch, chain.first_number, chain.floor_number, lowest.parent_hash, highest.hash
FROM {raw}.chain
LEFT JOIN {raw}.blocks AS lowest ON lowest.number = $1
LEFT JOIN {raw}.blocks AS highest ON highest.number = $2;
