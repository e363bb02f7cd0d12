-- Returns the predicates that a relation filter selects, by names or ids (p_labels) and by prefixes of names. Runs with
-- the rights of its caller.
CREATE OR REPLACE FUNCTION find_relations(p_tenant text, p_project text, p_labels json, p_prefixes text[])
RETURNS uuid[]
LANGUAGE plpgsql STABLE
AS $$
BEGIN
    RETURN ARRAY(
        SELECT r.predicate_id FROM resolve_predicates(p_tenant, p_project, p_labels) r
        WHERE r.predicate_id IS NOT NULL
        UNION
        SELECT p.predicate_id FROM json_to_recordset(p_labels) AS n(norm text)
        JOIN graph_predicates p ON p.tenant_id = p_tenant AND p.canonical_norm = n.norm
            AND p.scope_key IN (p_tenant || ':' || p_project, p_tenant || ':*', '__global__')
        UNION
        SELECT p.predicate_id FROM unnest(p_prefixes) n(prefix)
        JOIN graph_predicates p ON p.tenant_id = p_tenant
            AND p.canonical_norm >= n.prefix AND p.canonical_norm < n.prefix || U&'\+10FFFF'
            AND p.scope_key IN (p_tenant || ':' || p_project, p_tenant || ':*', '__global__'));
END
$$;
