-- Store new objects with their first version, queue them for embedding, and return the ids of those that were stored; a
-- live object of the same type has the key of each other. p_rows are whole objects as JSON; `searched` says whether
-- they are found by their words. Runs with the rights of its caller.
CREATE OR REPLACE FUNCTION store_objects(p_tenant text, p_agent text, p_rows json, p_now timestamptz)
RETURNS TABLE (canonical_id uuid)
LANGUAGE plpgsql VOLATILE
SET plan_cache_mode = force_generic_plan
AS $$
#variable_conflict use_column
DECLARE
    v_stored uuid[];
BEGIN
    WITH made AS (
        INSERT INTO graph_objects AS o (
            tenant_id, branch_id, canonical_id, version_id, version, project_id, type, subtype, key, title, status,
            labels, effective_from, effective_to, properties, evidence, content_hash, schema_version, created_at,
            updated_at, terms, embed_text)
        SELECT p_tenant, r.branch_id, r.canonical_id, r.canonical_id, 1, r.project_id, r.type, r.subtype, r.key,
               r.title, r.status, r.labels, r.effective_from, r.effective_to, r.properties, r.evidence,
               decode(r.content_hash, 'hex'), r.schema_version, p_now, p_now,
               CASE WHEN r.searched THEN object_terms(p_tenant, r.project_id, r.title, r.key, r.labels,
                                                      object_text(r.properties)) ELSE '' END,
               r.embed_text
        FROM json_to_recordset(p_rows) AS r(
            branch_id uuid, canonical_id uuid, project_id text, type text, subtype text, key text, title text,
            status text, labels text[], effective_from timestamptz, effective_to timestamptz, properties jsonb,
            evidence jsonb, content_hash text, schema_version int, searched boolean, embed_text text)
        ORDER BY r.type, r.key, r.canonical_id
        ON CONFLICT DO NOTHING
        RETURNING o.canonical_id
    ) SELECT coalesce(array_agg(m.canonical_id), '{}') INTO v_stored FROM made m;
    INSERT INTO graph_object_versions (
        tenant_id, branch_id, canonical_id, version_id, version, project_id, type, subtype, key, title, status, labels,
        effective_from, effective_to, properties, evidence, content_hash, schema_version, change_summary, written_by,
        created_at)
    SELECT p_tenant, r.branch_id, r.canonical_id, r.canonical_id, 1, r.project_id, r.type, r.subtype, r.key, r.title,
           r.status, r.labels, r.effective_from, r.effective_to, r.properties, r.evidence,
           decode(r.content_hash, 'hex'), r.schema_version, r.change_summary, p_agent, p_now
    FROM json_to_recordset(p_rows) AS r(
        branch_id uuid, canonical_id uuid, project_id text, type text, subtype text, key text, title text,
        status text, labels text[], effective_from timestamptz, effective_to timestamptz, properties jsonb,
        evidence jsonb, content_hash text, schema_version int, change_summary jsonb)
    WHERE r.canonical_id = ANY (v_stored);
    PERFORM queue_units(p_tenant, q.project_id, 'object', q.ids)
    FROM (SELECT r.project_id, array_agg(r.canonical_id) AS ids
          FROM json_to_recordset(p_rows) AS r(canonical_id uuid, project_id text, embed_text text)
          WHERE r.project_id IS NOT NULL AND r.embed_text IS NOT NULL AND r.canonical_id = ANY (v_stored)
          GROUP BY r.project_id) q;
    PERFORM hide_or_restore_objects(p_tenant, v_stored);
    RETURN QUERY SELECT unnest(v_stored);
END
$$;
