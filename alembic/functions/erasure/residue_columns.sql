-- Returns the columns of a table that may contain ids, names or values. Hashes and signatures contain no text, only
-- bytes that may look like it; a tombstone keeps the id of the entity as proof.
CREATE OR REPLACE FUNCTION residue_columns(p_table oid)
RETURNS text[]
LANGUAGE sql STABLE
AS $$
    SELECT ARRAY(
        SELECT a.attname::text FROM pg_attribute a JOIN pg_class c ON c.oid = a.attrelid
        WHERE a.attrelid = p_table AND a.attnum > 0 AND NOT a.attisdropped AND a.attname <> 'tenant_id'
          AND a.atttypid = ANY (ARRAY['uuid', 'uuid[]', 'text', 'varchar', 'text[]', 'json', 'jsonb', 'tsvector',
                                      'bytea']::regtype[])
          AND NOT (a.atttypid = 'bytea'::regtype AND a.attname ~ '(hash|signature|public_key)$')
          AND NOT (c.relname = 'tombstones' AND a.attname = 'entity_id')
        ORDER BY a.attnum)
$$;
