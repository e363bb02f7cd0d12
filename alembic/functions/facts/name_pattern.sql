-- One regular expression for all names of an entity (its own, its aliases, what was merged into it), as fold_name spells
-- them and as whole words, whatever white space stands between them; in scripts that put no space between words, anywhere.
-- In a URI white space was made a hyphen, so a hyphen is white space there too (in addresses %20). Names of one or two
-- letters (there: of one) fit too much and are left out; NULL when none is left. One and not many: PostgreSQL keeps only
-- a few of them compiled.
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
    -- All that app/facts/names.py takes for white space; and how a URI begins there.
    CROSS JOIN (
        SELECT '[[:space:]\u001C-\u001F\u0085\u00A0\u1680\u2000-\u200A\u2028\u2029\u202F\u205F\u3000]+' AS gap
    ) g
    CROSS JOIN LATERAL (SELECT coalesce(substring(n.name FROM '^[a-z][a-z0-9+.-]*:(?=[^ ])'), '') AS scheme) u
    CROSS JOIN LATERAL (
        SELECT regexp_replace(u.scheme, '([.+-])', '\\\1', 'g') || replace(
                   regexp_replace(substr(n.name, length(u.scheme) + 1), '([][\\.^$*+?(){}|-])', '\\\1', 'g'),
                   CASE WHEN u.scheme = '' THEN ' ' ELSE '\-' END,
                   CASE WHEN u.scheme = '' THEN g.gap ELSE '(?:-|%20|' || g.gap || ')' END) AS quoted,
               n.name ~ '^[ -~À-ɏͰ-ӿ]+$' AS spaced
    ) q
    HAVING count(*) FILTER (WHERE length(n.name) > CASE WHEN q.spaced THEN 2 ELSE 1 END) > 0
$$;
