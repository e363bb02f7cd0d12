-- Write the next version of an object: update the head, insert the version, and queue it for embedding. p_row is the
-- whole object as JSON. Runs with the rights of its caller, who has locked the head.
CREATE OR REPLACE FUNCTION change_object(p_tenant text, p_agent text, p_row json, p_now timestamptz)
RETURNS void
LANGUAGE plpgsql VOLATILE
SET plan_cache_mode = force_generic_plan
AS $$
DECLARE
    r record;
BEGIN
    SELECT * INTO r FROM json_to_record(p_row) AS x(
        branch_id uuid, canonical_id uuid, version_id uuid, version int, supersedes_id uuid, project_id text,
        type text, subtype text, key text, title text, status text, labels text[], effective_from timestamptz,
        effective_to timestamptz, properties jsonb, evidence jsonb, content_hash text, schema_version int,
        searched boolean, embed_text text, deleted_at timestamptz, change_summary jsonb);
    UPDATE graph_objects o
    SET version_id = r.version_id, version = r.version, subtype = r.subtype, key = r.key, title = r.title,
        status = r.status, labels = r.labels, effective_from = r.effective_from, effective_to = r.effective_to,
        properties = r.properties, evidence = r.evidence, content_hash = decode(r.content_hash, 'hex'),
        schema_version = r.schema_version, deleted_at = r.deleted_at, updated_at = p_now, embed_text = r.embed_text,
        terms = CASE WHEN r.searched AND r.deleted_at IS NULL
                     THEN object_terms(p_tenant, r.project_id, r.title, r.key, r.labels, object_text(r.properties))
                     ELSE '' END
    WHERE o.tenant_id = p_tenant AND o.canonical_id = r.canonical_id AND o.branch_id = r.branch_id;
    INSERT INTO graph_object_versions (
        tenant_id, branch_id, canonical_id, version_id, version, project_id, type, subtype, key, title, status, labels,
        effective_from, effective_to, properties, evidence, content_hash, schema_version, deleted_at, supersedes_id,
        change_summary, written_by, created_at)
    VALUES (p_tenant, r.branch_id, r.canonical_id, r.version_id, r.version, r.project_id, r.type, r.subtype, r.key,
            r.title, r.status, r.labels, r.effective_from, r.effective_to, r.properties, r.evidence,
            decode(r.content_hash, 'hex'), r.schema_version, r.deleted_at, r.supersedes_id, r.change_summary, p_agent,
            p_now);
    IF r.project_id IS NOT NULL THEN
        PERFORM queue_units(p_tenant, r.project_id, 'object', ARRAY[r.canonical_id]);
    END IF;
    PERFORM hide_or_restore_objects(p_tenant, ARRAY[r.canonical_id]);
END
$$;
