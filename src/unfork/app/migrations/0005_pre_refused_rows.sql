-- Rows that a job refused are told once a build: what one build refuses another may not.
ALTER TABLE {app}.indexing_errors ADD COLUMN generation_id integer;
ALTER TABLE {app}.indexing_errors DROP CONSTRAINT indexing_errors_once;
ALTER TABLE {app}.indexing_errors ADD CONSTRAINT indexing_errors_once UNIQUE NULLS NOT DISTINCT
    (worker_name, block_number, transaction_id, error_hash, generation_id);
CREATE INDEX indexing_errors_refused
    ON {app}.indexing_errors (generation_id, block_number)
    WHERE generation_id IS NOT NULL AND NOT resolved;
