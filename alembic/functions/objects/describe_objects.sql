-- Set by which words objects are found and which text of them is embedded, and queue those with another text to be
-- embedded; one without a text loses its vector there. p_rows are their ids, `searched` and `embed_text` as JSON. Of
-- the owner, because objects of every project have the type; the caller has locked them.
CREATE OR REPLACE FUNCTION describe_objects(p_rows json)
RETURNS void
LANGUAGE plpgsql VOLATILE SECURITY DEFINER
SET search_path = pg_catalog, public, pg_temp
AS $$
DECLARE
    v_tenant text := nullif(current_setting('app.tenant_id', true), '');
    v_project text := nullif(current_setting('app.project_id', true), '');
BEGIN
    UPDATE graph_objects o
    SET embed_text = r.embed_text,
        terms = CASE WHEN r.searched THEN object_terms(v_tenant, o.project_id, o.title, o.key, o.labels,
                                                       object_text(o.properties)) ELSE '' END
    FROM json_to_recordset(p_rows) AS r(canonical_id uuid, branch_id uuid, searched boolean, embed_text text)
    WHERE o.tenant_id = v_tenant AND o.canonical_id = r.canonical_id AND o.branch_id = r.branch_id
      AND o.deleted_at IS NULL AND (v_project IS NULL OR o.project_id = v_project);
    PERFORM queue_units(v_tenant, q.project_id, 'object', q.ids)
    FROM (SELECT o.project_id, array_agg(DISTINCT o.canonical_id) AS ids
          FROM json_to_recordset(p_rows) AS r(canonical_id uuid, branch_id uuid, embedded boolean)
          JOIN graph_objects o
            ON o.tenant_id = v_tenant AND o.canonical_id = r.canonical_id AND o.branch_id = r.branch_id
          WHERE r.embedded AND o.project_id IS NOT NULL AND (v_project IS NULL OR o.project_id = v_project)
          GROUP BY o.project_id ORDER BY o.project_id) q;
END
$$;
