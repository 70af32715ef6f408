-- Signed numbers wider than 64 bits are 36 bytes in two's complement: these are at least 2^200.
SELECT block_number, block_hash, log_index, address AS pool, sender, amount0
FROM pool_swapped
WHERE amount0 >= unhex(concat(repeat('00', 10), '01', repeat('00', 25)))
  AND amount0 < unhex('80')
