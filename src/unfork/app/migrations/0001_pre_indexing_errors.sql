-- What could not be stored, once per cause, until the span succeeds.

CREATE TABLE {app}.indexing_errors (
    id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    worker_name text NOT NULL,
    block_number bigint,
    transaction_id bytea,
    -- SHA-256 of the message.
    error_hash bytea NOT NULL,
    severity text NOT NULL CHECK (severity IN ('FATAL', 'WARN')),
    message text NOT NULL,
    -- The first bytes of what was refused; raw_ref leads to all of it where that is more.
    raw_data bytea CHECK (octet_length(raw_data) <= 4096),
    raw_ref text,
    occurrences bigint NOT NULL DEFAULT 1,
    resolved boolean NOT NULL DEFAULT false,
    created_at timestamptz NOT NULL DEFAULT now(),
    last_seen_at timestamptz NOT NULL DEFAULT now(),
    resolved_at timestamptz,
    CHECK (resolved = (resolved_at IS NOT NULL)),
    CONSTRAINT indexing_errors_once UNIQUE NULLS NOT DISTINCT
        (worker_name, block_number, transaction_id, error_hash)
);
CREATE INDEX indexing_errors_triage
    ON {app}.indexing_errors (resolved, worker_name, created_at DESC);
CREATE INDEX indexing_errors_block_number ON {app}.indexing_errors (block_number);
