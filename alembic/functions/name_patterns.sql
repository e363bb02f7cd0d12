-- Regular expressions for the names of an entity (its own, its aliases, what was merged into it), in lower case and as
-- whole words; in scripts that put no space between words, anywhere. Names of one or two letters (there: of one)
-- fit too much and are left out. Runs with the rights of its caller.
CREATE OR REPLACE FUNCTION name_patterns(p_tenant text, p_entity uuid)
RETURNS text[]
LANGUAGE sql STABLE
AS $$
    SELECT coalesce(array_agg(DISTINCT
               CASE WHEN n.name ~ '^[ -~À-ɏͰ-ӿ]+$' THEN '(^|[^[:alnum:]])' || q.quoted || '([^[:alnum:]]|$)'
                    ELSE q.quoted END), '{}')
    FROM (
        SELECT lower(e.canonical) AS name FROM graph_entities e
        WHERE e.tenant_id = p_tenant AND (e.entity_id = p_entity OR e.merged_into = p_entity)
        UNION
        SELECT e.canonical_norm FROM graph_entities e
        WHERE e.tenant_id = p_tenant AND (e.entity_id = p_entity OR e.merged_into = p_entity)
        UNION
        SELECT lower(a.alias) FROM graph_entity_aliases a WHERE a.tenant_id = p_tenant AND a.entity_id = p_entity
        UNION
        SELECT a.alias_norm FROM graph_entity_aliases a WHERE a.tenant_id = p_tenant AND a.entity_id = p_entity
    ) n
    CROSS JOIN LATERAL (SELECT regexp_replace(n.name, '([][\\.^$*+?(){}|-])', '\\\1', 'g') AS quoted) q
    WHERE length(n.name) > CASE WHEN n.name ~ '^[ -~À-ɏͰ-ӿ]+$' THEN 2 ELSE 1 END
$$;
