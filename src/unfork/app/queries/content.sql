-- name: content_digest
-- The hash of one row.
sha256(convert_to(ROW({columns})::text, 'UTF8'))

-- name: content_column
-- One value of a row.
held.{column}

-- name: content_sum
-- The sum of the hashes of rows, whatever their order: of each the first 128 bits.
coalesce(sum(('x' || encode(substr(digest, 1, 8), 'hex'))::bit(64)::bigint), 0)
    * 18446744073709551616
    + coalesce(sum(('x' || encode(substr(digest, 9, 8), 'hex'))::bit(64)::bigint), 0)
