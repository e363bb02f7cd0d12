-- Sets the ends of facts ('infinity': open again) and of their edges, and records the previous ends.
-- Runs with the rights of its caller.
CREATE OR REPLACE FUNCTION set_ends(
    p_tenant text, p_project text, p_facts uuid[], p_ends timestamptz[], p_moments timestamptz[])
RETURNS void
LANGUAGE plpgsql VOLATILE
SET plan_cache_mode = force_generic_plan
SET enable_seqscan = off
SET jit = off
AS $$
DECLARE
    v_fact graph_facts;
BEGIN
    -- One by one, each by its key: the plan of a join with a list would depend on its estimated length.
    FOR i IN 1 .. coalesce(cardinality(p_facts), 0) LOOP
        SELECT f.* INTO v_fact FROM graph_facts f WHERE f.tenant_id = p_tenant AND f.fact_id = p_facts[i];
        INSERT INTO fact_closings (
            tenant_id, project_id, closing_id, fact_id, recorded_at, previous_valid_to, suppression, user_id)
        VALUES (p_tenant, p_project, make_id(), p_facts[i], p_moments[i], v_fact.valid_to, v_fact.suppression,
                v_fact.user_id);
        UPDATE graph_facts f
        SET valid_to = nullif(p_ends[i], 'infinity'), closed_at = p_moments[i], updated_at = p_moments[i]
        WHERE f.tenant_id = p_tenant AND f.fact_id = p_facts[i];
        IF v_fact.object_entity_id IS NOT NULL THEN
            UPDATE entity_edges x SET valid_to = nullif(p_ends[i], 'infinity'), closed_at = p_moments[i]
            WHERE x.tenant_id = p_tenant AND x.edge_id = p_facts[i];
        END IF;
    END LOOP;
END
$$;
