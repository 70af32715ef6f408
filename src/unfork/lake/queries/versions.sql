-- name: lake_claim
-- Begins a version of a partition: no row where somebody writes one, or where another than the one
-- to be replaced is current by now.
WITH number AS (
    SELECT nextval('{app}.lake_numbers') AS version
)
INSERT INTO {app}.lake_versions
    (dataset, partition_key, version, state, location, first_number, last_number, config_hash,
     schema_hash, leased_by, lease_expires_at)
SELECT %(dataset)s, %(key)s, number.version, 'writing',
       %(folder)s || '/' || number.version || '-' || %(suffix)s, %(first)s, %(last)s,
       %(config_hash)s, %(schema_hash)s, %(worker)s,
       clock_timestamp() + make_interval(secs => %(lease_s)s)
FROM number
WHERE %(replaces)s::bigint IS NOT DISTINCT FROM (
    SELECT held.version FROM {app}.lake_versions AS held
    WHERE held.dataset = %(dataset)s AND held.partition_key = %(key)s AND held.state = 'current'
)
ON CONFLICT DO NOTHING
RETURNING *;

-- name: lake_reap
-- Gives up versions whose writer was not heard of in time; what he has written is garbage.
UPDATE {app}.lake_versions
SET state = 'abandoned', lease_expires_at = NULL
WHERE state = 'writing' AND lease_expires_at <= clock_timestamp()
RETURNING *;

-- name: lake_renew
-- Holds a version that is being written for longer, where it is still held.
UPDATE {app}.lake_versions
SET lease_expires_at = clock_timestamp() + make_interval(secs => %(lease_s)s)
WHERE version = %(version)s AND state = 'writing' AND lease_expires_at > clock_timestamp()
RETURNING version;

-- name: lake_abandon
-- Gives up a version that is being written.
UPDATE {app}.lake_versions
SET state = 'abandoned', lease_expires_at = NULL
WHERE version = %(version)s AND state = 'writing';

-- name: lake_chain
-- The chain as the app side knows it; nobody moves it until the end of the transaction.
SELECT epoch, floor_number FROM {app}.follower FOR SHARE;

-- name: lake_move
-- Counts a move; whoever else moves a pointer waits until the end of the transaction.
UPDATE {app}.lake SET moves = moves + 1 RETURNING moves;

-- name: lake_hold
-- A version by its number, held to the end of the transaction.
SELECT *, state = 'writing' AND lease_expires_at > clock_timestamp() AS is_held
FROM {app}.lake_versions WHERE version = %(version)s
FOR UPDATE;

-- name: lake_around
-- The current versions that hold blocks of a span, or end or begin beside it.
SELECT * FROM {app}.lake_versions
WHERE dataset = %(dataset)s
  AND state = 'current'
  AND first_number <= %(last)s + 1
  AND last_number >= %(first)s - 1
ORDER BY first_number;

-- name: lake_retire
-- Takes the pointer away from versions; their files stay for who reads them.
UPDATE {app}.lake_versions
SET state = 'retired', retired_move = %(move)s, retired_at = now()
WHERE version = ANY (%(versions)s) AND state = 'current';

-- name: lake_publish
-- Moves the pointer to a version.
UPDATE {app}.lake_versions
SET state = 'current',
    lease_expires_at = NULL,
    published_at = now(),
    row_count = %(row_count)s,
    bytes = %(bytes)s,
    content_hash = %(content_hash)s,
    first_hash = %(first_hash)s,
    last_hash = %(last_hash)s,
    parent_hash = %(parent_hash)s,
    files = %(files)s,
    lookups = %(lookups)s
WHERE version = %(version)s;

-- name: lake_current
-- The current versions of some datasets that hold blocks of a span; of all where none is named.
SELECT dataset, partition_key, version, location, first_number, last_number, row_count, bytes,
       content_hash, first_hash, last_hash, parent_hash, config_hash, schema_hash, published_at,
       CASE WHEN %(with_files)s THEN files ELSE '[]' END AS files,
       CASE WHEN %(with_files)s THEN lookups ELSE '[]' END AS lookups
FROM {app}.lake_versions
WHERE state = 'current'
  AND (%(datasets)s::text[] IS NULL OR dataset = ANY (%(datasets)s))
  AND first_number <= %(last)s
  AND last_number >= %(first)s
ORDER BY dataset, first_number;

-- name: lake_states
-- How many versions there are in each state, with what they take.
SELECT dataset, state, count(*) AS versions, coalesce(sum(row_count), 0)::bigint AS row_count,
       coalesce(sum(bytes), 0)::bigint AS bytes, min(first_number) AS first_number,
       max(last_number) AS last_number
FROM {app}.lake_versions
GROUP BY dataset, state
ORDER BY dataset, state;

-- name: lake_locations
-- Where every version is, whatever its state.
SELECT location FROM {app}.lake_versions;

-- name: lake_garbage
-- Versions that no pointer names, no reader needs and that were replaced long enough ago.
SELECT * FROM {app}.lake_versions AS version
WHERE version.state = 'abandoned'
   OR (version.state = 'retired'
       AND version.retired_at <= now() - make_interval(secs => %(keep_s)s)
       AND NOT EXISTS (
           SELECT FROM {app}.lake_pins AS pin
           WHERE pin.move < version.retired_move AND pin.expires_at > clock_timestamp()
       ))
ORDER BY version.version;

-- name: lake_forget
-- Forgets versions whose files are gone.
DELETE FROM {app}.lake_versions
WHERE version = ANY (%(versions)s) AND state IN ('abandoned', 'retired');

-- name: lake_pin
-- Keeps what is current from now on for a reader.
INSERT INTO {app}.lake_pins (holder, move, expires_at)
SELECT %(holder)s, moves, clock_timestamp() + make_interval(secs => %(keep_s)s) FROM {app}.lake
RETURNING id;

-- name: lake_unpin
-- Takes a pin away, and those that nobody came back for.
DELETE FROM {app}.lake_pins WHERE id = %(id)s OR expires_at < clock_timestamp();

-- name: lake_ends
-- Of each dataset the first version that no other one follows, and where the next one begins.
SELECT DISTINCT ON (version.dataset)
       version.dataset, version.last_number, version.last_hash,
       (SELECT min(above.first_number) FROM {app}.lake_versions AS above
        WHERE above.dataset = version.dataset
          AND above.state = 'current'
          AND above.first_number > version.last_number) AS next_first
FROM {app}.lake_versions AS version
WHERE version.state = 'current'
  AND version.first_number >= %(first)s
  AND NOT EXISTS (
      SELECT FROM {app}.lake_versions AS following
      WHERE following.dataset = version.dataset
        AND following.state = 'current'
        AND following.first_number = version.last_number + 1
  )
ORDER BY version.dataset, version.last_number;

-- name: lake_firsts
-- Of each dataset the lowest block from a number on that a current version holds.
SELECT dataset, min(first_number) AS first_number
FROM {app}.lake_versions
WHERE state = 'current' AND first_number >= %(first)s
GROUP BY dataset;
