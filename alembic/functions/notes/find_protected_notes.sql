-- Returns those of the notes that must not be purged: hidden by a tombstone or under legal hold, by their mentions, by
-- the facts they support, or by names in their current or earlier content. A revoked tombstone restores hidden notes.
-- Runs with the rights of its caller.
CREATE OR REPLACE FUNCTION find_protected_notes(p_tenant text, p_project text, p_notes uuid[])
RETURNS uuid[]
LANGUAGE plpgsql STABLE
SET plan_cache_mode = force_custom_plan
SET jit = off
AS $$
DECLARE
    v_protected uuid[];
    v_hold record;
BEGIN
    v_protected := ARRAY(
        SELECT n.note_id FROM memory_notes n
        WHERE n.tenant_id = p_tenant AND n.note_id = ANY (p_notes)
          AND (n.suppression <> 0
               OR EXISTS (
                   SELECT FROM note_entity_mentions m
                   JOIN graph_entities e ON e.tenant_id = p_tenant AND e.entity_id = m.entity_id
                   WHERE m.tenant_id = p_tenant AND m.note_id = n.note_id
                     AND hidden_level(e.erased_scopes, e.held_scopes, n.scope) <> 0)
               OR EXISTS (
                   SELECT FROM graph_fact_evidence v
                   JOIN graph_facts f ON f.tenant_id = p_tenant AND f.fact_id = v.fact_id
                   WHERE v.tenant_id = p_tenant AND v.note_id = n.note_id
                     AND (f.suppression <> 0 OR is_held(p_tenant, f.fact_id)))
               OR EXISTS (
                   SELECT FROM graph_fact_supersessions s
                   JOIN graph_facts f ON f.tenant_id = p_tenant AND f.fact_id IN (s.from_fact_id, s.to_fact_id)
                   WHERE s.tenant_id = p_tenant AND s.note_id = n.note_id
                     AND (s.suppression <> 0 OR f.suppression <> 0 OR is_held(p_tenant, f.fact_id)))
               OR EXISTS (
                   SELECT FROM memory_reviews r
                   WHERE r.tenant_id = p_tenant AND n.note_id IN (r.note_id, r.target_note_id)
                     AND r.suppression <> 0)
               OR EXISTS (
                   SELECT FROM document_notes d
                   JOIN documents o ON o.tenant_id = p_tenant AND o.document_id = d.document_id
                   WHERE d.tenant_id = p_tenant AND d.note_id = n.note_id
                     AND (d.suppression <> 0 OR o.suppression <> 0))));
    -- Notes that name the entity but were written after the hold was issued have no mention yet.
    FOR v_hold IN
        SELECT t.scopes, p.certain AS pattern FROM tombstones t
        CROSS JOIN LATERAL name_patterns(p_tenant, t.entity_id) p
        WHERE t.tenant_id = p_tenant AND t.project_id = p_project AND t.legal_hold AND t.named
          AND NOT EXISTS (SELECT FROM tombstone_revocations r
                          WHERE r.tenant_id = p_tenant AND r.tombstone_id = t.tombstone_id)
    LOOP
        v_protected := v_protected || ARRAY(
            SELECT n.note_id FROM memory_notes n
            WHERE n.tenant_id = p_tenant AND n.note_id = ANY (p_notes) AND n.note_id <> ALL (v_protected)
              AND (v_hold.scopes IS NULL OR n.scope = ANY (v_hold.scopes))
              AND (fold_name(concat_ws(',,', n.content, n.author, n.thread_id, array_to_string(n.tags, ',,')))
                       ~ v_hold.pattern
                   OR EXISTS (SELECT FROM memory_history h
                              WHERE h.tenant_id = p_tenant AND h.note_id = n.note_id
                                AND (fold_name(concat_ws(',,', h.old_content, h.new_content, h.reason, h.before))
                                     ~ v_hold.pattern
                                    OR json_matches(h.before, v_hold.pattern)))));
    END LOOP;
    RETURN v_protected;
END
$$;
