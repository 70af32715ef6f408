-- name: advance_snapshot
-- Makes every statement of the transaction see the same moment.
SET TRANSACTION ISOLATION LEVEL REPEATABLE READ, READ ONLY;

-- name: advance_window
-- The next entry there is, and the last one up to which they bring no more than so many blocks.
SELECT min(seq) AS first_seq, max(seq) FILTER (WHERE blocks <= %(blocks_max)s) AS last_seq
FROM (
    SELECT seq,
           sum(CASE kind WHEN 'commit' THEN last - first + 1 ELSE 0 END) OVER (ORDER BY seq)
               AS blocks
    FROM {raw}.journal
    WHERE seq > %(after)s
    ORDER BY seq
    LIMIT %(entries_max)s
) AS entry;

-- name: advance_within
-- The last entry of the window whose position is still a block of the chain.
SELECT entry.seq, entry.epoch, entry.ref_number, entry.ref_hash
FROM {raw}.journal AS entry
JOIN {raw}.blocks AS block ON block.number = entry.ref_number AND block.hash = entry.ref_hash
WHERE entry.seq > %(after)s AND entry.seq <= %(last_seq)s
ORDER BY entry.seq DESC
LIMIT 1;

-- name: advance_beyond
-- The first such entry beyond the window.
SELECT entry.seq, entry.epoch, entry.ref_number, entry.ref_hash
FROM {raw}.journal AS entry
JOIN {raw}.blocks AS block ON block.number = entry.ref_number AND block.hash = entry.ref_hash
WHERE entry.seq > %(last_seq)s
ORDER BY entry.seq
LIMIT 1;

-- name: advance_fall
-- The lowest position that any fork led to, everything lost being the lowest.
SELECT ref_number, ref_hash, fork
FROM {raw}.journal
WHERE kind = 'unwind' AND seq > %(after)s AND seq <= %(seq)s
ORDER BY ref_number NULLS FIRST, seq DESC
LIMIT 1;

-- name: advance_days
-- The days of the blocks of a span.
SELECT (timestamp AT TIME ZONE 'UTC')::date AS day, min(number) AS first, max(number) AS last
FROM {raw}.blocks
WHERE number BETWEEN %(first)s AND %(last)s
GROUP BY 1
ORDER BY 1;
