-- name: journal_read
-- What happened after an entry, in order.
SELECT * FROM {raw}.journal WHERE seq > %(after)s ORDER BY seq LIMIT %(limit)s;

-- name: journal_refs
-- The blocks that a commit brought, wherever they are now.
SELECT number, hash FROM {raw}.blocks
WHERE number BETWEEN %(first)s AND %(last)s AND journal_seq = %(seq)s
UNION ALL
SELECT number, hash FROM {raw}.orphaned_blocks
WHERE number BETWEEN %(first)s AND %(last)s AND journal_seq = %(seq)s
ORDER BY number;
