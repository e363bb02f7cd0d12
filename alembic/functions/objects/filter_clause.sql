-- Return the SQL condition for a row called x: predicates {column, path, operator, value}, checked by the service, all
-- of which have to hold; without a column the path leads into the properties. Every value of a caller is a quoted
-- literal. A missing value equals nothing and differs from everything; numbers are only compared with numbers, strings
-- with strings by their bytes, and columns of times as times.
CREATE OR REPLACE FUNCTION filter_clause(p_predicates jsonb)
RETURNS text
LANGUAGE plpgsql IMMUTABLE
AS $$
DECLARE
    v_one jsonb;
    v_column text;
    v_path text[];
    v_operator text;
    v_given jsonb;
    v_text text;
    v_found text;
    v_clauses text := '';
BEGIN
    FOR v_one IN SELECT p.one FROM jsonb_array_elements(p_predicates) p(one) LOOP
        v_column := v_one ->> 'column';
        v_path := ARRAY(SELECT t.token FROM jsonb_array_elements_text(v_one -> 'path') t(token));
        v_operator := v_one ->> 'operator';
        v_given := v_one -> 'value';
        v_text := v_given #>> '{}';
        v_found := CASE
            WHEN v_column IS NULL THEN 'x.properties'
            WHEN v_column IN ('key', 'title', 'status', 'subtype', 'weight', 'role_src', 'role_dst')
                THEN format('coalesce(to_jsonb(x.%I), x.properties -> %L)', v_column, v_column)
            ELSE format('to_jsonb(x.%I)', v_column)
        END;
        IF cardinality(v_path) > 0 THEN
            v_found := CASE
                WHEN EXISTS (SELECT FROM unnest(v_path) t(token)
                             WHERE t.token ~ '^\s*[-+]?[0-9]+$' AND t.token !~ '^(0|[1-9][0-9]*)$')
                    THEN format('json_at(%s, %L::text[])', v_found, v_path)
                ELSE format('(%s #> %L::text[])', v_found, v_path)
            END;
        END IF;
        v_clauses := v_clauses || ' AND ' || CASE
            WHEN v_operator = 'exists' THEN format('((%s IS NOT NULL) = %L::boolean)', v_found, v_text)
            WHEN v_column IN ('effective_from', 'effective_to', 'valid_from', 'valid_to', 'created_at', 'updated_at')
                THEN CASE
                    WHEN v_operator IN ('in', 'notIn') THEN format(
                        '(coalesce(x.%I = ANY (%L::timestamptz[]), false) = %L::boolean)', v_column,
                        ARRAY(SELECT t.given FROM jsonb_array_elements_text(v_given) t(given)
                              WHERE t.given IS NOT NULL),
                        v_operator = 'in')
                    WHEN v_operator = 'notEquals' THEN CASE WHEN v_text IS NULL THEN 'true'
                        ELSE format('(x.%I IS DISTINCT FROM %L::timestamptz)', v_column, v_text) END
                    ELSE format('coalesce(x.%I %s %L::timestamptz, false)', v_column, CASE v_operator
                        WHEN 'equals' THEN '=' WHEN 'greaterThan' THEN '>' WHEN 'greaterThanOrEqual' THEN '>='
                        WHEN 'lessThan' THEN '<' WHEN 'lessThanOrEqual' THEN '<=' END, v_text)
                END
            WHEN v_operator = 'equals' THEN format('coalesce(%s = %L::jsonb, false)', v_found, v_given)
            WHEN v_operator = 'notEquals' THEN format('(%s IS DISTINCT FROM %L::jsonb)', v_found, v_given)
            WHEN v_operator IN ('in', 'notIn') THEN format(
                '(coalesce(%s = ANY (%L::jsonb[]), false) = %L::boolean)', v_found,
                ARRAY(SELECT t.given FROM jsonb_array_elements(v_given) t(given)), v_operator = 'in')
            WHEN v_operator = 'contains' THEN CASE
                WHEN jsonb_typeof(v_given) = 'string' THEN format(
                    'CASE jsonb_typeof(%1$s) WHEN ''string'' THEN strpos(%1$s #>> ''{}'', %2$L) > 0 '
                    'WHEN ''array'' THEN %1$s @> %3$L::jsonb ELSE false END', v_found, v_text, v_given)
                ELSE format(
                    'CASE jsonb_typeof(%1$s) WHEN ''array'' THEN %1$s @> %2$L::jsonb ELSE false END', v_found, v_given)
            END
            WHEN v_operator = 'startsWith' THEN format(
                'CASE jsonb_typeof(%1$s) WHEN ''string'' THEN starts_with(%1$s #>> ''{}'', %2$L) ELSE false END',
                v_found, v_text)
            WHEN v_operator = 'endsWith' THEN format(
                'CASE jsonb_typeof(%1$s) WHEN ''string'' THEN right(%1$s #>> ''{}'', length(%2$L)) = %2$L '
                'ELSE false END', v_found, v_text)
            WHEN jsonb_typeof(v_given) = 'number' THEN format(
                'CASE jsonb_typeof(%1$s) WHEN ''number'' THEN (%1$s)::numeric %2$s %3$L::numeric ELSE false END',
                v_found, CASE v_operator WHEN 'greaterThan' THEN '>' WHEN 'greaterThanOrEqual' THEN '>='
                                         WHEN 'lessThan' THEN '<' WHEN 'lessThanOrEqual' THEN '<=' END, v_text)
            ELSE format(
                'CASE jsonb_typeof(%1$s) WHEN ''string'' THEN (%1$s #>> ''{}'') COLLATE "C" %2$s %3$L ELSE false END',
                v_found, CASE v_operator WHEN 'greaterThan' THEN '>' WHEN 'greaterThanOrEqual' THEN '>='
                                         WHEN 'lessThan' THEN '<' WHEN 'lessThanOrEqual' THEN '<=' END, v_text)
        END;
    END LOOP;
    RETURN v_clauses;
END
$$;
