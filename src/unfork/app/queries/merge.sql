-- name: merge_rows
-- Folds changes into a table, block by block, and writes down each row as it was before.
WITH folded AS (
    -- Blocks at or below the floor count as one: they are never undone.
    SELECT {key}, unfork_step, {folds}
    FROM (
        SELECT held.*, CASE WHEN held.{number} <= %(floor)s THEN -1 ELSE held.{number} END
                   AS unfork_step
        FROM {source} AS held
    ) AS delta
    GROUP BY {key}, unfork_step
), stepped AS (
    SELECT {folded_key}, folded.unfork_step,
           CASE WHEN {is_held} THEN {held_image} END AS unfork_before,
           row_number() OVER steps = 1 AS unfork_is_first,
           {afters}
    FROM folded
    LEFT JOIN {app}.{table} AS held ON {match}
    WINDOW steps AS (PARTITION BY {folded_key} ORDER BY folded.unfork_step)
), imaged AS (
    SELECT held.*,
           CASE WHEN unfork_is_first THEN unfork_before
                ELSE lag({after_image}) OVER steps END AS unfork_prev,
           lead(unfork_step) OVER steps IS NULL AS unfork_is_last
    FROM stepped AS held
    WINDOW steps AS (PARTITION BY {key} ORDER BY unfork_step)
), recorded AS (
    INSERT INTO {app}.history (block_number, seq, table_name, op, pk, prev_value)
    SELECT unfork_step, row_number() OVER (PARTITION BY unfork_step), %(table_name)s,
           CASE WHEN unfork_prev IS NULL THEN 'INSERT' ELSE 'UPDATE' END, {pk_image}, unfork_prev
    FROM imaged AS held
    WHERE unfork_step > -1
), written AS (
    INSERT INTO {app}.{table} ({columns})
    SELECT {columns} FROM imaged WHERE unfork_is_last
    ON CONFLICT ({key}) {resolution}
    RETURNING 1
)
SELECT count(*) AS row_count FROM written;

-- name: merge_doubled
-- A key that one block sets twice: which of the two would stay is anybody's guess.
SELECT {key}, {number} AS number FROM {source} AS held
GROUP BY {key}, {number}
HAVING count(*) > 1
LIMIT 1;

-- name: merge_folded
-- A key column of the folded changes.
folded.{column}

-- name: merge_match
-- Whether a row has the key of a change.
held.{column} = folded.{column}

-- name: merge_fold_set
-- Within one step: the value of the last block.
(array_agg({column} ORDER BY {number} DESC))[1] AS {column}

-- name: merge_fold_set_if_null
-- Within one step: the value of the first block that has one.
(array_agg({column} ORDER BY {number}) FILTER (WHERE {column} IS NOT NULL))[1] AS {column}

-- name: merge_fold_add
-- Within one step: the sum.
sum({column}) AS {column}

-- name: merge_fold_min
-- Within one step: the lowest.
min({column}) AS {column}

-- name: merge_fold_max
-- Within one step: the highest.
max({column}) AS {column}

-- name: merge_after_set
-- After a step: what it sets.
folded.{column} AS {column}

-- name: merge_after_set_if_null
-- After a step: what was there, or the first that came since.
coalesce(
    held.{column},
    (array_agg(folded.{column}) FILTER (WHERE folded.{column} IS NOT NULL) OVER steps)[1]
) AS {column}

-- name: merge_after_add
-- After a step: what was there and all that came since.
coalesce(
    held.{column} + sum(folded.{column}) OVER steps, sum(folded.{column}) OVER steps, held.{column}
) AS {column}

-- name: merge_after_min
-- After a step: the lowest of all.
least(held.{column}, min(folded.{column}) OVER steps) AS {column}

-- name: merge_after_max
-- After a step: the highest of all.
greatest(held.{column}, max(folded.{column}) OVER steps) AS {column}
