-- Returns the cards that show these facts, by subject, scope and owner. Runs with the rights of its caller.
CREATE OR REPLACE FUNCTION cards_of_facts(p_tenant text, p_project text, p_facts uuid[])
RETURNS uuid[]
LANGUAGE plpgsql STABLE
SET plan_cache_mode = force_custom_plan
SET jit = off
AS $$
BEGIN
    IF coalesce(cardinality(p_facts), 0) = 0 THEN
        RETURN '{}';
    END IF;
    RETURN ARRAY(
        SELECT DISTINCT c.card_id FROM graph_facts f
        JOIN memory_cards c ON c.tenant_id = p_tenant AND c.project_id = p_project
            AND c.entity_id = f.subject_entity_id AND c.scope = f.scope AND c.owner_key = f.owner_key
        WHERE f.tenant_id = p_tenant AND f.project_id = p_project AND f.fact_id = ANY (p_facts));
END
$$;
