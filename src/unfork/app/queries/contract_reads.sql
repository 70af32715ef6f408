-- name: reads_held
-- The answers that are kept to questions in the state after one block.
SELECT asked.place, held.ok, held.output
FROM unnest(%(places)s::bigint[], %(addresses)s::bytea[], %(datas)s::bytea[], %(hashes)s::bytea[])
    AS asked (place, address, data, block_hash)
JOIN {app}.contract_reads AS held USING (address, data, block_hash);

-- name: reads_lasting
-- The answers of contracts whose code is still the same, each from the highest block below; none
-- where the app side does not hold the chain that is asked about, for then it cannot tell forks.
SELECT DISTINCT ON (asked.place) asked.place, held.ok, held.output
FROM unnest(
    %(places)s::bigint[], %(addresses)s::bytea[], %(datas)s::bytea[], %(numbers)s::bigint[],
    %(codes)s::bytea[]
) AS asked (place, address, data, block_number, code_hash)
CROSS JOIN {app}.follower AS chain
JOIN {app}.contract_reads AS held
  ON held.address = asked.address
 AND held.data = asked.data
 AND held.code_hash = asked.code_hash
 AND held.block_number <= asked.block_number
WHERE chain.epoch = %(epoch)s
  AND (
      %(last)s <= %(floor)s
      OR EXISTS (SELECT FROM {app}.refs WHERE number = %(last)s AND hash = %(last_hash)s)
  )
  AND (
      held.block_number <= chain.floor_number
      OR EXISTS (
          SELECT FROM {app}.refs AS known
          WHERE known.number = held.block_number AND known.hash = held.block_hash
      )
  )
ORDER BY asked.place, held.block_number DESC;

-- name: reads_keep
-- Keeps answers. What was not final when it was asked is only kept while the hashes of the chain
-- are known, so that what is kept at or below the floor is of the chain; the follower waits for it.
WITH chain AS MATERIALIZED (
    SELECT floor_number, epoch FROM {app}.follower FOR KEY SHARE
)
INSERT INTO {app}.contract_reads
    (address, data, block_number, block_hash, code_hash, ok, output)
SELECT came.address, came.data, came.block_number, came.block_hash, came.code_hash, came.ok,
       came.output
FROM unnest(
    %(addresses)s::bytea[], %(datas)s::bytea[], %(numbers)s::bigint[], %(hashes)s::bytea[],
    %(codes)s::bytea[], %(oks)s::boolean[], %(outputs)s::bytea[]
) AS came (address, data, block_number, block_hash, code_hash, ok, output)
CROSS JOIN chain
WHERE chain.epoch = %(epoch)s
  AND (came.block_number <= %(floor)s OR came.block_number > coalesce(chain.floor_number, -1))
ORDER BY came.address, came.data, came.block_hash
ON CONFLICT DO NOTHING;

-- name: reads_watermark
-- How far a build has come.
SELECT cursor_value AS number, cursor_hash AS hash FROM {app}.dataset_cursors
WHERE generation_id = %(id)s;

-- name: reads_known
-- What a build holds of some keys.
SELECT {columns} FROM {app}.{table} AS held WHERE held.{key} = ANY (%(keys)s);
