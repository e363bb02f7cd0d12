-- Whether another value of the same belief is preferred to this fact (is_preferred), among those that stand at the two
-- times and have enough confidence and trust. Only facts with an open conflict are contradicted; what they are compared
-- with are all values and not the recorded pairs, of which there are at most 20 for each fact.
-- Runs with the rights of its caller, who sees all of these values or none: they have the same scope and owner.
CREATE OR REPLACE FUNCTION is_overruled(
    p_tenant text, p_fact uuid, p_valid timestamptz, p_known timestamptz, p_confidence double precision,
    p_trust double precision)
RETURNS boolean
LANGUAGE plpgsql STABLE
SET plan_cache_mode = force_generic_plan
SET enable_seqscan = off
SET enable_bitmapscan = off
SET enable_hashjoin = off
SET enable_mergejoin = off
SET enable_sort = off
AS $$
DECLARE
    v_fact graph_facts;
BEGIN
    PERFORM FROM fact_conflicts k
    WHERE k.tenant_id = p_tenant AND k.fact_a = p_fact
      AND is_open_conflict(k.status, k.detected_at, k.resolved_at, p_known)
    UNION ALL
    SELECT FROM fact_conflicts k
    WHERE k.tenant_id = p_tenant AND k.fact_b = p_fact
      AND is_open_conflict(k.status, k.detected_at, k.resolved_at, p_known)
    LIMIT 1;
    IF NOT FOUND THEN
        RETURN false;
    END IF;
    SELECT f.* INTO v_fact FROM graph_facts f WHERE f.tenant_id = p_tenant AND f.fact_id = p_fact;
    v_fact.confidence := fact_confidence(
        p_fact, v_fact.confidence, v_fact.weighed_at, v_fact.retracted_at, p_tenant, p_known);
    RETURN EXISTS (
        SELECT FROM (
            SELECT o.created_at, o.source_trust,
                   fact_confidence(o.fact_id, o.confidence, o.weighed_at, o.retracted_at, p_tenant, p_known)
                       AS confidence
            FROM graph_facts o
            WHERE o.tenant_id = p_tenant AND o.project_id = v_fact.project_id
              AND o.subject_entity_id = v_fact.subject_entity_id AND o.predicate_id = v_fact.predicate_id
              AND o.scope = v_fact.scope AND o.owner_key = v_fact.owner_key
              AND o.object_value IS NOT NULL AND o.object_hash <> v_fact.object_hash
              AND fact_stands(o.fact_id, o.valid_from, o.valid_until, o.created_at, o.closed_at, o.retracted_at,
                              p_tenant, p_valid, p_known)
            -- In the order of the timeline's index: the latest values decide most cases.
            ORDER BY o.valid_from DESC
        ) o
        WHERE o.confidence > 0 AND o.confidence >= p_confidence AND o.confidence * o.source_trust >= p_trust
          AND is_preferred(o.confidence, o.created_at, v_fact.confidence, v_fact.created_at));
END
$$;
