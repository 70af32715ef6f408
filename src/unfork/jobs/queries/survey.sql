-- name: survey
-- Everything a plan depends on at one moment, in one row; lists are JSON, which is read fastest.
SELECT coalesce(%(now)s::timestamptz, clock_timestamp()) AS now, follower.*,
       (SELECT coalesce(json_agg(json_build_array(number, encode(hash, 'hex')) ORDER BY number),
                        '[]')
        FROM {app}.refs) AS refs,
       (SELECT coalesce(json_agg(json_build_array(day, first_number, last_number)
                                 ORDER BY first_number, day), '[]')
        FROM {app}.days) AS days,
       (SELECT coalesce(json_agg(job ORDER BY job), '[]')
        FROM {app}.jobs WHERE is_paused) AS paused,
       (SELECT coalesce(json_agg(json_build_object(
                   'id', generation.id, 'declaration', generation.declaration,
                   'generation', generation.generation, 'table_name', generation.table_name,
                   'config_hash', generation.config_hash, 'schema_hash', generation.schema_hash,
                   'first_number', generation.first_number, 'state', generation.state,
                   'cursor_value', cursor.cursor_value,
                   'cursor_hash', encode(cursor.cursor_hash, 'hex'),
                   'history_floor', cursor.history_floor) ORDER BY generation.id), '[]')
        FROM {app}.generations AS generation
        JOIN {app}.dataset_cursors AS cursor ON cursor.generation_id = generation.id
        WHERE generation.state <> 'retired') AS builds,
       (SELECT coalesce(json_agg(json_build_array(
                   version.generation_id, version.partition_key, version.first_number,
                   version.last_number, encode(version.last_hash, 'hex'), version.config_hash,
                   version.is_valid, version.row_count, version.published_at)
                   ORDER BY version.generation_id, version.first_number), '[]')
        FROM {app}.partition_versions AS version
        WHERE version.is_current
          AND version.generation_id IN (
              SELECT id FROM {app}.generations WHERE state <> 'retired'
          )) AS versions,
       (SELECT coalesce(json_agg(json_build_array(
                   span.id, span.generation_id, span.first_number, span.last_number, event.reason,
                   event.dataset) ORDER BY span.generation_id, span.first_number, span.id), '[]')
        FROM {app}.invalidation_spans AS span
        JOIN {app}.data_invalidations AS event ON event.id = span.invalidation_id
        WHERE span.processed_at IS NULL) AS outdated,
       (SELECT coalesce(json_agg(json_build_array(
                   id, generation_id, kind, lower(span), upper(span) - 1, status, attempt,
                   not_before, config_hash, encode(last_hash, 'hex'))
                   ORDER BY generation_id, lower(span), id), '[]')
        FROM {app}.worker_leases) AS leases
FROM {app}.follower;
