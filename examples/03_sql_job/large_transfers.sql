-- Transfers of a thousand units and more. Numbers of 256 bits are 32 bytes, most significant first,
-- so they compare as the numbers they are.
SELECT
    block_number,
    block_hash,
    block_timestamp,
    transaction_hash,
    log_index,
    batch_ordinal,
    token_address,
    from_address,
    to_address,
    amount
FROM token_transfers
WHERE amount >= X'00000000000000000000000000000000000000000000000000000000000003e8'
