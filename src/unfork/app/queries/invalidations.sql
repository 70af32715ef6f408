-- name: invalidations_record
-- Records what happened to a dataset and who has which blocks to do again; done where nobody has.
WITH event AS (
    INSERT INTO {app}.data_invalidations
        (dataset, scope, row_filter, reason, source_event, processed_by, processed_at)
    VALUES (%(dataset)s, 'row_range', %(row_filter)s::jsonb, %(reason)s, %(source_event)s::jsonb,
            CASE WHEN cardinality(%(generations)s::integer[]) = 0 THEN '{}'::uuid[] END,
            CASE WHEN cardinality(%(generations)s::integer[]) = 0 THEN now() END)
    RETURNING id
), coalesced AS (
    SELECT part.generation_id, unnest(range_agg(int8range(part.first, part.last, '[]'))) AS span
    FROM unnest(%(generations)s::integer[], %(firsts)s::bigint[], %(lasts)s::bigint[])
        AS part (generation_id, first, last)
    GROUP BY part.generation_id
)
INSERT INTO {app}.invalidation_spans
    (invalidation_id, generation_id, job, first_number, last_number)
SELECT event.id, generation.id, generation.job, lower(coalesced.span), upper(coalesced.span) - 1
FROM event, coalesced
JOIN {app}.generations AS generation ON generation.id = coalesced.generation_id
ORDER BY generation.id, lower(coalesced.span);

-- name: invalidations_dependents
-- The builds that read a dataset, with how far each has come or is about to come.
SELECT generation.id, generation.declaration ->> 'mode' AS mode,
       coalesce(generation.declaration -> 'lookups' ? %(dataset)s, false) AS is_lookup,
       generation.first_number, greatest(cursor.cursor_value, leased.last) AS last_number
FROM {app}.generations AS generation
JOIN {app}.jobs AS job ON job.job = generation.job
JOIN {app}.dataset_cursors AS cursor ON cursor.generation_id = generation.id
CROSS JOIN LATERAL (
    SELECT max(upper(lease.span)) - 1 AS last
    FROM {app}.worker_leases AS lease
    WHERE lease.generation_id = generation.id AND lease.status <> 'FAILED'
) AS leased
WHERE job.inputs @> ARRAY[%(dataset)s] AND generation.state <> 'retired'
ORDER BY generation.id;

-- name: invalidations_versions
-- Marks the versions that were computed from any of these blocks, and returns their blocks.
UPDATE {app}.partition_versions AS version
SET is_valid = false
FROM unnest(%(firsts)s::bigint[], %(lasts)s::bigint[]) AS changed (first, last)
WHERE version.generation_id = ANY (%(generations)s)
  AND version.is_current
  AND version.first_number <= changed.last
  AND version.last_number >= changed.first
  AND (version.is_valid OR NOT %(only_valid)s)
RETURNING version.generation_id, version.first_number, version.last_number;

-- name: invalidations_leased
-- The blocks that somebody computes at this moment from any of these blocks.
SELECT lease.generation_id, lower(lease.span) AS first_number, upper(lease.span) - 1 AS last_number
FROM {app}.worker_leases AS lease
JOIN unnest(%(firsts)s::bigint[], %(lasts)s::bigint[]) AS changed (first, last)
    ON lease.span && int8range(changed.first, changed.last, '[]')
WHERE lease.generation_id = ANY (%(generations)s) AND lease.status = 'ACTIVE';

-- name: invalidations_turn
-- Lets one commit at a time mark what it has done of an event: the last one finds it all done.
SELECT id FROM {app}.data_invalidations
WHERE id IN (SELECT invalidation_id FROM {app}.invalidation_spans WHERE id = ANY (%(ids)s))
ORDER BY id
FOR UPDATE;

-- name: invalidations_process
-- Marks what a run has done again; what it has not done stays open.
WITH done AS (
    SELECT * FROM {app}.invalidation_spans
    WHERE generation_id = %(generation_id)s
      AND id = ANY (%(ids)s)
      AND processed_at IS NULL
      AND first_number <= %(last)s
      AND last_number >= %(first)s
), left_over AS (
    INSERT INTO {app}.invalidation_spans
        (invalidation_id, generation_id, job, first_number, last_number, created_at)
    SELECT done.invalidation_id, done.generation_id, done.job, lower(part), upper(part) - 1,
           done.created_at
    FROM done
    CROSS JOIN LATERAL unnest(
        int8multirange(int8range(done.first_number, done.last_number, '[]'))
        - int8multirange(int8range(%(first)s, %(last)s, '[]'))
    ) AS part
)
UPDATE {app}.invalidation_spans AS span
SET first_number = greatest(span.first_number, %(first)s),
    last_number = least(span.last_number, %(last)s),
    processed_at = now()
FROM done
WHERE span.id = done.id;

-- name: invalidations_settle
-- Marks what everybody has done.
UPDATE {app}.data_invalidations AS event
SET processed_at = now(),
    processed_by = (
        SELECT coalesce(array_agg(DISTINCT job.job_id), '{}')
        FROM {app}.invalidation_spans AS span
        JOIN {app}.jobs AS job ON job.job = span.job
        WHERE span.invalidation_id = event.id
    )
WHERE event.processed_at IS NULL
  AND NOT EXISTS (
      SELECT FROM {app}.invalidation_spans AS span
      WHERE span.invalidation_id = event.id AND span.processed_at IS NULL
  );

-- name: invalidations_open
-- What has to be done again and is not done yet.
SELECT span.id, span.invalidation_id, span.generation_id, span.job, span.first_number,
       span.last_number, event.dataset, event.reason, event.created_at
FROM {app}.invalidation_spans AS span
JOIN {app}.data_invalidations AS event ON event.id = span.invalidation_id
WHERE span.processed_at IS NULL
ORDER BY span.generation_id, span.first_number, span.id;

-- name: invalidations_fall
-- Takes the watermarks of datasets in partitions back to before their lowest invalid one.
UPDATE {app}.dataset_cursors AS cursor
SET cursor_value = CASE WHEN lowest.parent_hash IS NULL THEN NULL ELSE lowest.first_number - 1 END,
    cursor_hash = lowest.parent_hash,
    updated_at = now()
FROM (
    SELECT DISTINCT ON (version.generation_id)
           version.generation_id, version.first_number,
           CASE WHEN version.first_number > generation.first_number THEN version.parent_hash END
               AS parent_hash
    FROM {app}.partition_versions AS version
    JOIN {app}.generations AS generation ON generation.id = version.generation_id
    WHERE version.generation_id = ANY (%(generations)s)
      AND version.is_current
      AND NOT version.is_valid
    ORDER BY version.generation_id, version.first_number
) AS lowest
WHERE cursor.generation_id = lowest.generation_id AND cursor.cursor_value >= lowest.first_number;
