-- name: history_columns
-- The columns of a table that can be written, in order, with their types.
SELECT attribute.attname AS name, format_type(attribute.atttypid, attribute.atttypmod) AS type,
       attribute.attidentity = 'a' AS is_fixed
FROM pg_attribute AS attribute
WHERE attribute.attrelid = format('%%I.%%I', %(schema)s::text, %(table)s::text)::regclass
  AND attribute.attnum > 0
  AND NOT attribute.attisdropped
  AND attribute.attgenerated = ''
ORDER BY attribute.attnum;

-- name: history_key
-- The columns of a table's primary key, in order.
SELECT attribute.attname AS name
FROM pg_index AS index
CROSS JOIN LATERAL unnest(index.indkey) WITH ORDINALITY AS part (number, place)
JOIN pg_attribute AS attribute
    ON attribute.attrelid = index.indrelid AND attribute.attnum = part.number
WHERE index.indrelid = format('%%I.%%I', %(schema)s::text, %(table)s::text)::regclass
  AND index.indisprimary
ORDER BY part.place;

-- name: history_references
-- Which of these tables refers to which other one of them.
SELECT child.relname AS child, parent.relname AS parent
FROM pg_constraint AS reference
JOIN pg_class AS child ON child.oid = reference.conrelid
JOIN pg_class AS parent ON parent.oid = reference.confrelid
JOIN pg_namespace AS namespace
    ON namespace.oid = child.relnamespace AND namespace.oid = parent.relnamespace
WHERE reference.contype = 'f'
  AND namespace.nspname = %(schema)s
  AND child.relname = ANY (%(tables)s)
  AND parent.relname = ANY (%(tables)s)
  AND child.oid <> parent.oid;

-- name: history_record
-- Writes down the rows with these keys as they are, before they are changed.
INSERT INTO {app}.history (block_number, seq, table_name, op, pk, prev_value)
SELECT %(block_number)s, %(seq)s + change.place - 1, %(table_name)s,
       CASE WHEN {is_held} THEN %(op)s ELSE 'INSERT' END,
       change.pk,
       CASE WHEN {is_held} THEN {image} END
FROM jsonb_array_elements(%(keys)s::jsonb) WITH ORDINALITY AS change (pk, place)
LEFT JOIN {schema}.{table} AS held ON {match}
ORDER BY change.place;

-- name: history_earliest
-- For each row the state before its first change above the target.
SELECT DISTINCT ON (pk) pk, prev_value
FROM {app}.history
WHERE block_number > %(target)s AND table_name = %(table_name)s
ORDER BY pk, block_number, seq, id

-- name: history_undo_insert
-- Removes the rows that were not there.
WITH change AS ({earliest})
DELETE FROM {schema}.{table} AS held
USING change
WHERE change.prev_value IS NULL AND {match};

-- name: history_undo_update
-- Puts the other rows back as they were.
WITH change AS ({earliest})
INSERT INTO {schema}.{table} ({columns}) OVERRIDING SYSTEM VALUE
SELECT {values} FROM change WHERE change.prev_value IS NOT NULL
ON CONFLICT ({key}) {resolution};

-- name: history_forget
-- Forgets the changes above the target.
DELETE FROM {app}.history
WHERE block_number > %(target)s AND table_name = ANY (%(table_names)s);

-- name: history_prune
-- Forgets a bounded number of changes that can no longer be undone.
DELETE FROM {app}.history
WHERE id IN (
    SELECT id FROM {app}.history WHERE block_number <= %(floor)s ORDER BY block_number LIMIT %(limit)s
);

-- name: history_pruned
-- Remembers below what nothing can be undone.
UPDATE {app}.follower SET history_floor = greatest(history_floor, %(floor)s);

-- name: history_match
-- Whether a row has the key of a change.
held.{column} = (change.pk ->> {label})::{type}

-- name: history_image
-- A row as it is, every value as text.
jsonb_object(ARRAY[{names}]::text[], ARRAY[{texts}]::text[])

-- name: history_text
-- One value as text.
held.{column}::text

-- name: history_value
-- One value as it was.
(change.prev_value ->> {label})::{type}

-- name: history_held
-- Whether a row was found.
held.{column} IS NOT NULL

-- name: history_assign
-- One column that is put back.
{column} = excluded.{column}

-- name: history_assignments
-- What is put back in a row that is there.
DO UPDATE SET {assignments}

-- name: history_nothing
-- A row that is all key has nothing to put back.
DO NOTHING
