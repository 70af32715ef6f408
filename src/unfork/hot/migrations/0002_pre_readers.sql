-- What readers ask the writer to keep: pins of runs, places of streams, and what is gone already.

-- A run that reads blocks pins the lowest of them; nothing at or above a pin is dropped.
CREATE TABLE {raw}.pins (
    id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    -- Who reads, for people.
    holder text NOT NULL,
    -- The lowest block that is read.
    first bigint NOT NULL,
    created_at timestamptz NOT NULL DEFAULT now(),
    -- A reader that died keeps nothing after this.
    expires_at timestamptz NOT NULL
);

-- A stream of changes, and how far its reader has come: what it has still to read is kept.
CREATE TABLE {raw}.streams (
    name text PRIMARY KEY,
    -- The last journal entry that the reader has made durable.
    seq bigint NOT NULL,
    -- The position after that entry; NULL where nothing was held.
    number bigint,
    hash bytea,
    created_at timestamptz NOT NULL DEFAULT now(),
    seen_at timestamptz NOT NULL DEFAULT now(),
    CHECK ((number IS NULL) = (hash IS NULL))
);

-- Orphaned rows of forks up to this journal entry may be gone. Written before any row is removed.
CREATE TABLE {raw}.pruned (
    is_only boolean PRIMARY KEY DEFAULT true CHECK (is_only),
    unwind_seq bigint NOT NULL
);
