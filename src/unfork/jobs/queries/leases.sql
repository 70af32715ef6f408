-- name: lease_claim
-- Claims blocks that nobody has; no row where somebody has, or where it is not their turn, nor
-- while a fork or a correction is under way: it must see the lease, or the run must see it.
INSERT INTO {app}.worker_leases
    (generation_id, job, kind, span, status, token, leased_by, lease_expires_at, config_hash)
SELECT generation.id, generation.job, %(kind)s, int8range(%(first)s, %(last)s, '[]'), 'ACTIVE',
       nextval('{app}.lease_tokens'), %(worker)s,
       coalesce(%(now)s::timestamptz, clock_timestamp()) + make_interval(secs => %(lease_s)s),
       %(config_hash)s
FROM {app}.generations AS generation
JOIN {app}.jobs AS job ON job.job = generation.job
JOIN {app}.dataset_cursors AS cursor ON cursor.generation_id = generation.id
CROSS JOIN LATERAL (
    SELECT coalesce(cursor.cursor_value + 1, generation.first_number) AS number
) AS following
WHERE generation.id = %(generation_id)s
  AND generation.state <> 'retired'
  AND NOT job.is_paused
  AND %(first)s >= generation.first_number
  AND CASE
      -- What a partition covers is told by its version, wherever the watermark stands.
      WHEN generation.declaration ->> 'mode' <> 'cursor' THEN true
      WHEN %(kind)s = 'recompute' THEN NOT %(is_serial)s
      WHEN %(kind)s = 'live' OR %(is_serial)s THEN %(first)s = following.number
      ELSE %(first)s >= following.number
  END
FOR KEY SHARE OF cursor SKIP LOCKED
ON CONFLICT DO NOTHING
RETURNING *;

-- name: lease_reclaim
-- Claims again what failed, the lowest blocks first, once its pause is over or its code is new;
-- like a first claim, not while a fork or a correction is under way.
WITH build AS (
    SELECT generation_id FROM {app}.dataset_cursors
    WHERE generation_id = %(generation_id)s
    FOR KEY SHARE SKIP LOCKED
)
UPDATE {app}.worker_leases AS lease
SET status = 'ACTIVE',
    token = nextval('{app}.lease_tokens'),
    attempt = CASE WHEN lease.config_hash = %(config_hash)s THEN lease.attempt ELSE 0 END,
    config_hash = %(config_hash)s,
    leased_by = %(worker)s,
    lease_expires_at =
        coalesce(%(now)s::timestamptz, clock_timestamp()) + make_interval(secs => %(lease_s)s),
    not_before = NULL,
    updated_at = now()
WHERE lease.id = (
    SELECT failed.id
    FROM build
    JOIN {app}.worker_leases AS failed ON failed.generation_id = build.generation_id
    JOIN {app}.jobs AS job ON job.job = failed.job
    WHERE failed.status = 'FAILED'
      AND (%(id)s::bigint IS NULL OR failed.id = %(id)s)
      AND NOT job.is_paused
      -- A build has one live run at a time.
      AND NOT (failed.kind = 'live' AND EXISTS (
          SELECT FROM {app}.worker_leases AS other
          WHERE other.generation_id = failed.generation_id
            AND other.kind = 'live'
            AND other.status = 'ACTIVE'
      ))
      AND (
          failed.config_hash <> %(config_hash)s
          OR (failed.attempt < %(attempts_max)s
              AND failed.not_before <= coalesce(%(now)s::timestamptz, clock_timestamp()))
      )
    ORDER BY lower(failed.span)
    LIMIT 1
    FOR UPDATE OF failed SKIP LOCKED
)
RETURNING lease.*;

-- name: lease_renew
-- Holds a lease for longer, where it is still held.
UPDATE {app}.worker_leases
SET lease_expires_at =
        coalesce(%(now)s::timestamptz, clock_timestamp()) + make_interval(secs => %(lease_s)s),
    updated_at = now()
WHERE id = %(id)s
  AND token = %(token)s
  AND status = 'ACTIVE'
  AND lease_expires_at > coalesce(%(now)s::timestamptz, clock_timestamp())
RETURNING lease_expires_at;

-- name: lease_hold
-- The lease, where it is still held; nobody else touches it until the end of the transaction.
SELECT * FROM {app}.worker_leases
WHERE id = %(id)s
  AND token = %(token)s
  AND status = 'ACTIVE'
  AND lease_expires_at > coalesce(%(now)s::timestamptz, clock_timestamp())
FOR UPDATE;

-- name: lease_fail
-- Gives a lease up after an error; the pause grows with every failure.
UPDATE {app}.worker_leases
SET status = 'FAILED',
    attempt = attempt + %(count)s,
    lease_expires_at = NULL,
    not_before = coalesce(%(now)s::timestamptz, clock_timestamp()) + make_interval(
        secs => least(%(backoff_s)s * 2 ^ least(attempt, 30), %(backoff_s_max)s)
    ),
    error = %(error)s,
    updated_at = now()
WHERE id = %(id)s
  AND token = %(token)s
  AND status = 'ACTIVE'
  AND lease_expires_at > coalesce(%(now)s::timestamptz, clock_timestamp())
RETURNING *;

-- name: lease_reaper
-- Lets one process at a time look for leases whose worker is gone; held to the transaction's end.
SELECT pg_try_advisory_xact_lock(%(key)s) AS taken;

-- name: lease_reap
-- Takes the leases of workers that did not come back; that counts as a failure.
UPDATE {app}.worker_leases AS lease
SET status = 'FAILED',
    attempt = lease.attempt + 1,
    lease_expires_at = NULL,
    not_before = coalesce(%(now)s::timestamptz, clock_timestamp()) + make_interval(
        secs => least(%(backoff_s)s * 2 ^ least(lease.attempt, 30), %(backoff_s_max)s)
    ),
    error = 'the worker ' || lease.leased_by || ' did not come back in time',
    updated_at = now()
WHERE lease.id IN (
    SELECT expired.id FROM {app}.worker_leases AS expired
    WHERE expired.status = 'ACTIVE'
      AND expired.lease_expires_at <= coalesce(%(now)s::timestamptz, clock_timestamp())
    FOR UPDATE SKIP LOCKED
)
RETURNING lease.*;

-- name: lease_drop
-- Gives a lease back as if it had never been claimed.
DELETE FROM {app}.worker_leases WHERE id = %(id)s AND token = %(token)s AND status = 'ACTIVE';

-- name: lease_complete
-- Keeps what was completed ahead of the watermark, with the hashes that link it.
UPDATE {app}.worker_leases
SET status = 'COMPLETED',
    lease_expires_at = NULL,
    parent_hash = %(parent_hash)s,
    last_hash = %(last_hash)s,
    error = NULL,
    updated_at = now()
WHERE id = %(id)s;

-- name: lease_completed
-- What was completed ahead of the watermark, ascending.
SELECT id, lower(span) AS first, upper(span) - 1 AS last, parent_hash, last_hash
FROM {app}.worker_leases
WHERE generation_id = %(generation_id)s AND status = 'COMPLETED'
ORDER BY lower(span);

-- name: lease_forget
-- Forgets leases.
DELETE FROM {app}.worker_leases WHERE id = ANY (%(ids)s);

-- name: lease_release
-- Lets what failed too often be claimed again at once.
UPDATE {app}.worker_leases
SET attempt = 0, not_before = coalesce(%(now)s::timestamptz, clock_timestamp()), updated_at = now()
WHERE job = %(job)s
  AND status = 'FAILED'
  AND (%(first)s::bigint IS NULL OR span && int8range(%(first)s, %(last)s, '[]'))
RETURNING *;

-- name: lease_all
-- Every lease, by build and block.
SELECT * FROM {app}.worker_leases ORDER BY generation_id, lower(span), id;

-- name: run_record
-- Records how a run ended.
INSERT INTO {app}.runs
    (job, dataset, generation_id, first_number, last_number, kind, mode, reason, invalidations,
     config_hash, token, worker_name, outcome, row_count, error, started_at)
SELECT generation.job, generation.dataset, generation.id, %(first)s, %(last)s, %(kind)s,
       generation.declaration ->> 'mode', %(reason)s, %(invalidations)s, %(config_hash)s, %(token)s,
       %(worker)s, %(outcome)s, %(row_count)s, %(error)s, %(started_at)s
FROM {app}.generations AS generation
WHERE generation.id = %(generation_id)s;
