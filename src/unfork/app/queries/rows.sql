-- name: rows_temporary
-- A place for the rows of one transaction, made once per connection.
CREATE TEMP TABLE IF NOT EXISTS {temporary} (LIKE {app}.{table}) ON COMMIT DELETE ROWS;

-- name: rows_copy_temporary
-- Takes rows into that place.
COPY pg_temp.{temporary} ({columns}) FROM STDIN (FORMAT binary);

-- name: rows_copy
-- Takes rows into the table of a build.
COPY {app}.{table} ({columns}) FROM STDIN (FORMAT binary);

-- name: rows_loaded
-- The rows of that place.
pg_temp.{temporary}

-- name: rows_held
-- The rows of a build in a span.
(SELECT * FROM {app}.{table} WHERE {number} BETWEEN %(first)s AND %(last)s)

-- name: rows_delete
-- Removes the rows of a span.
DELETE FROM {app}.{table} WHERE {number} BETWEEN %(first)s AND %(last)s;

-- name: rows_insert
-- Writes rows that are somewhere else already.
INSERT INTO {app}.{table} ({columns}) SELECT {columns} FROM {source} AS held;

-- name: rows_check
-- How many rows there are, in which blocks, and how many name a block that is not of the chain.
SELECT count(*) AS row_count, {lowest} AS lowest, {highest} AS highest, {strangers} AS strangers
FROM {source} AS held;

-- name: rows_lowest
-- The lowest block of the rows.
min(held.{number})

-- name: rows_highest
-- The highest block of the rows.
max(held.{number})

-- name: rows_strangers
-- How many rows name a block that is not of the chain, as far as that is still known.
count(*) FILTER (
    WHERE held.{number} > %(floor)s
      AND NOT EXISTS (
          SELECT FROM {app}.refs
          WHERE refs.number = held.{number} AND refs.hash = held.{hash}
      )
)

-- name: rows_unknown
-- Rows that do not say where they belong.
NULL::bigint

-- name: rows_measure
-- The content of the rows of a span, by the version that they belong to.
SELECT number - number %% {size} AS part, count(*) AS row_count, {content} AS content
FROM (
    SELECT held.{number} AS number, {digest} AS digest
    FROM {app}.{table} AS held
    WHERE held.{number} BETWEEN %(first)s AND %(last)s
) AS hashed
GROUP BY 1
ORDER BY 1;

-- name: rows_compare
-- The content of the rows that are there and of those that are to be, part by part.
WITH old AS (
    SELECT part, count(*) AS row_count, {content} AS content
    FROM (
        SELECT {part} AS part, {digest} AS digest FROM {app}.{table} AS held WHERE {scope}
    ) AS hashed
    GROUP BY part
), new AS (
    SELECT part, count(*) AS row_count, {content} AS content
    FROM (SELECT {part} AS part, {digest} AS digest FROM {source} AS held) AS hashed
    GROUP BY part
)
SELECT part, coalesce(old.row_count, 0) AS old_count, coalesce(old.content, 0) AS old_content,
       coalesce(new.row_count, 0) AS new_count, coalesce(new.content, 0) AS new_content
FROM old FULL JOIN new USING (part)
ORDER BY part;

-- name: rows_delete_scope
-- Removes the rows of parts that are no more.
DELETE FROM {app}.{table} AS held WHERE {scope};

-- name: rows_delete_parts
-- Removes the rows of some parts.
DELETE FROM {app}.{table} AS held WHERE {scope} AND {part} = ANY (%(changed)s);

-- name: rows_insert_parts
-- Writes the rows of some parts.
INSERT INTO {app}.{table} ({columns})
SELECT {columns} FROM {source} AS held WHERE {part} = ANY (%(changed)s);

-- name: part_block
-- A row's part is its block.
held.{number}::text

-- name: part_blocks
-- A row's part is its partition of so many blocks.
(held.{number} - held.{number} %% {size})::text
    || '-' || (held.{number} - held.{number} %% {size} + {size} - 1)::text

-- name: part_date
-- A row's part is its day.
to_char(held.{column}, 'YYYY-MM-DD')

-- name: part_text
-- A row's part is its day, as text already.
held.{column}

-- name: part_whole
-- All rows are one part.
'all'::text

-- name: scope_span
-- The rows of a span of blocks.
held.{number} BETWEEN %(first)s AND %(last)s

-- name: scope_from
-- The rows from a block on.
held.{number} >= %(first)s

-- name: scope_dates
-- The rows of some days.
held.{column} = ANY (%(parts)s::date[])

-- name: scope_texts
-- The rows of some days, as text already.
held.{column} = ANY (%(parts)s::text[])

-- name: scope_whole
-- All rows.
true

-- name: append_rows
-- Writes the rows that are not there yet; of several with one key the first of the chain.
WITH written AS (
    INSERT INTO {app}.{table} ({columns})
    SELECT DISTINCT ON ({key}) {columns}
    FROM {source} AS fresh
    WHERE {is_new}
    ORDER BY {key}, {number}, fresh::text
    ON CONFLICT DO NOTHING
    RETURNING {number} AS number
)
SELECT number, count(*) AS row_count FROM written GROUP BY number ORDER BY number;

-- name: append_returned
-- Removes the rows of blocks that a fork brought back: they are about to be written anew.
DELETE FROM {app}.{table} AS held
WHERE held.{number} BETWEEN %(first)s AND %(last)s
  AND NOT EXISTS (
      SELECT FROM {app}.orphans
      WHERE orphans.number = held.{number} AND orphans.hash = held.{hash}
  );

-- name: append_always
-- Every row may be new: the key itself tells.
true

-- name: append_is_new
-- A row is new where no earlier row of the chain has its key; rows of orphaned blocks do not count.
NOT EXISTS (
    SELECT FROM {app}.{table} AS held
    WHERE {match}
      AND held.{number} < %(first)s
      AND NOT EXISTS (
          SELECT FROM {app}.orphans
          WHERE orphans.number = held.{number} AND orphans.hash = held.{hash}
      )
)

-- name: append_match
-- Whether two rows have the same value of a key column.
held.{column} = fresh.{column}

-- name: append_match_null
-- The same for a column that may be missing.
held.{column} IS NOT DISTINCT FROM fresh.{column}
