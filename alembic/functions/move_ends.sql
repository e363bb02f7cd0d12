-- Sets the ends of facts ('infinity': open again) and of their edges, and logs what each end was before.
-- Runs with the rights of its caller.
CREATE OR REPLACE FUNCTION move_ends(
    p_tenant text, p_project text, p_facts uuid[], p_ends timestamptz[], p_moments timestamptz[])
RETURNS void
LANGUAGE plpgsql VOLATILE
SET plan_cache_mode = force_generic_plan
AS $$
BEGIN
    IF p_facts IS NULL THEN
        RETURN;
    END IF;
    INSERT INTO fact_closings (tenant_id, project_id, closing_id, fact_id, recorded_at, previous_valid_to)
    SELECT p_tenant, p_project, make_id(), f.fact_id, u.moment, f.valid_to
    FROM unnest(p_facts, p_ends, p_moments) u(fact_id, ends, moment)
    JOIN graph_facts f ON f.tenant_id = p_tenant AND f.fact_id = u.fact_id;
    UPDATE graph_facts f SET valid_to = nullif(u.ends, 'infinity'), closed_at = u.moment, updated_at = u.moment
    FROM unnest(p_facts, p_ends, p_moments) u(fact_id, ends, moment)
    WHERE f.tenant_id = p_tenant AND f.fact_id = u.fact_id;
    UPDATE entity_edges x SET valid_to = nullif(u.ends, 'infinity'), closed_at = u.moment
    FROM unnest(p_facts, p_ends, p_moments) u(fact_id, ends, moment)
    WHERE x.tenant_id = p_tenant AND x.edge_id = u.fact_id;
END
$$;
