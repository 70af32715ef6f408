-- name: writer_lock
-- Takes the writer lock of the chain for this connection, where nobody else has it.
SELECT pg_try_advisory_lock(%(key)s) AS taken;

-- name: writer_self
-- Which backend we are, so that it can be told apart later.
SELECT pid, backend_start FROM pg_stat_activity WHERE pid = pg_backend_pid();

-- name: writer_holder
-- Who holds the writer lock.
SELECT activity.pid, activity.backend_start, activity.application_name,
       coalesce(host(activity.client_addr), 'this machine') AS host
FROM pg_locks AS lock
JOIN pg_stat_activity AS activity USING (pid)
WHERE lock.locktype = 'advisory'
  AND lock.granted
  AND lock.objsubid = 1
  AND lock.database = (SELECT oid FROM pg_database WHERE datname = current_database())
  AND (lock.classid::bigint << 32 | lock.objid::bigint) = %(key)s;

-- name: writer_terminate
-- Ends a backend of our own that outlived its connection.
SELECT pg_terminate_backend(pid)
FROM pg_stat_activity
WHERE pid = %(pid)s AND backend_start = %(backend_start)s;
