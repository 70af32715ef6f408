-- What tokens create: transfers from the zero address.
SELECT
    block_number,
    block_hash,
    block_timestamp,
    transaction_hash,
    log_index,
    batch_ordinal,
    token_address,
    to_address,
    amount
FROM token_transfers
WHERE from_address = X'0000000000000000000000000000000000000000'
