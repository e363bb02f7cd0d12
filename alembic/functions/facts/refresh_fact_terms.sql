-- Computes the search terms of facts from the current names of their entities. Runs with the rights of its caller.
CREATE OR REPLACE FUNCTION refresh_fact_terms(p_tenant text, p_project text, p_facts uuid[])
RETURNS void
LANGUAGE plpgsql VOLATILE
AS $$
BEGIN
    UPDATE graph_facts f
    SET terms = fact_terms(project_language(p_tenant, p_project), s.canonical, p.canonical,
                           coalesce(o.canonical, f.object_value))
    FROM graph_facts r
    JOIN graph_entities s ON s.tenant_id = p_tenant AND s.entity_id = r.subject_entity_id
    JOIN graph_predicates p ON p.tenant_id = p_tenant AND p.predicate_id = r.predicate_id
    LEFT JOIN graph_entities o ON o.tenant_id = p_tenant AND o.entity_id = r.object_entity_id
    WHERE f.tenant_id = p_tenant AND f.fact_id = ANY (p_facts) AND r.tenant_id = p_tenant AND r.fact_id = f.fact_id;
END
$$;
