-- Records which notes of these scopes (NULL: all) name an entity in their words, author, thread or tags, or did so in an
-- earlier version, beside those that are known to from facts. Runs with the rights of its caller.
CREATE OR REPLACE FUNCTION link_mentions(p_tenant text, p_project text, p_entity uuid, p_scopes text[])
RETURNS void
LANGUAGE plpgsql VOLATILE
SET plan_cache_mode = force_custom_plan
AS $$
DECLARE
    v_patterns text[] := name_patterns(p_tenant, p_entity);
BEGIN
    INSERT INTO note_entity_mentions (tenant_id, project_id, note_id, entity_id, created_at, by_name)
    SELECT p_tenant, p_project, n.note_id, p_entity, clock_timestamp(), true
    FROM memory_notes n
    WHERE n.tenant_id = p_tenant AND n.project_id = p_project AND (p_scopes IS NULL OR n.scope = ANY (p_scopes))
      AND (lower(concat_ws(' ', n.content, n.author, n.thread_id, array_to_string(n.tags, ' '))) ~ ANY (v_patterns)
           OR EXISTS (SELECT FROM memory_history h
                      WHERE h.tenant_id = p_tenant AND h.note_id = n.note_id
                        AND lower(concat_ws(' ', h.old_content, h.new_content, h.reason)) ~ ANY (v_patterns)))
    ON CONFLICT DO NOTHING;
END
$$;
