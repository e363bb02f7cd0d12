-- Returns the predicates that facts of other projects may have and that a reference names: by id, or by the canonical
-- name or an alias. p_reference is as in resolve_predicates. Runs as the owner, since the vocabulary of other projects
-- is hidden: an id tells nothing, and only facts that are shared show what it stands for.
CREATE OR REPLACE FUNCTION shared_predicates(p_reference json)
RETURNS SETOF uuid
LANGUAGE plpgsql STABLE STRICT SECURITY DEFINER
SET search_path = pg_catalog, public, pg_temp
SET plan_cache_mode = force_generic_plan
SET jit = off
AS $$
DECLARE
    v_tenant text := nullif(current_setting('app.tenant_id', true), '');
    v_norm text := p_reference -> 0 ->> 'norm';
BEGIN
    IF v_tenant IS NULL OR current_setting('app.reach', true) IS DISTINCT FROM 'shared' THEN
        RETURN;
    END IF;
    RETURN QUERY
    SELECT p.predicate_id FROM graph_predicates p
    WHERE p.tenant_id = v_tenant
      AND (p.predicate_id = (p_reference -> 0 ->> 'predicate_id')::uuid OR p.canonical_norm = v_norm)
    UNION
    SELECT a.predicate_id FROM graph_predicate_aliases a WHERE a.tenant_id = v_tenant AND a.alias_norm = v_norm;
END
$$;
