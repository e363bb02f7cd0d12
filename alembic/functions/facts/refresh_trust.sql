-- Stores the current trust of a source in its facts and their edges: at most p_limit facts after p_after in the order
-- of their ids. Returns the last one, or no row at the end.
CREATE OR REPLACE FUNCTION refresh_trust(p_source text, p_agents text[], p_trust double precision,
                                         p_otherwise double precision, p_after uuid, p_limit int)
RETURNS TABLE (fact_id uuid)
LANGUAGE plpgsql VOLATILE SECURITY DEFINER
SET search_path = pg_catalog, public, pg_temp
AS $$
#variable_conflict use_column
DECLARE
    v_tenant text := nullif(current_setting('app.tenant_id', true), '');
    v_project text := nullif(current_setting('app.project_id', true), '');
    v_facts uuid[];
    v_now timestamptz;
BEGIN
    -- Never concurrent with the building of a card, which leaves out facts of low trust.
    PERFORM FROM projects p WHERE p.tenant_id = v_tenant AND p.project_id = v_project FOR NO KEY UPDATE;
    v_now := clock_timestamp();
    v_facts := ARRAY(
        SELECT f.fact_id FROM graph_facts f
        WHERE f.tenant_id = v_tenant AND f.project_id = v_project AND f.source = p_source AND f.suppression <> 2
          AND f.fact_id > p_after
        ORDER BY f.fact_id LIMIT p_limit);
    UPDATE graph_facts f
    SET source_trust = CASE WHEN cardinality(p_agents) = 0 OR f.agent_id = ANY (p_agents) THEN p_trust
                            ELSE p_otherwise END,
        updated_at = v_now
    WHERE f.tenant_id = v_tenant AND f.fact_id = ANY (v_facts)
      AND f.source_trust <> CASE WHEN cardinality(p_agents) = 0 OR f.agent_id = ANY (p_agents) THEN p_trust
                                 ELSE p_otherwise END;
    UPDATE entity_edges x SET source_trust = f.source_trust FROM graph_facts f
    WHERE f.tenant_id = v_tenant AND f.fact_id = ANY (v_facts) AND x.tenant_id = v_tenant AND x.edge_id = f.fact_id
      AND x.source_trust <> f.source_trust;
    RETURN QUERY SELECT v_facts[cardinality(v_facts)] WHERE cardinality(v_facts) = p_limit;
END
$$;
