-- name: versions_extend
-- Lets versions in blocks grow by new blocks, or begins others.
WITH piece AS (
    SELECT given.key, given.first, given.last, given.row_count, given.content,
           coalesce(given.parent_hash,
                    (SELECT hash FROM {app}.refs WHERE number = given.first - 1)) AS parent_hash,
           coalesce(given.last_hash,
                    (SELECT hash FROM {app}.refs WHERE number = given.last)) AS last_hash
    FROM unnest(%(keys)s::text[], %(firsts)s::bigint[], %(lasts)s::bigint[],
                %(row_counts)s::bigint[], %(contents)s::numeric[],
                %(parent_hashes)s::bytea[], %(last_hashes)s::bytea[])
        AS given (key, first, last, row_count, content, parent_hash, last_hash)
), grown AS (
    UPDATE {app}.partition_versions AS version
    SET last_number = piece.last,
        last_hash = piece.last_hash,
        row_count = version.row_count + piece.row_count,
        content_hash = version.content_hash + piece.content,
        published_at = now()
    FROM piece
    WHERE version.generation_id = %(generation_id)s
      AND version.partition_key = piece.key
      AND version.is_current
      AND version.last_number = piece.first - 1
      AND version.config_hash = %(config_hash)s
    RETURNING piece.key
)
INSERT INTO {app}.partition_versions
    (generation_id, dataset, partition_key, config_hash, schema_hash, location, row_count,
     first_number, last_number, last_hash, parent_hash, content_hash)
SELECT %(generation_id)s, %(dataset)s, piece.key, %(config_hash)s, %(schema_hash)s, %(location)s,
       piece.row_count, piece.first, piece.last, piece.last_hash, piece.parent_hash, piece.content
FROM piece
WHERE NOT EXISTS (SELECT FROM grown WHERE grown.key = piece.key)
ON CONFLICT (generation_id, partition_key, first_number) WHERE is_current DO UPDATE
SET config_hash = excluded.config_hash,
    row_count = excluded.row_count,
    last_number = excluded.last_number,
    last_hash = excluded.last_hash,
    parent_hash = excluded.parent_hash,
    content_hash = excluded.content_hash,
    is_valid = true,
    published_at = now();

-- name: versions_adjust
-- Puts right what versions in blocks hold; one that was done again as a whole is as new.
WITH changed AS (
    SELECT * FROM unnest(%(numbers)s::bigint[], %(row_counts)s::bigint[], %(contents)s::numeric[])
        AS part (number, row_count, content)
), touched AS (
    SELECT version.version, coalesce(sum(changed.row_count), 0) AS row_count,
           coalesce(sum(changed.content), 0) AS content
    FROM {app}.partition_versions AS version
    LEFT JOIN changed ON changed.number BETWEEN version.first_number AND version.last_number
    WHERE version.generation_id = %(generation_id)s
      AND version.is_current
      AND version.first_number <= %(last)s
      AND version.last_number >= %(first)s
    GROUP BY version.version
)
UPDATE {app}.partition_versions AS version
SET row_count = version.row_count + touched.row_count,
    content_hash = version.content_hash + touched.content,
    config_hash = CASE
        WHEN version.first_number >= %(first)s AND version.last_number <= %(last)s
        THEN %(config_hash)s ELSE version.config_hash END,
    published_at = now()
FROM touched
WHERE version.generation_id = %(generation_id)s AND version.version = touched.version;

-- name: versions_mixed
-- The versions of other code that a run has done again only in part.
SELECT version, first_number, last_number
FROM {app}.partition_versions
WHERE generation_id = %(generation_id)s
  AND is_current
  AND config_hash <> %(config_hash)s
  AND first_number <= %(last)s
  AND last_number >= %(first)s
ORDER BY first_number;

-- name: versions_measure
-- The rows of a span, and their content.
SELECT count(*) AS row_count, {content} AS content
FROM (
    SELECT {digest} AS digest
    FROM {app}.{table} AS held
    WHERE held.{number} BETWEEN %(first)s AND %(last)s
) AS hashed;

-- name: versions_divide
-- Puts pieces in the place of a version; those that are new are of the new code.
WITH old AS (
    DELETE FROM {app}.partition_versions
    WHERE generation_id = %(generation_id)s AND version = %(version)s
    RETURNING *
)
INSERT INTO {app}.partition_versions
    (generation_id, dataset, partition_key, config_hash, schema_hash, location, row_count,
     first_number, last_number, last_hash, parent_hash, content_hash, is_valid, published_at)
SELECT old.generation_id, old.dataset, old.partition_key,
       CASE WHEN piece.is_new THEN %(config_hash)s ELSE old.config_hash END,
       old.schema_hash, old.location, piece.row_count, piece.first, piece.last,
       CASE WHEN piece.last = old.last_number THEN old.last_hash
            ELSE (SELECT hash FROM {app}.refs WHERE number = piece.last) END,
       CASE WHEN piece.first = old.first_number THEN old.parent_hash
            ELSE (SELECT hash FROM {app}.refs WHERE number = piece.first - 1) END,
       piece.content, old.is_valid,
       CASE WHEN piece.is_new THEN now() ELSE old.published_at END
FROM old
CROSS JOIN unnest(%(firsts)s::bigint[], %(lasts)s::bigint[], %(row_counts)s::bigint[],
                  %(contents)s::numeric[], %(are_new)s::boolean[])
    AS piece (first, last, row_count, content, is_new);

-- name: versions_before
-- The current versions of some partitions.
SELECT partition_key, first_number, last_number, is_valid
FROM {app}.partition_versions
WHERE generation_id = %(generation_id)s AND partition_key = ANY (%(keys)s) AND is_current;

-- name: versions_retire
-- Forgets the versions whose rows were replaced.
DELETE FROM {app}.partition_versions
WHERE generation_id = %(generation_id)s AND partition_key = ANY (%(keys)s) AND is_current;

-- name: versions_publish
-- Records new versions; one whose rows are the same only learns of what blocks it is.
WITH given AS (
    SELECT part.*,
           NOT EXISTS (
               SELECT FROM {app}.invalidation_spans AS span
               WHERE span.generation_id = %(generation_id)s
                 AND span.processed_at IS NULL
                 AND span.first_number <= part.last
                 AND span.last_number >= part.first
                 AND span.id <> ALL (%(invalidations)s::bigint[])
           ) AS is_valid
    FROM unnest(%(keys)s::text[], %(firsts)s::bigint[], %(lasts)s::bigint[],
                %(row_counts)s::bigint[], %(contents)s::numeric[],
                %(parent_hashes)s::bytea[], %(last_hashes)s::bytea[])
        AS part (key, first, last, row_count, content, parent_hash, last_hash)
), anchored AS (
    UPDATE {app}.partition_versions AS version
    SET first_number = given.first,
        last_number = given.last,
        last_hash = given.last_hash,
        parent_hash = given.parent_hash,
        config_hash = %(config_hash)s,
        is_valid = given.is_valid
    FROM given
    WHERE version.generation_id = %(generation_id)s
      AND version.partition_key = given.key
      AND version.is_current
    RETURNING given.key
)
INSERT INTO {app}.partition_versions
    (generation_id, dataset, partition_key, config_hash, schema_hash, location, row_count,
     first_number, last_number, last_hash, parent_hash, content_hash, is_valid)
SELECT %(generation_id)s, %(dataset)s, given.key, %(config_hash)s, %(schema_hash)s, %(location)s,
       given.row_count, given.first, given.last, given.last_hash, given.parent_hash, given.content,
       given.is_valid
FROM given
WHERE NOT EXISTS (SELECT FROM anchored WHERE anchored.key = given.key);

-- name: versions_vanished
-- Forgets invalid versions of days that no block falls into any more, though later days have some.
DELETE FROM {app}.partition_versions AS version
WHERE version.generation_id = %(generation_id)s
  AND version.is_current
  AND NOT version.is_valid
  AND version.partition_key < (SELECT to_char(max(day), 'YYYY-MM-DD') FROM {app}.days)
  AND NOT EXISTS (
      SELECT FROM {app}.days AS day WHERE to_char(day.day, 'YYYY-MM-DD') = version.partition_key
  )
RETURNING version.partition_key, version.first_number, version.last_number;

-- name: versions_lowest_invalid
-- The lowest current version that has to be done again.
SELECT first_number, parent_hash FROM {app}.partition_versions
WHERE generation_id = %(generation_id)s AND is_current AND NOT is_valid
ORDER BY first_number
LIMIT 1;

-- name: versions_after
-- The current versions that reach beyond a block, with the last block of their day.
SELECT version.partition_key, version.first_number, version.last_number, version.last_hash,
       version.parent_hash, version.is_valid, day.last_number AS day_last
FROM {app}.partition_versions AS version
LEFT JOIN {app}.days AS day ON to_char(day.day, 'YYYY-MM-DD') = version.partition_key
WHERE version.generation_id = %(generation_id)s
  AND version.is_current
  AND version.last_number > %(number)s
ORDER BY version.first_number;

-- name: versions_current
-- Every current version.
SELECT * FROM {app}.partition_versions WHERE is_current ORDER BY generation_id, first_number;
