-- Returns a name of an entity as a text spells it, cut to 200 characters. spelling: `exact` when it is one of its names
-- as they were given, `folded` when it is one in a spelling that search finds too (see name_patterns), `none` when the
-- text has none. Runs with the rights of its caller.
CREATE OR REPLACE FUNCTION find_mention(p_tenant text, p_entity uuid, p_text text, OUT mention text, OUT spelling text)
LANGUAGE plpgsql STABLE
AS $$
DECLARE
    v_letter text := '[0-9A-Za-zÀ-ɏͰ-ӿ]';
    v_names text[];
    v_at int;
    v_folded text;
    v_pattern text;
    v_start int;
BEGIN
    SELECT array_agg(n.name ORDER BY length(n.name) DESC, n.name) INTO v_names FROM (
        SELECT e.canonical AS name FROM graph_entities e WHERE e.tenant_id = p_tenant AND e.entity_id = p_entity
        UNION
        SELECT a.alias FROM graph_entity_aliases a WHERE a.tenant_id = p_tenant AND a.entity_id = p_entity) n;
    -- The cheap and usual case first.
    FOREACH mention IN ARRAY v_names LOOP
        v_at := strpos(p_text, mention);
        IF v_at > 0 AND NOT (left(mention, 1) ~ v_letter AND substr(p_text, v_at - 1, 1) ~ v_letter)
           AND NOT (right(mention, 1) ~ v_letter AND substr(p_text, v_at + length(mention), 1) ~ v_letter) THEN
            mention := left(mention, 200);
            spelling := 'exact';
            RETURN;
        END IF;
    END LOOP;
    mention := NULL;
    spelling := 'none';
    v_folded := fold_name(p_text);
    -- A pattern is expensive; without the last word of a name it cannot match.
    IF NOT EXISTS (
        SELECT FROM find_names(p_tenant, p_entity) f CROSS JOIN unnest(f.names) n(name)
        WHERE n.name !~ '^[0-9a-zÀ-ɏͰ-ӿ ]+$' OR strpos(v_folded, regexp_replace(n.name, '^.* ', '')) > 0) THEN
        RETURN;
    END IF;
    SELECT p.certain INTO v_pattern FROM name_patterns(p_tenant, p_entity) p;
    v_start := regexp_instr(v_folded, v_pattern);
    IF v_start > 0 THEN
        v_at := unfolded_position(p_text, v_start);
        mention := substr(p_text, v_at,
            unfolded_position(p_text, regexp_instr(v_folded, v_pattern, 1, 1, 1) - 1) - v_at + 1);
        -- A pattern also matches what stands before and after a name.
        mention := left(regexp_replace(mention, format('^(?:%1$s|,)+|(?:%1$s|,)+$', name_gap()), '', 'gi'), 200);
        spelling := CASE WHEN mention = ANY (v_names) THEN 'exact' ELSE 'folded' END;
    END IF;
END
$$;
