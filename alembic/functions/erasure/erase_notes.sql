-- Deletes notes with their history and mentions. Returns how many rows of each table were deleted.
-- Runs with the settings and rights of erase_entity.
CREATE OR REPLACE FUNCTION erase_notes(
    p_tenant text, p_notes uuid[], p_entities uuid[])
RETURNS jsonb
LANGUAGE plpgsql VOLATILE
AS $$
#variable_conflict use_column
DECLARE
    v_count bigint;
    v_counts jsonb := '{}';
BEGIN
    -- Links between facts that stay lose only their note.
    DELETE FROM graph_fact_supersessions x
    WHERE x.tenant_id = p_tenant AND x.note_id = ANY (p_notes) AND EXISTS (
        SELECT FROM graph_fact_supersessions o
        WHERE o.tenant_id = p_tenant AND o.from_fact_id = x.from_fact_id AND o.to_fact_id = x.to_fact_id
          AND (o.note_id IS NULL OR (o.note_id = ANY (p_notes) AND o.supersession_id < x.supersession_id)));
    UPDATE graph_fact_supersessions x SET note_id = NULL
    WHERE x.tenant_id = p_tenant AND x.note_id = ANY (p_notes);
    SELECT count(*) INTO v_count FROM memory_history x WHERE x.tenant_id = p_tenant AND x.note_id = ANY (p_notes);
    v_counts := v_counts || jsonb_build_object('memory_history', v_count);
    SELECT count(*) INTO v_count FROM note_entity_mentions x
    WHERE x.tenant_id = p_tenant AND (x.note_id = ANY (p_notes) OR x.entity_id = ANY (p_entities));
    v_counts := v_counts || jsonb_build_object('note_entity_mentions', v_count);
    -- Derived notes of other scopes stay without their source.
    UPDATE memory_notes n SET derived_from = NULL
    WHERE n.tenant_id = p_tenant AND n.derived_from = ANY (p_notes) AND n.note_id <> ALL (p_notes);
    DELETE FROM memory_notes n WHERE n.tenant_id = p_tenant AND n.note_id = ANY (p_notes);
    GET DIAGNOSTICS v_count = ROW_COUNT;
    v_counts := v_counts || jsonb_build_object('memory_notes', v_count);
    RETURN v_counts;
END
$$;
