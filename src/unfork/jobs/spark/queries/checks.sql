-- name: check_time
-- When a block was made.
SELECT timestamp FROM {raw}.blocks WHERE number = $1;

-- name: check_newest
-- The last block below a number of which a build holds a row that no fork took away, and whether
-- the build stands right below that number.
SELECT (
    SELECT row.{number} FROM {app}.{table} AS row
    WHERE row.{number} < {first}
      AND NOT EXISTS (
          SELECT FROM {app}.orphans
          WHERE orphans.number = row.{number} AND orphans.hash = row.{hash}
      )
    ORDER BY row.{number} DESC
    LIMIT 1
) AS number, cursor.cursor_value, cursor.cursor_hash
FROM {app}.dataset_cursors AS cursor
WHERE cursor.generation_id = {id};
