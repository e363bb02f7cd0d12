-- Searches every column of every tenant table, those of later revisions included, for ids, names and values that must
-- not be there any more: in text, lists, JSON, terms and bytes. Returns where something was found and how often, and
-- one row of kind `looked` with how many columns were searched. In JSON that only we write an id counts as an id,
-- elsewhere as a name, since callers may have written it. The audit log consists of ids and keeps them.
-- Runs with the rights of its caller.
CREATE OR REPLACE FUNCTION find_residue(p_tenant text, p_ids uuid[], p_pattern text, p_values text)
RETURNS TABLE (kind text, table_name text, column_name text, hits bigint)
LANGUAGE plpgsql VOLATILE
AS $$
DECLARE
    v_column record;
    v_looked bigint := 0;
    v_words text;
    v_ours boolean;
BEGIN
    FOR v_column IN
        SELECT c.relname AS table_name, a.attname AS column_name, a.atttypid::regtype::text AS type
        FROM pg_class c
        JOIN pg_attribute a ON a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped
        WHERE c.relnamespace = 'public'::regnamespace AND c.relkind IN ('r', 'p') AND NOT c.relispartition
          AND EXISTS (SELECT FROM pg_attribute t
                      WHERE t.attrelid = c.oid AND t.attname = 'tenant_id' AND NOT t.attisdropped)
          -- A tombstone keeps the id of the entity as proof.
          AND NOT (c.relname = 'tombstones' AND a.attname = 'entity_id')
        ORDER BY c.relname, a.attnum
    LOOP
        kind := CASE WHEN v_column.type IN ('uuid', 'uuid[]') THEN 'id'
                     WHEN v_column.type IN ('text', 'character varying', 'text[]', 'json', 'jsonb', 'tsvector', 'bytea')
                     THEN 'name' END;
        -- Hashes and signatures contain no text, only bytes that may look like it.
        CONTINUE WHEN kind IS NULL OR v_column.column_name = 'tenant_id'
                   OR (v_column.type = 'bytea' AND v_column.column_name ~ '(hash|signature|public_key)$');
        table_name := v_column.table_name;
        column_name := v_column.column_name;
        v_looked := v_looked + 1;
        v_ours := table_name IN ('recall_traces', 'jobs')
            OR (table_name = 'memory_history' AND column_name = 'proposal');
        -- Names first; a value that is found may have been written about somebody else.
        FOREACH v_words SLICE 0 IN ARRAY CASE
            WHEN kind = 'id' THEN ARRAY['id']
            WHEN v_column.type IN ('json', 'jsonb') AND v_ours THEN ARRAY['id', 'name', 'value']
            ELSE ARRAY['name', 'value'] END
        LOOP
            kind := v_words;
            EXECUTE format(
                CASE WHEN v_column.type = 'uuid' THEN
                    'SELECT count(*) FROM %1$I x WHERE x.tenant_id = $1 AND x.%2$I = ANY ($2)'
                WHEN v_column.type = 'uuid[]' THEN
                    'SELECT count(*) FROM %1$I x WHERE x.tenant_id = $1 AND x.%2$I && $2'
                WHEN v_column.type = 'bytea' THEN
                    'SELECT count(*) FROM %1$I x WHERE x.tenant_id = $1 '
                    'AND fold_name(spelled_bytes(x.%2$I)) ~ $3'
                WHEN kind = 'id' THEN
                    'SELECT count(*) FROM %1$I x WHERE x.tenant_id = $1 AND contains_ids(x.%2$I::text, $2)'
                -- By its decoded values where JSON escapes them.
                WHEN v_column.type IN ('json', 'jsonb') THEN
                    'SELECT count(*) FROM %1$I x WHERE x.tenant_id = $1 AND (fold_name(x.%2$I::text) ~ $3 '
                    'OR (position(''\'' IN x.%2$I::text) > 0 AND json_matches(x.%2$I::jsonb, $3))'
                    || CASE WHEN kind = 'name' AND NOT v_ours AND v_column.table_name <> 'audit_log'
                       THEN ' OR contains_ids(x.%2$I::text, $2))' ELSE ')' END
                ELSE
                    'SELECT count(*) FROM %1$I x WHERE x.tenant_id = $1 '
                    'AND fold_name(x.%2$I::text) ~ $3'
                END, v_column.table_name, v_column.column_name)
            INTO hits USING p_tenant, p_ids, CASE kind WHEN 'value' THEN p_values ELSE p_pattern END;
            IF hits > 0 THEN
                RETURN NEXT;
            END IF;
        END LOOP;
    END LOOP;
    kind := 'looked';
    table_name := NULL;
    column_name := NULL;
    hits := v_looked;
    RETURN NEXT;
END
$$;
