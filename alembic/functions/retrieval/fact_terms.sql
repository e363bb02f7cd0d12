-- Returns the terms of a fact in a language: the names of its entities, its predicate and its value. Names written as
-- one word are split at underscores and capitals.
CREATE OR REPLACE FUNCTION fact_terms(p_language regconfig, p_subject text, p_predicate text, p_object text)
RETURNS tsvector
LANGUAGE plpgsql IMMUTABLE
AS $$
BEGIN
    RETURN to_tsvector(p_language, fold_words(concat_ws(' ',
        regexp_replace(regexp_replace(
            p_subject || ' ' || p_predicate, '([a-z])([A-Z])', '\1 \2', 'g'), '[_:/.-]+', ' ', 'g'),
        left(p_object, 20000))));
END
$$;
