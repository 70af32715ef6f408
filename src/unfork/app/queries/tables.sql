-- name: table_create
-- Makes the table of a build.
CREATE TABLE {app}.{table} ({columns}{keyed}){partitioned};

-- name: table_column
-- One column.
{column} {type}{needed}

-- name: table_primary_key
-- The key of a table whose key columns are always there.
, PRIMARY KEY ({key})

-- name: table_unique
-- The key of a table some of whose key columns may be missing.
, UNIQUE NULLS NOT DISTINCT ({key})

-- name: table_partitioned
-- How a table that grows with the chain is cut.
 PARTITION BY RANGE ({number})

-- name: table_index
-- An index of a table.
CREATE INDEX ON {app}.{table} ({columns});

-- name: table_ascending
-- A column of an index.
{column}

-- name: table_descending
-- A column of an index that begins with the highest.
{column} DESC

-- name: view_whole
-- The name of a dataset that is read as it stands.
CREATE VIEW {app}.{dataset} AS SELECT {columns} FROM {app}.{table};

-- name: view_cut
-- The name of a dataset that is read up to its watermark.
CREATE VIEW {app}.{dataset} AS
SELECT {columns} FROM {app}.{table}
WHERE {number} <= (SELECT cursor_value FROM {app}.dataset_cursors WHERE generation_id = {id});

-- name: view_flagged
-- The same, with a flag on the rows of blocks that a fork took away.
CREATE VIEW {app}.{dataset} AS
SELECT {columns},
       EXISTS (
           SELECT FROM {app}.orphans
           WHERE orphans.number = held.{number} AND orphans.hash = held.{hash}
       ) AS is_orphaned
FROM {app}.{table} AS held
WHERE {number} <= (SELECT cursor_value FROM {app}.dataset_cursors WHERE generation_id = {id});
