-- Sets the scope and writes facts in one call, for the hot path.
CREATE OR REPLACE FUNCTION put_facts(
    p_tenant text, p_project text, p_agent text, p_gardens uuid[], p_reach text, p_user text,
    p_entities json, p_predicates json, p_facts json, p_evidence json, p_derived json, p_atomic boolean,
    p_key text, p_admin boolean)
RETURNS TABLE (
    idx int, refused text, field text, candidates uuid[], outcome text, superseded uuid[], conflicts uuid[],
    fact_id uuid, subject_id uuid, subject_name text, subject_kind text, predicate_id uuid, predicate_name text,
    predicate_status text, predicate_cardinality text, object_id uuid, object_name text, object_kind text,
    object_value text, value_type text, scope text, garden_id uuid, agent_id text, source text,
    source_trust double precision, confidence double precision, valid_from timestamptz, valid_to timestamptz,
    created_at timestamptz, closed_at timestamptz, retracted_at timestamptz, contradicted boolean, evidence uuid[],
    derived_from text[], fact_hash text, mentions int, user_id text)
LANGUAGE plpgsql VOLATILE
SET plan_cache_mode = force_generic_plan
AS $$
BEGIN
    PERFORM set_scope(p_tenant, p_project, p_agent, p_gardens, p_reach, p_user);
    RETURN QUERY
    SELECT * FROM write_facts(p_entities, p_predicates, p_facts, p_evidence, p_derived, p_atomic, p_key, p_admin);
END
$$;
