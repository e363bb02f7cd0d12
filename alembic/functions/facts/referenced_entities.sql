-- Returns those of these entities of a project that something refers to: a row of any table with a foreign key to
-- entities, tables of later revisions included, or a tombstone, which has no foreign key. Runs with the rights of its
-- caller.
CREATE OR REPLACE FUNCTION referenced_entities(p_tenant text, p_project text, p_entities uuid[])
RETURNS uuid[]
LANGUAGE plpgsql VOLATILE
AS $$
DECLARE
    v_key record;
    v_some uuid[];
    v_found uuid[];
BEGIN
    v_found := ARRAY(
        SELECT t.entity_id FROM tombstones t WHERE t.tenant_id = p_tenant AND t.entity_id = ANY (p_entities));
    FOR v_key IN
        SELECT c.conrelid::regclass AS name, a.attname AS referrer
        FROM pg_constraint c
        JOIN pg_attribute a ON a.attrelid = c.conrelid AND a.attnum = ANY (c.conkey) AND a.attname <> 'tenant_id'
        WHERE c.contype = 'f' AND c.confrelid = 'public.graph_entities'::regclass
        ORDER BY c.conname
    LOOP
        EXECUTE format(
            'SELECT array_agg(DISTINCT x.%2$I) FROM %1$s x '
            'WHERE x.tenant_id = $1 AND x.project_id = $2 AND x.%2$I = ANY ($3)', v_key.name, v_key.referrer)
        INTO v_some USING p_tenant, p_project, p_entities;
        v_found := v_found || coalesce(v_some, '{}');
    END LOOP;
    RETURN v_found;
END
$$;
