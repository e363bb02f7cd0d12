-- Returns which tables still have rows of a user, as JSON: of every table with a user, those of later revisions included.
-- Runs with the rights of its caller.
CREATE OR REPLACE FUNCTION user_residue(p_tenant text, p_project text, p_user text)
RETURNS jsonb
LANGUAGE plpgsql STABLE
AS $$
DECLARE
    v_table text;
    v_count bigint;
    v_left jsonb := '[]';
BEGIN
    FOR v_table IN
        SELECT c.relname FROM pg_class c JOIN pg_attribute a ON a.attrelid = c.oid AND a.attname = 'user_id'
        JOIN pg_attribute p ON p.attrelid = c.oid AND p.attname = 'project_id'
        WHERE c.relnamespace = 'public'::regnamespace AND c.relkind IN ('r', 'p') AND NOT c.relispartition
          AND NOT a.attisdropped
        ORDER BY c.relname
    LOOP
        EXECUTE format('SELECT count(*) FROM %I x WHERE x.tenant_id = $1 AND x.user_id = $3 '
                       'AND coalesce(x.project_id, $2) = $2', v_table)
        INTO v_count USING p_tenant, p_project, p_user;
        IF v_count > 0 THEN
            v_left := v_left || jsonb_build_object('table', v_table, 'column', 'user_id', 'rows', v_count);
        END IF;
    END LOOP;
    RETURN v_left;
END
$$;
