-- Return on which sides a type of relationships allows only one, by the tenant's type or else the installation's. Runs
-- with the rights of its caller.
CREATE OR REPLACE FUNCTION type_multiplicity(p_tenant text, p_type text, OUT one_src boolean, OUT one_dst boolean)
LANGUAGE plpgsql STABLE
SET plan_cache_mode = force_generic_plan
AS $$
BEGIN
    SELECT t.multiplicity_src = 'one', t.multiplicity_dst = 'one' INTO one_src, one_dst
    FROM relationship_type_schemas t
    WHERE t.tenant_id = p_tenant AND t.type = p_type AND t.status = 'active';
    IF NOT FOUND THEN
        SELECT g.multiplicity_src = 'one', g.multiplicity_dst = 'one' INTO one_src, one_dst
        FROM global_relationship_type_schemas g WHERE g.type = p_type AND g.status = 'active';
    END IF;
    one_src := coalesce(one_src, false);
    one_dst := coalesce(one_dst, false);
END
$$;
