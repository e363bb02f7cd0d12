-- Inserts derived notes that have no live duplicate, with the ownership, author, time and tags of their source note.
-- Returns the ids of the inserted notes. Runs with the rights of its caller.
CREATE OR REPLACE FUNCTION insert_derived_notes(
    p_source memory_notes, p_model text, p_derived json, p_now timestamptz)
RETURNS uuid[]
LANGUAGE plpgsql VOLATILE
AS $$
DECLARE
    v_created uuid[];
BEGIN
    WITH created AS (
        -- Without thread_id: a derived note must not appear between the messages of the source's thread.
        INSERT INTO memory_notes AS n (
            tenant_id, note_id, project_id, agent_id, scope, garden_id, owner_key, type, content, content_hash,
            tags, author, occurred_at, pinned, derived_from, confidence, extraction_model, created_at, updated_at,
            terms, telling, user_id)
        SELECT p_source.tenant_id, d.note_id, p_source.project_id, p_source.agent_id, p_source.scope,
               p_source.garden_id, p_source.owner_key, d.type, d.content, d.hash, p_source.tags, p_source.author,
               p_source.occurred_at, false, p_source.note_id, d.confidence, p_model, p_now, p_now,
               note_terms(p_source.tenant_id, p_source.project_id, p_source.author, p_source.occurred_at,
                          p_source.tags, d.content),
               count_content_terms(p_source.tenant_id, p_source.project_id, d.content), p_source.user_id
        FROM json_to_recordset(p_derived)
            AS d(note_id uuid, content text, hash text, type text, confidence double precision)
        -- The unique index does not see duplicates within a thread.
        WHERE NOT EXISTS (
            SELECT FROM memory_notes x
            WHERE x.tenant_id = p_source.tenant_id AND x.project_id = p_source.project_id AND x.content_hash = d.hash
              AND x.scope = p_source.scope AND x.owner_key = p_source.owner_key AND x.deleted_at IS NULL)
        ORDER BY d.hash
        ON CONFLICT DO NOTHING
        RETURNING n.note_id
    ) SELECT coalesce(array_agg(c.note_id), '{}') INTO v_created FROM created c;
    RETURN v_created;
END
$$;
