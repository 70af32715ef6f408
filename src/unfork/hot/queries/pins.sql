-- name: pins_register
-- Pins the blocks from a number on, for a bounded time.
INSERT INTO {raw}.pins (holder, first, expires_at)
VALUES (%(holder)s, %(first)s, now() + make_interval(secs => %(keep_s)s))
RETURNING id;

-- name: pins_release
-- Takes a pin away, and those that nobody came back for.
DELETE FROM {raw}.pins WHERE id = %(id)s OR expires_at < now();

-- name: pins_lowest
-- The lowest block that somebody reads, with who it is.
SELECT first, holder FROM {raw}.pins WHERE expires_at >= now() ORDER BY first LIMIT 1;
