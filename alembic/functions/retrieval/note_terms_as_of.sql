-- Returns the terms that a note had at p_known, when its text, author, date or tags were different. Runs with the
-- rights of its caller.
CREATE OR REPLACE FUNCTION note_terms_as_of(p_tenant text, p_project text, p_note uuid, p_known timestamptz)
RETURNS tsvector
LANGUAGE plpgsql STABLE
AS $$
BEGIN
    RETURN (
        SELECT note_terms(
            p_tenant, p_project,
            CASE WHEN t.before ? 'author' THEN t.before ->> 'author' ELSE n.author END,
            coalesce((t.before ->> 'occurred_at')::timestamptz, n.occurred_at),
            CASE WHEN t.before ? 'tags' THEN ARRAY(SELECT jsonb_array_elements_text(t.before -> 'tags'))
                 ELSE n.tags END,
            coalesce(t.content, n.content))
        FROM memory_notes n CROSS JOIN LATERAL note_as_of(p_tenant, n.note_id, p_known) t
        WHERE n.tenant_id = p_tenant AND n.note_id = p_note);
END
$$;
