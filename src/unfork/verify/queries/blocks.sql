-- name: verify_snapshot
-- All that follows in the transaction sees one moment of the store.
SET TRANSACTION ISOLATION LEVEL REPEATABLE READ READ ONLY;

-- name: verify_chain
-- What the store holds of its chain.
SELECT * FROM {raw}.chain;

-- name: verify_scopes
-- What was asked of the source for the blocks of a span.
SELECT first, last, scope FROM {raw}.spans
WHERE first <= %(last)s AND last >= %(first)s
ORDER BY first;

-- name: verify_below
-- What the block above needs to know of a block.
SELECT number, hash, total_difficulty, base_fee_per_gas, withdrawals_root, blob_gas_used,
       excess_blob_gas, parent_beacon_block_root, requests_hash
FROM {raw}.blocks WHERE number = %(number)s;

-- name: verify_refs
-- The hashes held in a span.
SELECT number, hash FROM {raw}.blocks WHERE number BETWEEN %(first)s AND %(last)s;

-- name: verify_fetch
-- The next rows of an open cursor.
FETCH FORWARD {rows} FROM {cursor};

-- name: verify_blocks
-- Opens the blocks of a span, ascending; times as exact seconds, fractions included.
DECLARE verify_blocks NO SCROLL CURSOR FOR
SELECT number, hash, parent_hash, extract(epoch FROM timestamp) AS timestamp, nonce, mix_hash,
       sha3_uncles, logs_bloom, transactions_root, state_root, receipts_root, miner, difficulty,
       total_difficulty, size, extra_data, gas_limit, gas_used, base_fee_per_gas, withdrawals_root, blob_gas_used,
       excess_blob_gas, parent_beacon_block_root, requests_hash, transaction_count,
       number AS block_number
FROM {raw}.blocks
WHERE number BETWEEN %(first)s AND %(last)s
ORDER BY number;

-- name: verify_transactions
-- Opens the transactions of a span in chain order.
DECLARE verify_transactions NO SCROLL CURSOR FOR
SELECT block_number, block_hash, extract(epoch FROM block_timestamp) AS block_timestamp,
       transaction_index, hash, transaction_type, nonce, from_address, to_address, value, gas,
       gas_price, max_fee_per_gas, max_priority_fee_per_gas, max_fee_per_blob_gas, blob_versioned_hashes,
       access_list, authorization_list, chain_id, v, r, s, input, status, root, gas_used,
       cumulative_gas_used, effective_gas_price, contract_address, blob_gas_used, blob_gas_price,
       payload_hash, payload_ref
FROM {raw}.transactions
WHERE block_number BETWEEN %(first)s AND %(last)s
ORDER BY block_number, transaction_index;

-- name: verify_logs
-- Opens the logs of a span in chain order.
DECLARE verify_logs NO SCROLL CURSOR FOR
SELECT block_number, block_hash, extract(epoch FROM block_timestamp) AS block_timestamp,
       transaction_hash, transaction_index, log_index, address, topic0, topic1, topic2, topic3,
       data, payload_hash, payload_ref
FROM {raw}.logs
WHERE block_number BETWEEN %(first)s AND %(last)s
ORDER BY block_number, log_index;

-- name: verify_withdrawals
-- Opens the withdrawals of a span in chain order.
DECLARE verify_withdrawals NO SCROLL CURSOR FOR
SELECT block_number, block_hash, extract(epoch FROM block_timestamp) AS block_timestamp,
       withdrawal_index, "index", validator_index, address, amount
FROM {raw}.withdrawals
WHERE block_number BETWEEN %(first)s AND %(last)s
ORDER BY block_number, withdrawal_index;

-- name: verify_block_lookup
-- Opens the lookup rows that name blocks of a span.
DECLARE verify_block_lookup NO SCROLL CURSOR FOR
SELECT id, block_number, extract(epoch FROM timestamp) AS timestamp
FROM {raw}.block_lookup
WHERE block_number BETWEEN %(first)s AND %(last)s
ORDER BY block_number;

-- name: verify_tx_lookup
-- Opens the lookup rows that name transactions of a span.
DECLARE verify_tx_lookup NO SCROLL CURSOR FOR
SELECT id, block_number, transaction_index, extract(epoch FROM timestamp) AS timestamp
FROM {raw}.tx_lookup
WHERE block_number BETWEEN %(first)s AND %(last)s
ORDER BY block_number;

-- name: verify_traces
-- Opens the traces of a span in chain order; of values only those that repeat a transaction's.
DECLARE verify_traces NO SCROLL CURSOR FOR
SELECT block_number, block_hash, extract(epoch FROM block_timestamp) AS block_timestamp,
       transaction_hash, transaction_index, trace_index, trace_address, trace_type, call_type,
       reward_type, gas, subtraces, error, status,
       CASE WHEN trace_address = '' THEN from_address END AS from_address,
       CASE WHEN trace_address = '' THEN to_address END AS to_address,
       CASE WHEN trace_address = '' THEN value END AS value,
       CASE WHEN trace_address = '' THEN input END AS input,
       payload_hash, payload_ref, output_payload_hash, output_payload_ref
FROM {raw}.traces
WHERE block_number BETWEEN %(first)s AND %(last)s
ORDER BY block_number, trace_index;

-- name: verify_outside
-- One row of each table that lies outside what the store says it holds.
(SELECT 'blocks' AS place, number FROM {raw}.blocks
 WHERE number < %(first)s OR number > %(last)s LIMIT 1)
UNION ALL
(SELECT 'transactions', block_number FROM {raw}.transactions
 WHERE block_number < %(first)s OR block_number > %(last)s LIMIT 1)
UNION ALL
(SELECT 'logs', block_number FROM {raw}.logs
 WHERE block_number < %(first)s OR block_number > %(last)s LIMIT 1)
UNION ALL
(SELECT 'withdrawals', block_number FROM {raw}.withdrawals
 WHERE block_number < %(first)s OR block_number > %(last)s LIMIT 1)
UNION ALL
(SELECT 'traces', block_number FROM {raw}.traces
 WHERE block_number < %(first)s OR block_number > %(last)s LIMIT 1)
UNION ALL
(SELECT 'block_lookup', block_number FROM {raw}.block_lookup
 WHERE block_number < %(first)s OR block_number > %(last)s LIMIT 1)
UNION ALL
(SELECT 'tx_lookup', block_number FROM {raw}.tx_lookup
 WHERE block_number < %(first)s OR block_number > %(last)s LIMIT 1);
