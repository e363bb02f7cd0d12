-- Returns the best notes by the terms they had at the context's time, of the 5,000 changed last since: the index has
-- only the present terms. Runs with the rights of its caller.
CREATE OR REPLACE FUNCTION match_past_notes(p_context read_context, p_terms term_query, p_limit int)
RETURNS uuid[]
LANGUAGE plpgsql STABLE
AS $$
#variable_conflict use_column
BEGIN
    RETURN ARRAY(
        SELECT x.note_id FROM (
            SELECT n.note_id, tsvector_to_array(note_terms_as_of(
                       p_context.tenant_id, p_context.project_id, n.note_id, p_context.known_at)) AS terms
            FROM (
                SELECT n.note_id FROM memory_notes n
                WHERE n.tenant_id = p_context.tenant_id AND n.project_id = p_context.project_id
                  AND n.created_at <= p_context.known_at AND n.updated_at > p_context.known_at AND n.version > 1
                  AND (p_context.scope IS NULL OR n.scope = p_context.scope)
                ORDER BY n.updated_at DESC, n.note_id LIMIT 5000) n
            OFFSET 0) x
        WHERE x.terms && p_terms.terms
        ORDER BY (SELECT sum(t.idf) FROM unnest(p_terms.terms, p_terms.idf) t(term, idf)
                  WHERE t.term = ANY (x.terms)) DESC, x.note_id LIMIT p_limit);
END
$$;
