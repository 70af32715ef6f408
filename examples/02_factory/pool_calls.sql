-- The transactions that go to a pool, once a factory has announced it.
SELECT sent.block_number, sent.block_hash, sent.transaction_index, sent.from_address,
       sent.to_address AS pool
FROM transactions AS sent
LEFT SEMI JOIN pool_pool_created AS made
  ON made.pool = sent.to_address
 AND made.block_number <= sent.block_number
