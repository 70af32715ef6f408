-- The raw tables of an EVM chain: the chain row, the journal, the datasets with their orphaned
-- counterparts, the lookups and the payload records. Hashes are bytea, 256-bit numbers numeric(78,0).

CREATE TABLE {raw}.chain (
    -- There is one row: the schema is the chain.
    is_only boolean PRIMARY KEY DEFAULT true CHECK (is_only),
    name text NOT NULL,
    family text NOT NULL,
    chain_id numeric(78,0),
    epoch bigint NOT NULL DEFAULT 1,
    token bigint NOT NULL DEFAULT 0,
    seq bigint NOT NULL DEFAULT 0,
    first_number bigint,
    position_number bigint,
    position_hash bytea,
    floor_number bigint,
    floor_hash bytea,
    finalized_seen bigint,
    head_number bigint,
    head_hash bytea,
    updated_at timestamptz NOT NULL DEFAULT now(),
    CHECK ((position_number IS NULL) = (position_hash IS NULL)),
    CHECK ((floor_number IS NULL) = (floor_hash IS NULL)),
    CHECK ((head_number IS NULL) = (head_hash IS NULL)),
    CHECK (position_number IS NULL OR position_number >= first_number),
    CHECK (floor_number IS NULL OR floor_number <= position_number)
) WITH (fillfactor = 20);

-- The name the seeds give to the position of raw ingestion.
CREATE VIEW {raw}.indexing_checkpoints AS
SELECT 'raw_ingester' AS worker_name, position_number AS block_number,
       position_hash AS block_hash, updated_at
FROM {raw}.chain;

CREATE TABLE {raw}.journal (
    seq bigint PRIMARY KEY,
    epoch bigint NOT NULL,
    kind text NOT NULL CHECK (kind IN ('commit', 'unwind')),
    first bigint NOT NULL,
    last bigint NOT NULL CHECK (last >= first),
    -- The position afterwards; NULL when an unwind removed everything.
    ref_number bigint,
    ref_hash bytea,
    -- Of a commit: the parent of its first block; NULL for the chain's very first block.
    parent_hash bytea,
    -- Of an unwind: the tips before it and, where known, of the other side.
    fork jsonb,
    at timestamptz NOT NULL DEFAULT now(),
    CHECK ((ref_number IS NULL) = (ref_hash IS NULL)),
    CHECK (kind = 'unwind' OR ref_number = last)
);

-- What was asked of the source for which blocks, neighbours with one scope joined.
CREATE TABLE {raw}.spans (
    first bigint PRIMARY KEY,
    last bigint NOT NULL CHECK (last >= first),
    scope_digest text NOT NULL,
    scope jsonb NOT NULL
);

-- Large values, stored once by their SHA-256 in the payload store.
CREATE TABLE {raw}.payloads (
    hash bytea PRIMARY KEY,
    ref text NOT NULL,
    size bigint NOT NULL,
    created_at timestamptz NOT NULL DEFAULT now(),
    touched_at timestamptz NOT NULL DEFAULT now()
);
CREATE INDEX payloads_touched_at ON {raw}.payloads (touched_at);

CREATE TABLE {raw}.blocks (
    number bigint NOT NULL,
    hash bytea NOT NULL,
    parent_hash bytea NOT NULL,
    timestamp timestamptz NOT NULL,
    nonce bytea,
    mix_hash bytea,
    sha3_uncles bytea,
    logs_bloom bytea,
    transactions_root bytea,
    state_root bytea,
    receipts_root bytea,
    miner bytea,
    difficulty numeric(78,0),
    total_difficulty numeric(78,0),
    size bigint,
    extra_data bytea,
    gas_limit bigint,
    gas_used bigint,
    base_fee_per_gas numeric(78,0),
    withdrawals_root bytea,
    blob_gas_used bigint,
    excess_blob_gas bigint,
    parent_beacon_block_root bytea,
    requests_hash bytea,
    transaction_count bigint,
    -- The journal entry that brought the block.
    journal_seq bigint NOT NULL,
    PRIMARY KEY (number)
) PARTITION BY RANGE (number);

CREATE TABLE {raw}.transactions (
    block_number bigint NOT NULL,
    block_hash bytea NOT NULL,
    block_timestamp timestamptz NOT NULL,
    transaction_index bigint NOT NULL,
    hash bytea NOT NULL,
    transaction_type bigint NOT NULL,
    nonce bigint NOT NULL,
    from_address bytea NOT NULL,
    to_address bytea,
    value numeric(78,0) NOT NULL,
    gas bigint NOT NULL,
    gas_price numeric(78,0),
    max_fee_per_gas numeric(78,0),
    max_priority_fee_per_gas numeric(78,0),
    max_fee_per_blob_gas numeric(78,0),
    blob_versioned_hashes bytea[],
    access_list jsonb,
    authorization_list jsonb,
    chain_id numeric(78,0),
    v numeric(78,0),
    r numeric(78,0),
    s numeric(78,0),
    input bytea,
    status bigint,
    root bytea,
    gas_used bigint,
    cumulative_gas_used bigint,
    effective_gas_price numeric(78,0),
    contract_address bytea,
    blob_gas_used bigint,
    blob_gas_price numeric(78,0),
    payload_hash bytea,
    payload_ref text,
    -- A cut summary of the transaction's logs, where DENORMALIZE_EVENTS asks for it.
    events jsonb,
    PRIMARY KEY (block_number, transaction_index),
    CHECK ((payload_hash IS NULL) = (payload_ref IS NULL)),
    CHECK ((input IS NULL) = (payload_hash IS NOT NULL))
) PARTITION BY RANGE (block_number);
-- Few rows have a payload; finding those few must not read the others.
CREATE INDEX transactions_payload_hash ON {raw}.transactions (payload_hash)
    WHERE payload_hash IS NOT NULL;

CREATE TABLE {raw}.logs (
    block_number bigint NOT NULL,
    block_hash bytea NOT NULL,
    block_timestamp timestamptz NOT NULL,
    transaction_hash bytea NOT NULL,
    transaction_index bigint NOT NULL,
    log_index bigint NOT NULL,
    address bytea NOT NULL,
    topic0 bytea,
    topic1 bytea,
    topic2 bytea,
    topic3 bytea,
    data bytea,
    payload_hash bytea,
    payload_ref text,
    PRIMARY KEY (block_number, log_index),
    CHECK ((payload_hash IS NULL) = (payload_ref IS NULL)),
    CHECK ((data IS NULL) = (payload_hash IS NOT NULL))
) PARTITION BY RANGE (block_number);
CREATE INDEX logs_address_block_number ON {raw}.logs (address, block_number);
CREATE INDEX logs_payload_hash ON {raw}.logs (payload_hash) WHERE payload_hash IS NOT NULL;

CREATE TABLE {raw}.traces (
    block_number bigint NOT NULL,
    block_hash bytea NOT NULL,
    block_timestamp timestamptz NOT NULL,
    transaction_hash bytea,
    transaction_index bigint,
    trace_index bigint NOT NULL,
    trace_address text NOT NULL,
    trace_type text NOT NULL,
    call_type text,
    reward_type text,
    from_address bytea,
    to_address bytea,
    value numeric(78,0),
    gas bigint,
    gas_used bigint,
    input bytea,
    output bytea,
    subtraces bigint NOT NULL,
    error text,
    status bigint NOT NULL,
    payload_hash bytea,
    payload_ref text,
    output_payload_hash bytea,
    output_payload_ref text,
    PRIMARY KEY (block_number, trace_index),
    CHECK ((payload_hash IS NULL) = (payload_ref IS NULL)),
    CHECK (input IS NULL OR payload_hash IS NULL),
    CHECK ((output_payload_hash IS NULL) = (output_payload_ref IS NULL)),
    CHECK (output IS NULL OR output_payload_hash IS NULL)
) PARTITION BY RANGE (block_number);
CREATE INDEX traces_payload_hash ON {raw}.traces (payload_hash) WHERE payload_hash IS NOT NULL;
CREATE INDEX traces_output_payload_hash ON {raw}.traces (output_payload_hash)
    WHERE output_payload_hash IS NOT NULL;

CREATE TABLE {raw}.withdrawals (
    block_number bigint NOT NULL,
    block_hash bytea NOT NULL,
    block_timestamp timestamptz NOT NULL,
    withdrawal_index bigint NOT NULL,
    "index" bigint NOT NULL,
    validator_index bigint NOT NULL,
    address bytea NOT NULL,
    amount numeric(78,0) NOT NULL,
    PRIMARY KEY (block_number, withdrawal_index)
) PARTITION BY RANGE (block_number);

-- Rows that a fork took off the chain, with the fork that did it.

CREATE TABLE {raw}.orphaned_blocks (
    LIKE {raw}.blocks,
    -- The journal entry of the fork that orphaned the row.
    unwind_seq bigint NOT NULL,
    PRIMARY KEY (number, unwind_seq)
);

CREATE TABLE {raw}.orphaned_transactions (
    LIKE {raw}.transactions,
    -- The journal entry of the fork that orphaned the row.
    unwind_seq bigint NOT NULL,
    PRIMARY KEY (block_number, unwind_seq, transaction_index)
);
CREATE INDEX orphaned_transactions_payload_hash ON {raw}.orphaned_transactions (payload_hash)
    WHERE payload_hash IS NOT NULL;

CREATE TABLE {raw}.orphaned_logs (
    LIKE {raw}.logs,
    -- The journal entry of the fork that orphaned the row.
    unwind_seq bigint NOT NULL,
    PRIMARY KEY (block_number, unwind_seq, log_index)
);
CREATE INDEX orphaned_logs_payload_hash ON {raw}.orphaned_logs (payload_hash)
    WHERE payload_hash IS NOT NULL;

CREATE TABLE {raw}.orphaned_traces (
    LIKE {raw}.traces,
    -- The journal entry of the fork that orphaned the row.
    unwind_seq bigint NOT NULL,
    PRIMARY KEY (block_number, unwind_seq, trace_index)
);
CREATE INDEX orphaned_traces_payload_hash ON {raw}.orphaned_traces (payload_hash)
    WHERE payload_hash IS NOT NULL;
CREATE INDEX orphaned_traces_output_payload_hash ON {raw}.orphaned_traces (output_payload_hash)
    WHERE output_payload_hash IS NOT NULL;

CREATE TABLE {raw}.orphaned_withdrawals (
    LIKE {raw}.withdrawals,
    -- The journal entry of the fork that orphaned the row.
    unwind_seq bigint NOT NULL,
    PRIMARY KEY (block_number, unwind_seq, withdrawal_index)
);

-- Where an id is found; written in the transaction of the rows. An id may stand in several blocks
-- of a chain, hence the position in the key of tx_lookup.
CREATE TABLE {raw}.tx_lookup (
    id bytea NOT NULL,
    block_number bigint NOT NULL,
    transaction_index bigint NOT NULL,
    timestamp timestamptz NOT NULL,
    PRIMARY KEY (id, block_number, transaction_index)
) PARTITION BY HASH (id);
CREATE INDEX tx_lookup_block_number ON {raw}.tx_lookup (block_number);

CREATE TABLE {raw}.tx_lookup_0 PARTITION OF {raw}.tx_lookup
    FOR VALUES WITH (MODULUS 8, REMAINDER 0);
CREATE TABLE {raw}.tx_lookup_1 PARTITION OF {raw}.tx_lookup
    FOR VALUES WITH (MODULUS 8, REMAINDER 1);
CREATE TABLE {raw}.tx_lookup_2 PARTITION OF {raw}.tx_lookup
    FOR VALUES WITH (MODULUS 8, REMAINDER 2);
CREATE TABLE {raw}.tx_lookup_3 PARTITION OF {raw}.tx_lookup
    FOR VALUES WITH (MODULUS 8, REMAINDER 3);
CREATE TABLE {raw}.tx_lookup_4 PARTITION OF {raw}.tx_lookup
    FOR VALUES WITH (MODULUS 8, REMAINDER 4);
CREATE TABLE {raw}.tx_lookup_5 PARTITION OF {raw}.tx_lookup
    FOR VALUES WITH (MODULUS 8, REMAINDER 5);
CREATE TABLE {raw}.tx_lookup_6 PARTITION OF {raw}.tx_lookup
    FOR VALUES WITH (MODULUS 8, REMAINDER 6);
CREATE TABLE {raw}.tx_lookup_7 PARTITION OF {raw}.tx_lookup
    FOR VALUES WITH (MODULUS 8, REMAINDER 7);

CREATE TABLE {raw}.block_lookup (
    id bytea NOT NULL,
    block_number bigint NOT NULL,
    timestamp timestamptz NOT NULL,
    PRIMARY KEY (id)
) PARTITION BY HASH (id);
CREATE INDEX block_lookup_block_number ON {raw}.block_lookup (block_number);

CREATE TABLE {raw}.block_lookup_0 PARTITION OF {raw}.block_lookup
    FOR VALUES WITH (MODULUS 8, REMAINDER 0);
CREATE TABLE {raw}.block_lookup_1 PARTITION OF {raw}.block_lookup
    FOR VALUES WITH (MODULUS 8, REMAINDER 1);
CREATE TABLE {raw}.block_lookup_2 PARTITION OF {raw}.block_lookup
    FOR VALUES WITH (MODULUS 8, REMAINDER 2);
CREATE TABLE {raw}.block_lookup_3 PARTITION OF {raw}.block_lookup
    FOR VALUES WITH (MODULUS 8, REMAINDER 3);
CREATE TABLE {raw}.block_lookup_4 PARTITION OF {raw}.block_lookup
    FOR VALUES WITH (MODULUS 8, REMAINDER 4);
CREATE TABLE {raw}.block_lookup_5 PARTITION OF {raw}.block_lookup
    FOR VALUES WITH (MODULUS 8, REMAINDER 5);
CREATE TABLE {raw}.block_lookup_6 PARTITION OF {raw}.block_lookup
    FOR VALUES WITH (MODULUS 8, REMAINDER 6);
CREATE TABLE {raw}.block_lookup_7 PARTITION OF {raw}.block_lookup
    FOR VALUES WITH (MODULUS 8, REMAINDER 7);
