-- name: requests_open
-- What people have asked for in place of a build and is not done yet.
SELECT event.source_event -> 'asked' AS asked, (event.source_event ->> 'until')::bigint AS until
FROM {app}.data_invalidations AS event
WHERE event.reason = 'manual'
  AND event.processed_at IS NULL
  AND EXISTS (
      SELECT FROM {app}.invalidation_spans AS span
      WHERE span.invalidation_id = event.id
        AND span.generation_id = %(generation_id)s
        AND span.processed_at IS NULL
  )
ORDER BY event.created_at;
