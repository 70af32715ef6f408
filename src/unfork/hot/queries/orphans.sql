-- name: orphans_lock
-- Keeps new streams from registering until the end of the transaction.
LOCK TABLE {raw}.streams IN SHARE MODE;

-- name: orphans_plan
-- Records up to which fork orphaned rows of old blocks may go, as far as no stream needs them.
INSERT INTO {raw}.pruned (unwind_seq)
SELECT max(unwind_seq)
FROM {raw}.orphaned_blocks
WHERE number < %(below)s
  AND unwind_seq <= coalesce((
      SELECT min(seq) FROM {raw}.streams
      WHERE seen_at >= now() - make_interval(secs => %(stream_keep_s)s)
  ), unwind_seq)
HAVING max(unwind_seq) IS NOT NULL
ON CONFLICT (is_only) DO UPDATE
SET unwind_seq = greatest(pruned.unwind_seq, excluded.unwind_seq);

-- name: orphans_prune
-- Removes a bounded number of orphaned rows of old blocks, of the forks that may go.
DELETE FROM {raw}.{orphaned}
WHERE ctid IN (
    SELECT ctid FROM {raw}.{orphaned}
    WHERE {number} < %(below)s
      AND unwind_seq <= (SELECT unwind_seq FROM {raw}.pruned)
    ORDER BY {number}
    LIMIT %(limit)s
);
