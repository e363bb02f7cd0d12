-- Returns a note with its text redacted, the project's settings and spent tokens; no row when the note is deleted or
-- hidden. Runs with the rights of its caller.
CREATE OR REPLACE FUNCTION read_extraction(p_tenant text, p_project text, p_note uuid, p_patterns text[])
RETURNS TABLE (
    content text, author text, type text, scope text, garden_id uuid, agent_id text, owner_key text, tags text[],
    occurred_at timestamptz, version int, extraction_status text, pipeline jsonb, spent bigint)
LANGUAGE plpgsql VOLATILE
SET plan_cache_mode = force_custom_plan
AS $$
#variable_conflict use_column
DECLARE
    v_patterns text[] := p_patterns || ARRAY(
        SELECT r.pattern FROM embedding_redactions r WHERE r.tenant_id = p_tenant ORDER BY r.created_at, r.pattern_id);
BEGIN
    RETURN QUERY
    SELECT (redact_text(n.content, v_patterns)).words, (redact_text(n.author, v_patterns)).words, n.type, n.scope,
           n.garden_id, n.agent_id, n.owner_key, n.tags, n.occurred_at, n.version, n.extraction_status,
           p.settings -> 'pipeline',
           spent_tokens(p_tenant, p_project, p.settings -> 'pipeline' ->> 'extraction_budget_period')
    FROM memory_notes n
    JOIN projects p ON p.tenant_id = p_tenant AND p.project_id = p_project
    WHERE n.tenant_id = p_tenant AND n.note_id = p_note AND n.project_id = p_project AND n.deleted_at IS NULL;
END
$$;
