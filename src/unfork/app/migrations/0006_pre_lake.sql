-- Versions of partitions in cold storage: immutable folders of files, one of them current at a time.

-- Counts every move of a pointer; who moves one holds this row to the end of his transaction.
CREATE TABLE {app}.lake (
    is_only boolean PRIMARY KEY DEFAULT true CHECK (is_only),
    moves bigint NOT NULL DEFAULT 0
) WITH (fillfactor = 20);
INSERT INTO {app}.lake DEFAULT VALUES;

CREATE SEQUENCE {app}.lake_numbers;
CREATE TABLE {app}.lake_versions (
    dataset text NOT NULL,
    -- The span, as `0-49999`, or the day, as `2024-01-31`.
    partition_key text NOT NULL,
    -- Names the folder, and is the token of who writes it.
    version bigint NOT NULL UNIQUE,
    state text NOT NULL CHECK (state IN ('writing', 'current', 'retired', 'abandoned')),
    -- Below the root of the lake.
    location text NOT NULL,
    first_number bigint NOT NULL,
    last_number bigint NOT NULL CHECK (last_number >= first_number),
    config_hash text NOT NULL,
    schema_hash text NOT NULL,
    -- Of a version that is being written: by whom, and until when he has to be heard of.
    leased_by text NOT NULL,
    lease_expires_at timestamptz,
    -- Counted and hashed from the files themselves, before the version was published.
    row_count bigint,
    bytes bigint,
    content_hash numeric,
    first_hash bytea,
    last_hash bytea,
    -- What the first block names as its parent; NULL for the first block of all.
    parent_hash bytea,
    -- Each file: name, bytes, rows, content, SHA-256, first and last block.
    files jsonb,
    -- Files of the same kind that say in which block an id is.
    lookups jsonb NOT NULL DEFAULT '[]',
    created_at timestamptz NOT NULL DEFAULT now(),
    published_at timestamptz,
    -- The move that took the pointer away.
    retired_move bigint,
    retired_at timestamptz,
    PRIMARY KEY (dataset, partition_key, version),
    CHECK ((state = 'writing') = (lease_expires_at IS NOT NULL)),
    CHECK ((state = 'retired') = (retired_move IS NOT NULL)),
    CHECK (state NOT IN ('current', 'retired') OR
           (row_count IS NOT NULL AND content_hash IS NOT NULL AND last_hash IS NOT NULL
            AND files IS NOT NULL AND published_at IS NOT NULL))
);
CREATE UNIQUE INDEX lake_versions_current
    ON {app}.lake_versions (dataset, partition_key) WHERE state = 'current';
CREATE UNIQUE INDEX lake_versions_first_number
    ON {app}.lake_versions (dataset, first_number) WHERE state = 'current';
CREATE UNIQUE INDEX lake_versions_writing
    ON {app}.lake_versions (dataset, partition_key) WHERE state = 'writing';
CREATE INDEX lake_versions_garbage
    ON {app}.lake_versions (version) WHERE state IN ('retired', 'abandoned');

-- Who reads files: what was current after this many moves is kept for him.
CREATE TABLE {app}.lake_pins (
    id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    holder text NOT NULL,
    move bigint NOT NULL,
    created_at timestamptz NOT NULL DEFAULT now(),
    -- A reader that died keeps nothing after this.
    expires_at timestamptz NOT NULL
);
