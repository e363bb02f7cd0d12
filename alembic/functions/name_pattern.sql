-- One regular expression for all names of an entity (its own, its aliases, what was merged into it), in lower case and as
-- whole words, whatever stands between them; in scripts that put no space between words, anywhere. Names of one or two letters (there: of one) fit too
-- much and are left out; NULL when none is left. One and not many: PostgreSQL keeps only a few of them compiled.
-- Runs with the rights of its caller.
CREATE OR REPLACE FUNCTION name_pattern(p_tenant text, p_entity uuid)
RETURNS text
LANGUAGE sql STABLE
AS $$
    SELECT concat_ws('|',
               '(?:^|[^0-9a-zÀ-ɏͰ-ӿ])(?:'
                   || string_agg(DISTINCT q.quoted, '|') FILTER (WHERE q.spaced AND length(n.name) > 2)
                   || ')(?:[^0-9a-zÀ-ɏͰ-ӿ]|$)',
               string_agg(DISTINCT q.quoted, '|') FILTER (WHERE NOT q.spaced AND length(n.name) > 1))
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
    CROSS JOIN LATERAL (
        SELECT replace(regexp_replace(n.name, '([][\\.^$*+?(){}|-])', '\\\1', 'g'),
                       ' ', '[[:space:]\u00A0]+') AS quoted,
               n.name ~ '^[ -~À-ɏͰ-ӿ]+$' AS spaced
    ) q
    HAVING count(*) FILTER (WHERE length(n.name) > CASE WHEN q.spaced THEN 2 ELSE 1 END) > 0
$$;
