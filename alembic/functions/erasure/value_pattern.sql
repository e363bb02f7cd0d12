-- Returns one regular expression for the values of an entity's facts, and how many values it has: the newest 50 that
-- are long enough to be telling and short enough to be searched for. Runs with the rights of its caller.
CREATE OR REPLACE FUNCTION value_pattern(
    p_tenant text, p_entity uuid, p_facts uuid[], OUT pattern text, OUT quantity bigint)
LANGUAGE sql STABLE
AS $$
    SELECT string_agg(v.quoted, '|'), count(*)
    FROM (
        SELECT regexp_replace(fold_name(f.object_value), '([][\\.^$*+?(){}|-])', '\\\1', 'g') AS quoted
        FROM graph_facts f
        WHERE f.tenant_id = p_tenant AND f.fact_id = ANY (p_facts) AND length(f.object_value) BETWEEN 8 AND 100
          AND length(fold_name(f.object_value)) >= 8
          AND p_entity IN (f.subject_entity_id, f.object_entity_id)
        ORDER BY f.created_at DESC LIMIT 50
    ) v
$$;
