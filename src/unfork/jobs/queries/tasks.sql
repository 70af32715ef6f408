-- name: tasks_now
-- The time that all workers share.
SELECT clock_timestamp() AS now;

-- name: tasks_last
-- The latest row of each task.
SELECT DISTINCT ON (task) task, moment, status, attempt, leased_by, not_before, lease_expires_at,
       result, error, started_at, finished_at
FROM {app}.scheduled_tasks
ORDER BY task, moment DESC;

-- name: tasks_begin
-- Records when a task was first seen: its moments count from here.
INSERT INTO {app}.scheduled_tasks (task, moment, status, leased_by, finished_at)
SELECT %(task)s, %(now)s, 'COMPLETED', %(worker)s, %(now)s
WHERE NOT EXISTS (SELECT FROM {app}.scheduled_tasks WHERE task = %(task)s)
ON CONFLICT DO NOTHING;

-- name: tasks_claim
-- Claims a moment of a task; no row where somebody has it, had it, or runs an earlier one still.
INSERT INTO {app}.scheduled_tasks (task, moment, status, leased_by, lease_expires_at, started_at)
VALUES (%(task)s, %(moment)s, 'ACTIVE', %(worker)s, %(now)s + make_interval(secs => %(lease_s)s),
        %(now)s)
ON CONFLICT DO NOTHING
RETURNING task, moment, token, attempt;

-- name: tasks_reclaim
-- Claims again what failed last, once its pause is over.
UPDATE {app}.scheduled_tasks AS known
SET status = 'ACTIVE', token = nextval('{app}.lease_tokens'), leased_by = %(worker)s,
    lease_expires_at = %(now)s + make_interval(secs => %(lease_s)s), not_before = NULL,
    started_at = %(now)s, finished_at = NULL
WHERE known.task = %(task)s
  AND known.status = 'FAILED'
  AND known.attempt < %(attempts_max)s
  AND known.not_before <= %(now)s
  AND known.moment = (SELECT max(moment) FROM {app}.scheduled_tasks WHERE task = %(task)s)
RETURNING known.task, known.moment, known.token, known.attempt;

-- name: tasks_reap
-- Takes the leases of workers that did not come back; that counts as a failure.
UPDATE {app}.scheduled_tasks
SET status = 'FAILED', attempt = attempt + 1, lease_expires_at = NULL, finished_at = %(now)s,
    not_before = %(now)s + make_interval(
        secs => least(%(backoff_s)s * 2 ^ least(attempt, 30), %(backoff_s_max)s)
    ),
    error = 'the worker ' || leased_by || ' did not come back in time'
WHERE status = 'ACTIVE' AND lease_expires_at <= %(now)s;

-- name: tasks_renew
-- Holds a task for longer, where it is still held.
UPDATE {app}.scheduled_tasks
SET lease_expires_at = %(now)s + make_interval(secs => %(lease_s)s)
WHERE task = %(task)s AND token = %(token)s AND status = 'ACTIVE' AND lease_expires_at > %(now)s
RETURNING token;

-- name: tasks_complete
-- Ends a task, where it is still held.
UPDATE {app}.scheduled_tasks
SET status = 'COMPLETED', lease_expires_at = NULL, finished_at = %(now)s,
    result = %(result)s::jsonb, error = NULL
WHERE task = %(task)s AND token = %(token)s AND status = 'ACTIVE' AND lease_expires_at > %(now)s
RETURNING token;

-- name: tasks_fail
-- Gives a task up after an error; the pause grows with every failure.
UPDATE {app}.scheduled_tasks
SET status = 'FAILED', attempt = attempt + %(count)s, lease_expires_at = NULL,
    finished_at = %(now)s, error = %(error)s,
    not_before = %(now)s + make_interval(
        secs => least(%(backoff_s)s * 2 ^ least(attempt, 30), %(backoff_s_max)s)
    )
WHERE task = %(task)s AND token = %(token)s AND status = 'ACTIVE' AND lease_expires_at > %(now)s
RETURNING attempt;
