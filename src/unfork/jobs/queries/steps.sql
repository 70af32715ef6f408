-- name: steps_forget
-- Forgets leases of a build, but for those that somebody has taken up again meanwhile.
DELETE FROM {app}.worker_leases
WHERE id = ANY (%(ids)s) AND generation_id = %(generation_id)s AND status <> 'ACTIVE';

-- name: steps_open
-- Whether something that a run was planned to correct is still open.
SELECT EXISTS (
    SELECT FROM {app}.invalidation_spans
    WHERE generation_id = %(generation_id)s AND id = ANY (%(ids)s) AND processed_at IS NULL
) AS is_open;
