-- When the source's tip was last seen, and what tells this store's payloads from another's.
ALTER TABLE {raw}.chain
    ADD COLUMN head_at timestamptz,
    ADD COLUMN store_id uuid NOT NULL DEFAULT gen_random_uuid();
