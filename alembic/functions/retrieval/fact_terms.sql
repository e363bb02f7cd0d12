-- The terms a fact is found by: the names of what it speaks of, its predicate and its value, in this language. Names
-- written as one word are taken apart at underscores and humps.
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
