-- Records which notes of these scopes (NULL: all) name an entity in their words, author, thread or tags, or did so in an
-- earlier version, and which facts name it in their value, beside those that are known to speak of it.
-- Runs with the rights of its caller.
CREATE OR REPLACE FUNCTION link_mentions(p_tenant text, p_project text, p_entity uuid, p_scopes text[])
RETURNS void
LANGUAGE plpgsql VOLATILE
SET plan_cache_mode = force_custom_plan
AS $$
DECLARE
    v_pattern text := name_pattern(p_tenant, p_entity);
    v_now timestamptz := clock_timestamp();
BEGIN
    INSERT INTO note_entity_mentions (tenant_id, project_id, note_id, entity_id, created_at, by_name)
    SELECT p_tenant, p_project, n.note_id, p_entity, v_now, true
    FROM memory_notes n
    WHERE n.tenant_id = p_tenant AND n.project_id = p_project AND (p_scopes IS NULL OR n.scope = ANY (p_scopes))
      AND (normalize(lower(concat_ws(' ', n.content, n.author, n.thread_id, array_to_string(n.tags, ' '))))
               ~ v_pattern
           OR EXISTS (SELECT FROM memory_history h
                      WHERE h.tenant_id = p_tenant AND h.note_id = n.note_id
                        AND normalize(lower(concat_ws(' ', h.old_content, h.new_content, h.reason)))
                            ~ v_pattern))
    ON CONFLICT DO NOTHING;
    INSERT INTO graph_fact_mentions (tenant_id, project_id, fact_id, entity_id, created_at)
    SELECT p_tenant, p_project, f.fact_id, p_entity, v_now
    FROM graph_facts f
    WHERE f.tenant_id = p_tenant AND f.project_id = p_project AND (p_scopes IS NULL OR f.scope = ANY (p_scopes))
      AND f.object_value IS NOT NULL AND f.subject_entity_id <> p_entity
      AND normalize(lower(f.object_value)) ~ v_pattern
    ON CONFLICT DO NOTHING;
END
$$;
