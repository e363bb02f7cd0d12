-- Returns the terms of an object: title, key, labels and properties, in the language of the project; unstemmed when it
-- belongs to no project. Runs with the rights of its caller.
CREATE OR REPLACE FUNCTION object_terms(
    p_tenant text, p_project text, p_title text, p_key text, p_labels text[], p_text text)
RETURNS tsvector
LANGUAGE plpgsql STABLE
AS $$
BEGIN
    RETURN to_tsvector(
        CASE WHEN p_project IS NULL THEN 'simple'::regconfig ELSE project_language(p_tenant, p_project) END,
        fold_words(concat_ws(' ', p_title, p_key, array_to_string(p_labels, ' '), p_text)));
END
$$;
