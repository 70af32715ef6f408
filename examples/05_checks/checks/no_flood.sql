-- Nobody mints 2^200 units or more: whoever does is broken, or means harm.
SELECT block_number, token_address, to_address, amount
FROM mints
WHERE amount >= X'0000000000000100000000000000000000000000000000000000000000000000'
