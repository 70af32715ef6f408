-- What contracts answered, so that nobody asks twice: a run that is tried again, another job.
CREATE TABLE {app}.contract_reads (
    address bytea NOT NULL,
    -- Selector and arguments.
    data bytea NOT NULL,
    -- The block after which it was asked. A fork has other hashes: it never meets this answer.
    block_number bigint NOT NULL,
    block_hash bytea NOT NULL,
    -- Of the contract's code, where the answer is good for as long as that stays the same.
    code_hash bytea,
    -- False where the contract refused.
    ok boolean NOT NULL,
    output bytea NOT NULL,
    read_at timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (address, data, block_hash)
);
CREATE INDEX contract_reads_block_number ON {app}.contract_reads (block_number);
CREATE INDEX contract_reads_code_hash
    ON {app}.contract_reads (address, data, code_hash) WHERE code_hash IS NOT NULL;
CREATE INDEX contract_reads_read_at ON {app}.contract_reads (read_at) WHERE code_hash IS NULL;
