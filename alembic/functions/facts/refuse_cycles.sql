-- Refuses drafts that would be derived from themselves. Only a fact that gives its own start can have been cited
-- before it was written, since its hash depends on it. Runs with the settings and rights of write_facts.
CREATE OR REPLACE FUNCTION refuse_cycles(
    p_tenant text, p_project text, p_drafts fact_draft[], p_entities json, p_predicates json, p_derived json,
    p_entity_ids uuid[])
RETURNS fact_draft[]
LANGUAGE plpgsql VOLATILE
AS $$
DECLARE
    v_hashed int[];
    v_hashes bytea[];
    v_cycles int[];
    v_drafts fact_draft[];
BEGIN
    SELECT array_agg(d.idx), array_agg(hash_fact(
               d.confidence, coalesce(s.canonical_norm, n.norm), coalesce(r.canonical, d.predicate), d.scope,
               d.source, d.valid_from, CASE WHEN d.o IS NULL THEN d.value_type ELSE 'ref' END,
               CASE WHEN d.o IS NULL THEN d.value_json ELSE to_json(coalesce(o.canonical_norm, m.norm))::text END))
    INTO v_hashed, v_hashes
    FROM unnest(p_drafts) d
    JOIN resolve_predicates(p_tenant, p_project, p_predicates) r ON r.ref = d.p
    JOIN json_to_recordset(p_entities) AS n(ref int, norm text) ON n.ref = d.s
    LEFT JOIN json_to_recordset(p_entities) AS m(ref int, norm text) ON m.ref = d.o
    LEFT JOIN LATERAL (
        -- For a hidden entity the name in the request, as if it were new.
        SELECT CASE WHEN e.suppression = 0 THEN e.canonical_norm END AS canonical_norm FROM graph_entities e
        WHERE e.tenant_id = p_tenant AND e.entity_id = p_entity_ids[d.s] OFFSET 0) s ON true
    LEFT JOIN LATERAL (
        SELECT CASE WHEN e.suppression = 0 THEN e.canonical_norm END AS canonical_norm FROM graph_entities e
        WHERE e.tenant_id = p_tenant AND e.entity_id = p_entity_ids[d.o] OFFSET 0) o ON true
    WHERE d.refused IS NULL AND d.valid_from IS NOT NULL;
    IF v_hashed IS NOT NULL THEN
        -- Two facts that cite each other must not be written concurrently, each unaware of the other.
        PERFORM FROM tenants t WHERE t.tenant_id = p_tenant FOR NO KEY UPDATE;
    END IF;
    v_cycles := find_cycles(p_tenant, p_project, v_hashed, v_hashes, p_derived);
    IF cardinality(v_cycles) > 0 THEN
        SELECT array_agg(ROW(
            d.idx, d.fact_id, d.s, d.p, d.o, NULL, NULL, NULL, d.predicate, d.value, d.value_type, d.value_json,
            d.object_hash, d.scope, d.owner_key, d.garden_id, d.confidence, d.source, d.source_trust, d.hlc,
            d.valid_from, d.valid_to, d.timed, NULL, NULL, NULL, NULL, d.note_id,
            CASE WHEN d.idx = ANY (v_cycles) THEN 'provenance_cycle_detected' ELSE d.refused END,
            CASE WHEN d.idx = ANY (v_cycles) THEN 'derived_from' ELSE d.field END)::fact_draft ORDER BY d.idx)
        INTO v_drafts FROM unnest(p_drafts) d;
        RETURN v_drafts;
    END IF;
    RETURN p_drafts;
END
$$;
