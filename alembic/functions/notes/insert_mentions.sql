-- Records that notes mention entities, with the text as it stands in the note and a confidence. p_given: whether a caller
-- said so, and not a model. What is known already keeps the better confidence, and is no longer bound to a tombstone.
-- Runs with the settings and rights of its caller.
CREATE OR REPLACE FUNCTION insert_mentions(
    p_tenant text, p_project text, p_notes uuid[], p_entities uuid[], p_given boolean[], p_times timestamptz[])
RETURNS void
LANGUAGE plpgsql VOLATILE
AS $$
BEGIN
    INSERT INTO note_entity_mentions AS m (
        tenant_id, project_id, note_id, entity_id, created_at, mention, confidence, user_id)
    SELECT p_tenant, p_project, x.note_id, x.entity_id, x.created_at, f.mention,
           mention_confidence(x.given, f.spelling),
           -- A user's, where the note or the entity is.
           coalesce(nullif(n.user_id, ''), e.user_id)
    FROM (
        SELECT u.note_id, u.entity_id, min(u.created_at) AS created_at, bool_or(u.given) AS given
        FROM unnest(p_notes, p_entities, p_given, p_times) u(note_id, entity_id, given, created_at)
        WHERE u.entity_id IS NOT NULL
        GROUP BY u.note_id, u.entity_id
    ) x
    CROSS JOIN LATERAL (
        SELECT n.content, n.user_id FROM memory_notes n
        WHERE n.tenant_id = p_tenant AND n.note_id = x.note_id OFFSET 0) n
    CROSS JOIN LATERAL (
        SELECT e.user_id FROM graph_entities e WHERE e.tenant_id = p_tenant AND e.entity_id = x.entity_id OFFSET 0) e
    CROSS JOIN LATERAL find_mention(p_tenant, x.entity_id, n.content) f
    -- Most are known: the text is not searched again where that can't say more.
    WHERE NOT EXISTS (
        SELECT FROM note_entity_mentions o
        WHERE o.tenant_id = p_tenant AND o.note_id = x.note_id AND o.entity_id = x.entity_id AND NOT o.by_name
          AND (o.confidence = 1 OR NOT x.given)
        OFFSET 0)
    ORDER BY x.note_id, x.entity_id
    ON CONFLICT (tenant_id, note_id, entity_id) DO UPDATE
    SET by_name = false, mention = coalesce(excluded.mention, m.mention),
        confidence = greatest(m.confidence, excluded.confidence)
    WHERE m.by_name OR m.confidence < excluded.confidence;
END
$$;
