SELECT moved.block_number, moved.block_hash, moved.log_index, moved.token_address,
       moved.to_address, balance.value AS balance, balance.ok, exponent.value AS decimals,
       exponent.remark, length(exponent.output) AS output_bytes
FROM token_transfers AS moved
LEFT JOIN balance
  ON balance.block_number = moved.block_number
 AND balance.address = moved.token_address
 AND balance.to_address = moved.to_address
LEFT JOIN exponent
  ON exponent.block_number = moved.block_number
 AND exponent.address = moved.token_address
