-- Returns the query by which find_residue reads a table once: rows in which anything is found at all, by one expression
-- over all texts of a row ($6), then what was found in which column. Parameters: $1 tenant, $2 ids, $3 names,
-- $4 possible names, $5 values.
CREATE OR REPLACE FUNCTION residue_query(p_table oid)
RETURNS text
LANGUAGE plpgsql STABLE
AS $$
DECLARE
    v_name text := (SELECT c.relname FROM pg_class c WHERE c.oid = p_table);
    v_key text;
    v_texts text;
    v_other text;
    v_tests text;
BEGIN
    -- The id of a row, where its key is one: other keys may consist of names.
    SELECT min('x.' || quote_ident(a.attname)) INTO v_key FROM pg_index i
    JOIN pg_attribute a ON a.attrelid = p_table AND a.attnum = ANY (i.indkey) AND a.attname <> 'tenant_id'
    WHERE i.indrelid = p_table AND i.indisprimary
    HAVING count(*) = 1 AND bool_and(a.atttypid = 'uuid'::regtype);
    WITH columns AS (
        SELECT a.attnum, a.attname::text AS name, a.atttypid::regtype::text AS type,
               format(CASE WHEN a.atttypid = 'bytea'::regtype THEN 'spelled_bytes(x.%I)' ELSE 'x.%I::text' END,
                      a.attname) AS spelled,
               -- JSON that only we write.
               v_name IN ('recall_traces', 'jobs') OR (v_name = 'memory_history' AND a.attname = 'proposal') AS ours
        FROM pg_attribute a WHERE a.attrelid = p_table AND a.attname = ANY (residue_columns(p_table))
    ), tests AS (
        SELECT c.attnum, c.name, t.kind, t.test
        FROM columns c
        CROSS JOIN LATERAL (VALUES
            ('id', CASE
                WHEN c.type = 'uuid' THEN format('x.%I = ANY ($2)', c.name)
                WHEN c.type = 'uuid[]' THEN format('x.%I && $2', c.name)
                WHEN c.type IN ('json', 'jsonb') AND c.ours THEN format('contains_ids(%s, $2)', c.spelled) END),
            ('name', CASE WHEN c.type NOT IN ('uuid', 'uuid[]') THEN
                format('(fold_name(%s) ~ $3', c.spelled)
                -- By its decoded values where JSON escapes them.
                || CASE WHEN c.type IN ('json', 'jsonb')
                        THEN format(' OR (position(''\'' IN %s) > 0 AND json_matches(x.%I::jsonb, $3))',
                                    c.spelled, c.name) ELSE '' END
                || CASE WHEN c.type IN ('json', 'jsonb') AND NOT c.ours AND v_name <> 'audit_log'
                        THEN format(' OR contains_ids(%s, $2)', c.spelled) ELSE '' END || ')' END),
            ('possible', CASE WHEN c.type NOT IN ('uuid', 'uuid[]', 'tsvector') THEN
                format('(fold_name(%1$s) ~ $4 AND fold_name(%1$s) ~ $3 IS NOT TRUE)', c.spelled) END),
            ('value', CASE WHEN c.type NOT IN ('uuid', 'uuid[]') THEN
                format('(fold_name(%s) ~ $5', c.spelled)
                || CASE WHEN c.type IN ('json', 'jsonb')
                        THEN format(' OR (position(''\'' IN %s) > 0 AND json_matches(x.%I::jsonb, $5))',
                                    c.spelled, c.name) ELSE '' END || ')' END)) t(kind, test)
        WHERE t.test IS NOT NULL
    )
    SELECT string_agg(format('(%L, %L, %s)', t.kind, t.name, t.test), ', ' ORDER BY t.attnum),
           (SELECT string_agg(c.spelled, ', ' ORDER BY c.attnum) FROM columns c WHERE c.type NOT IN ('uuid', 'uuid[]')),
           (SELECT string_agg(CASE WHEN c.type = 'uuid' THEN format(' OR x.%I = ANY ($2)', c.name)
                                   WHEN c.type = 'uuid[]' THEN format(' OR x.%I && $2', c.name)
                                   ELSE format(' OR position(''\'' IN %1$s) > 0 OR contains_ids(%1$s, $2)', c.spelled)
                              END, '' ORDER BY c.attnum)
            FROM columns c WHERE c.type IN ('uuid', 'uuid[]', 'json', 'jsonb'))
    INTO v_tests, v_texts, v_other FROM tests t;
    RETURN format(
        'WITH found AS MATERIALIZED (SELECT x.* FROM %1$I x WHERE x.tenant_id = $1 AND (%2$s%3$s)) '
        'SELECT t.kind, %1$L, t.name, count(*), (array_agg(%4$s ORDER BY %4$s))[:50] '
        'FROM found x CROSS JOIN LATERAL (VALUES %5$s) t(kind, name, found) WHERE t.found GROUP BY t.kind, t.name',
        v_name, coalesce('fold_name(concat_ws('' '', ' || v_texts || ')) ~ $6', 'false'), v_other,
        coalesce(v_key, 'NULL::uuid'), v_tests);
END
$$;
