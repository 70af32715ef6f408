-- name: derived_served
-- The build that is read under a dataset's name, its watermark, and the chain as far as it is known.
SELECT generation.id, generation.table_name, generation.declaration::text AS declaration,
       generation.first_number, cursor.cursor_value, cursor.cursor_hash,
       follower.floor_number, follower.epoch
FROM {app}.generations AS generation
JOIN {app}.dataset_cursors AS cursor ON cursor.generation_id = generation.id
CROSS JOIN {app}.follower
WHERE generation.dataset = $1 AND generation.state = 'served';

-- name: derived_names
-- The datasets that can be read.
SELECT dataset FROM {app}.generations WHERE state = 'served' ORDER BY dataset;

-- name: derived_state
-- A build, its watermark, and the block that the chain has at a number.
SELECT generation.state, cursor.cursor_value, follower.epoch, ref.hash
FROM {app}.generations AS generation
JOIN {app}.dataset_cursors AS cursor ON cursor.generation_id = generation.id
CROSS JOIN {app}.follower
LEFT JOIN {app}.refs AS ref ON ref.number = $2
WHERE generation.id = $1;

-- name: derived_versions
-- The partitions of a build that hold blocks of a span, ascending.
SELECT first_number, last_number, is_valid
FROM {app}.partition_versions
WHERE generation_id = $1 AND is_current AND last_number >= $2 AND first_number <= $3
ORDER BY first_number;

-- name: derived_by_blocks
-- The rows of some blocks.
SELECT {expressions}
FROM {app}.{table} AS row
WHERE row.{number} BETWEEN {first} AND {last} {conditions};

-- name: derived_kept
-- The same without the rows of blocks that a fork took away.
SELECT {expressions}
FROM {app}.{table} AS row
WHERE row.{number} BETWEEN {first} AND {last}
  AND NOT EXISTS (
      SELECT FROM {app}.orphans
      WHERE orphans.number = row.{number} AND orphans.hash = row.{hash}
  ) {conditions};

-- name: derived_whole
-- All rows.
SELECT {expressions} FROM {app}.{table} AS row WHERE true {conditions};

-- name: derived_by_dates
-- The rows of the days that lie in a span.
SELECT {expressions}
FROM {app}.{table} AS row
WHERE row.{column} IN (
    SELECT version.partition_key::date
    FROM {app}.partition_versions AS version
    WHERE version.generation_id = {id}
      AND version.is_current
      AND version.first_number >= {first}
      AND version.last_number <= {last}
) {conditions};

-- name: derived_by_days
-- The same where days are text.
SELECT {expressions}
FROM {app}.{table} AS row
WHERE row.{column} IN (
    SELECT version.partition_key
    FROM {app}.partition_versions AS version
    WHERE version.generation_id = {id}
      AND version.is_current
      AND version.first_number >= {first}
      AND version.last_number <= {last}
) {conditions};
