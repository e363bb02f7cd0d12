-- Returns one regular expression for all names of an entity (its own, its aliases, those merged into it), as fold_name
-- spells them: whole words with any white space between them; in scripts without spaces, anywhere. In a URI, where
-- white space was replaced by a hyphen, a hyphen matches white space and %20 too. Names of one or two letters (in
-- scripts without spaces, of one) are left out; NULL when none is left. One pattern, because PostgreSQL keeps only a
-- few compiled. Runs with the rights of its caller.
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
        SELECT fold_name(e.canonical) AS name FROM graph_entities e
        WHERE e.tenant_id = p_tenant AND (e.entity_id = p_entity OR e.merged_into = p_entity)
        UNION
        SELECT fold_name(e.canonical_norm) FROM graph_entities e
        WHERE e.tenant_id = p_tenant AND (e.entity_id = p_entity OR e.merged_into = p_entity)
        UNION
        SELECT fold_name(a.alias) FROM graph_entity_aliases a WHERE a.tenant_id = p_tenant AND a.entity_id = p_entity
        UNION
        SELECT fold_name(a.alias_norm) FROM graph_entity_aliases a
        WHERE a.tenant_id = p_tenant AND a.entity_id = p_entity
    ) n
    -- All characters that Python's str.split takes for white space.
    CROSS JOIN (
        SELECT '[[:space:]\u001C-\u001F\u0085\u00A0\u1680\u2000-\u200A\u2028\u2029\u202F\u205F\u3000]+' AS gap
    ) g
    CROSS JOIN LATERAL (SELECT coalesce(uri_scheme(n.name), '') AS scheme) u
    CROSS JOIN LATERAL (
        SELECT regexp_replace(u.scheme, '([.+-])', '\\\1', 'g') || replace(
                   regexp_replace(substr(n.name, length(u.scheme) + 1), '([][\\.^$*+?(){}|-])', '\\\1', 'g'),
                   CASE WHEN u.scheme = '' THEN ' ' ELSE '\-' END,
                   CASE WHEN u.scheme = '' THEN g.gap ELSE '(?:-|%20|' || g.gap || ')' END) AS quoted,
               n.name ~ '^[ -~À-ɏͰ-ӿ]+$' AS spaced
    ) q
    HAVING count(*) FILTER (WHERE length(n.name) > CASE WHEN q.spaced THEN 2 ELSE 1 END) > 0
$$;
