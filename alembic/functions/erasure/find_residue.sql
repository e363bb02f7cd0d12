-- Searches every column of every tenant table, those of later revisions included, for ids, names and values that must
-- not be there any more: in text, lists, JSON, terms and bytes. Returns where something was found, how often, and up to
-- 50 ids of the rows: ids, names, values, and what possibly is a name (see name_patterns). One row of kind `looked` has
-- how many columns were searched. In JSON that only we write an id counts as an id, elsewhere as a name, since callers
-- may have written it. The audit log consists of ids and keeps them. Each table is read once.
-- Runs with the rights of its caller.
CREATE OR REPLACE FUNCTION find_residue(
    p_tenant text, p_ids uuid[], p_certain text, p_possible text, p_values text)
RETURNS TABLE (kind text, table_name text, column_name text, hits bigint, ids uuid[])
LANGUAGE plpgsql VOLATILE
SET jit = off
AS $$
#variable_conflict use_column
DECLARE
    v_table record;
    v_looked bigint := 0;
BEGIN
    FOR v_table IN
        SELECT c.oid, c.relname::text AS name FROM pg_class c
        WHERE c.relnamespace = 'public'::regnamespace AND c.relkind IN ('r', 'p') AND NOT c.relispartition
          AND EXISTS (SELECT FROM pg_attribute t
                      WHERE t.attrelid = c.oid AND t.attname = 'tenant_id' AND NOT t.attisdropped)
        ORDER BY c.relname
    LOOP
        CONTINUE WHEN cardinality(residue_columns(v_table.oid)) = 0;
        v_looked := v_looked + cardinality(residue_columns(v_table.oid));
        RETURN QUERY EXECUTE residue_query(v_table.oid)
            USING p_tenant, p_ids, p_certain, p_possible, p_values,
                  nullif(concat_ws('|', p_certain, p_possible, p_values), '');
    END LOOP;
    RETURN QUERY SELECT 'looked', NULL::text, NULL::text, v_looked, NULL::uuid[];
END
$$;
