-- Everything derived from a chain: which blocks it is derived from, the jobs and the builds of their
-- datasets, how far each has come, what has to be done again, who does it, and how to undo it.

-- How far the app side has followed the raw journal.
CREATE TABLE {app}.follower (
    -- There is one row: the schema is the chain.
    is_only boolean PRIMARY KEY DEFAULT true CHECK (is_only),
    -- The last journal entry applied.
    seq bigint NOT NULL DEFAULT 0,
    epoch bigint NOT NULL DEFAULT 1,
    -- The first block that the raw store holds.
    first_number bigint,
    position_number bigint,
    position_hash bytea,
    floor_number bigint,
    floor_hash bytea,
    -- History of blocks at or below this was pruned.
    history_floor bigint,
    updated_at timestamptz NOT NULL DEFAULT now(),
    CHECK ((position_number IS NULL) = (position_hash IS NULL)),
    CHECK ((floor_number IS NULL) = (floor_hash IS NULL)),
    CHECK (floor_number IS NULL OR floor_number <= position_number)
) WITH (fillfactor = 20);
INSERT INTO {app}.follower DEFAULT VALUES;

-- The blocks of the chain from the floor up to the position.
CREATE TABLE {app}.refs (
    number bigint PRIMARY KEY,
    hash bytea NOT NULL
);

-- The blocks of each UTC day, the highest as far as it is known.
CREATE TABLE {app}.days (
    day date PRIMARY KEY,
    first_number bigint NOT NULL,
    last_number bigint NOT NULL CHECK (last_number >= first_number)
);
CREATE INDEX days_last_number ON {app}.days (last_number);

-- Blocks off the chain that rows of append datasets still name; kept as long as those rows.
CREATE TABLE {app}.orphans (
    number bigint NOT NULL,
    hash bytea NOT NULL,
    PRIMARY KEY (number, hash)
);

CREATE TABLE {app}.jobs (
    job text PRIMARY KEY,
    job_id uuid NOT NULL DEFAULT gen_random_uuid() UNIQUE,
    -- The dataset that this job alone writes.
    dataset text NOT NULL UNIQUE,
    -- The datasets it reads.
    inputs text[] NOT NULL,
    is_paused boolean NOT NULL DEFAULT false,
    created_at timestamptz NOT NULL DEFAULT now(),
    updated_at timestamptz NOT NULL DEFAULT now()
);

-- The builds of each dataset: one is served, another may be built beside it.
CREATE TABLE {app}.generations (
    id integer GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    dataset text NOT NULL,
    job text NOT NULL REFERENCES {app}.jobs,
    generation integer NOT NULL,
    table_name text NOT NULL UNIQUE,
    -- What the dataset is: columns, key, strategy, mode, rules.
    declaration jsonb NOT NULL,
    config_hash text NOT NULL,
    schema_hash text NOT NULL,
    -- The first block it is computed from.
    first_number bigint NOT NULL,
    state text NOT NULL CHECK (state IN ('building', 'served', 'retired')),
    created_at timestamptz NOT NULL DEFAULT now(),
    served_at timestamptz,
    retired_at timestamptz,
    UNIQUE (dataset, generation)
);
CREATE UNIQUE INDEX generations_served ON {app}.generations (dataset) WHERE state = 'served';
CREATE UNIQUE INDEX generations_building ON {app}.generations (dataset) WHERE state = 'building';

-- The watermark of each build: number and hash of the last block up to which it is complete.
CREATE TABLE {app}.dataset_cursors (
    generation_id integer PRIMARY KEY REFERENCES {app}.generations ON DELETE CASCADE,
    dataset text NOT NULL,
    job_id uuid NOT NULL REFERENCES {app}.jobs (job_id),
    cursor_column text NOT NULL DEFAULT 'block_number',
    cursor_value bigint,
    cursor_hash bytea,
    -- Changes of blocks at or below this left no history.
    history_floor bigint,
    updated_at timestamptz NOT NULL DEFAULT now(),
    CHECK ((cursor_value IS NULL) = (cursor_hash IS NULL))
) WITH (fillfactor = 20);

-- The name that the seeds give to the contiguous progress of a worker.
CREATE VIEW {app}.indexing_checkpoints AS
SELECT generation.job AS worker_name, cursor.cursor_value AS block_number,
       cursor.cursor_hash AS block_hash, cursor.updated_at
FROM {app}.generations AS generation
JOIN {app}.dataset_cursors AS cursor ON cursor.generation_id = generation.id
WHERE generation.state = 'served';

-- What was computed: a span of blocks, or a partition, with what it was computed with.
CREATE TABLE {app}.partition_versions (
    generation_id integer NOT NULL REFERENCES {app}.generations ON DELETE CASCADE,
    dataset text NOT NULL,
    partition_key text NOT NULL,
    version bigint GENERATED ALWAYS AS IDENTITY,
    config_hash text NOT NULL,
    schema_hash text NOT NULL,
    location text NOT NULL,
    row_count bigint,
    bytes bigint,
    -- The blocks it was computed from, and the hashes that link it to its neighbours.
    first_number bigint NOT NULL,
    last_number bigint NOT NULL CHECK (last_number >= first_number),
    first_hash bytea,
    last_hash bytea,
    parent_hash bytea,
    -- The sum of the hashes of its rows, whatever their order.
    content_hash numeric,
    is_current boolean NOT NULL DEFAULT true,
    -- False once a block it was computed from, or a row it read, is no longer what it was.
    is_valid boolean NOT NULL DEFAULT true,
    published_at timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (generation_id, partition_key, version)
);
CREATE UNIQUE INDEX partition_versions_current
    ON {app}.partition_versions (generation_id, partition_key, first_number) WHERE is_current;
CREATE INDEX partition_versions_last_number
    ON {app}.partition_versions (generation_id, last_number) WHERE is_current;
CREATE INDEX partition_versions_invalid
    ON {app}.partition_versions (generation_id, first_number) WHERE is_current AND NOT is_valid;

-- What has to be done again, and why.
CREATE TABLE {app}.data_invalidations (
    id uuid PRIMARY KEY DEFAULT gen_random_uuid(),
    dataset text NOT NULL,
    scope text NOT NULL CHECK (scope IN ('partition', 'row_range')),
    partition_key text,
    row_filter jsonb,
    reason text NOT NULL CHECK (reason IN ('reorg', 'correction', 'manual', 'schema_change')),
    source_event jsonb,
    created_at timestamptz NOT NULL DEFAULT now(),
    -- The jobs that had to, once all of them have.
    processed_by uuid[],
    processed_at timestamptz
);
CREATE INDEX data_invalidations_open
    ON {app}.data_invalidations (dataset) WHERE processed_at IS NULL;

-- Which job has which blocks to do again; what is done is cut off and marked.
CREATE TABLE {app}.invalidation_spans (
    id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    invalidation_id uuid NOT NULL REFERENCES {app}.data_invalidations ON DELETE CASCADE,
    generation_id integer NOT NULL REFERENCES {app}.generations ON DELETE CASCADE,
    job text NOT NULL,
    first_number bigint NOT NULL,
    last_number bigint NOT NULL CHECK (last_number >= first_number),
    created_at timestamptz NOT NULL DEFAULT now(),
    processed_at timestamptz
);
CREATE INDEX invalidation_spans_open
    ON {app}.invalidation_spans (generation_id, first_number) WHERE processed_at IS NULL;
CREATE INDEX invalidation_spans_invalidation ON {app}.invalidation_spans (invalidation_id);

-- Who computes what. A lease of kind live or backfill stands for blocks that come to be covered, and
-- stays when it is completed ahead of the watermark; one of kind recompute covers nothing new.
CREATE SEQUENCE {app}.lease_tokens;
CREATE TABLE {app}.worker_leases (
    id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    generation_id integer NOT NULL REFERENCES {app}.generations ON DELETE CASCADE,
    job text NOT NULL,
    kind text NOT NULL CHECK (kind IN ('live', 'backfill', 'recompute')),
    span int8range NOT NULL CHECK (NOT isempty(span)),
    status text NOT NULL CHECK (status IN ('ACTIVE', 'COMPLETED', 'FAILED')),
    -- How often it failed.
    attempt integer NOT NULL DEFAULT 0,
    -- Whoever writes must have this one; every claim draws another.
    token bigint NOT NULL UNIQUE,
    leased_by text NOT NULL,
    lease_expires_at timestamptz,
    -- A failed one is not claimed again before this.
    not_before timestamptz,
    config_hash text NOT NULL,
    -- Of a completed one: the parent of its first block, and its last block.
    parent_hash bytea,
    last_hash bytea,
    error text,
    created_at timestamptz NOT NULL DEFAULT now(),
    updated_at timestamptz NOT NULL DEFAULT now(),
    CHECK ((status = 'ACTIVE') = (lease_expires_at IS NOT NULL)),
    -- Ranges of one number stand for the build, so that no extension is needed.
    CONSTRAINT worker_leases_covered_once EXCLUDE USING gist
        (int4range(generation_id, generation_id, '[]') WITH &&, span WITH &&)
        WHERE (kind <> 'recompute'),
    CONSTRAINT worker_leases_open_once EXCLUDE USING gist
        (int4range(generation_id, generation_id, '[]') WITH &&, span WITH &&)
        WHERE (status <> 'COMPLETED')
);
CREATE UNIQUE INDEX worker_leases_one_live
    ON {app}.worker_leases (generation_id) WHERE kind = 'live' AND status = 'ACTIVE';
CREATE INDEX worker_leases_status ON {app}.worker_leases (status, lease_expires_at);

-- What was run, and how it ended.
CREATE TABLE {app}.runs (
    id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    job text NOT NULL,
    dataset text NOT NULL,
    generation_id integer NOT NULL,
    first_number bigint NOT NULL,
    last_number bigint NOT NULL,
    kind text NOT NULL,
    mode text NOT NULL,
    reason text NOT NULL,
    -- The rows of invalidation_spans it was to process.
    invalidations bigint[] NOT NULL DEFAULT '{}',
    config_hash text NOT NULL,
    token bigint NOT NULL,
    worker_name text NOT NULL,
    outcome text NOT NULL CHECK (outcome IN ('committed', 'discarded', 'failed', 'expired')),
    row_count bigint,
    error text,
    started_at timestamptz,
    finished_at timestamptz NOT NULL DEFAULT now()
);
CREATE INDEX runs_job ON {app}.runs (job, id);

-- The rows of any table before they were changed near the head, to undo changes by.
CREATE TABLE {app}.history (
    id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    block_number bigint NOT NULL,
    -- The order of the changes within their block.
    seq bigint NOT NULL,
    -- With its schema.
    table_name text NOT NULL,
    op text NOT NULL CHECK (op IN ('INSERT', 'UPDATE', 'DELETE')),
    -- Every value as Postgres writes it as text: nothing is rounded.
    pk jsonb NOT NULL,
    prev_value jsonb,
    CHECK ((op = 'INSERT') = (prev_value IS NULL))
);
CREATE INDEX history_block_number ON {app}.history (block_number);
