-- Returns two regular expressions for all names of an entity (its own, its aliases, those merged into it), as fold_name
-- spells texts; NULL where there is nothing to search for.
-- certain: the words of a name in their order, with anything but letters, digits and commas between them, or the last
-- word, a comma and the others; in scripts without spaces anywhere. Names of one or two letters (in scripts without
-- spaces, of one) and single words that search ignores (stop words) are left out.
-- possible: the first and the last word anywhere in the text, all words as one, the initial of the first with the last,
-- or a single word that search ignores.
-- One expression each, because PostgreSQL keeps only a few compiled. Runs with the rights of its caller.
CREATE OR REPLACE FUNCTION name_patterns(p_tenant text, p_entity uuid, OUT certain text, OUT possible text)
LANGUAGE plpgsql STABLE
AS $$
DECLARE
    v_start text := '(?:^|[^0-9a-zÀ-ɏͰ-ӿ])';
    v_end text := '(?:[^0-9a-zÀ-ɏͰ-ӿ]|$)';
    v_gap text := name_gap() || '+';
    v_comma text := name_gap() || '*,' || name_gap() || '*';
    v_language regconfig;
    v_name text;
    v_words text[];
    v_last text;
    v_whole text[] := '{}';
    v_within text[] := '{}';
    v_perhaps text[] := '{}';
BEGIN
    SELECT project_language(p_tenant, e.project_id) INTO v_language FROM graph_entities e
    WHERE e.tenant_id = p_tenant AND e.entity_id = p_entity;
    FOREACH v_name IN ARRAY (SELECT n.names FROM find_names(p_tenant, p_entity) n) LOOP
        v_words := string_to_array(v_name, ' ');
        v_last := v_words[cardinality(v_words)];
        IF v_name !~ '^[0-9a-zÀ-ɏͰ-ӿ ]+$' THEN
            IF length(v_name) > 1 THEN
                -- With or without a space between given name and surname.
                v_within := v_within || replace(regexp_replace(
                    v_name, format('([%1$s]) ?(?=[%1$s])', unspaced_letters()), '\1[[:space:]・·=]*', 'g'), ' ', v_gap);
            END IF;
        ELSIF cardinality(v_words) > 1 THEN
            IF length(v_name) > 2 THEN
                v_whole := v_whole || array_to_string(v_words, v_gap)
                    || (v_last || v_comma || array_to_string(v_words[:cardinality(v_words) - 1], v_gap));
            END IF;
            v_perhaps := v_perhaps
                || format('^(?=%1$s%2$s%4$s)%1$s%3$s%4$s', '(?:.*[^0-9a-zÀ-ɏͰ-ӿ])?', v_words[1], v_last, v_end)
                || (v_start || array_to_string(v_words, '') || v_end)
                || (v_start || left(v_words[1], 1) || v_gap || v_last || v_end);
        ELSIF length(to_tsvector(v_language, v_name)) = 0 THEN
            v_perhaps := v_perhaps || (v_start || v_name || v_end);
        ELSIF length(v_name) > 2 THEN
            v_whole := v_whole || v_name;
        END IF;
    END LOOP;
    certain := nullif(concat_ws('|',
        v_start || '(?:' || nullif(array_to_string(v_whole, '|'), '') || ')' || v_end,
        nullif(array_to_string(v_within, '|'), '')), '');
    possible := nullif(array_to_string(v_perhaps, '|'), '');
END
$$;
