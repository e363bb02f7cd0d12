-- The terms an object is found by: its title, key and labels and the words of its properties, in the project's
-- language;
-- one of no project by its words as they are. Runs with the rights of its caller.
CREATE OR REPLACE FUNCTION object_terms(
    p_tenant text, p_project text, p_title text, p_key text, p_labels text[], p_text text)
RETURNS tsvector
LANGUAGE plpgsql STABLE
AS $$
BEGIN
    RETURN to_tsvector(
        CASE WHEN p_project IS NULL THEN 'simple' ELSE project_language(p_tenant, p_project) END,
        left(concat_ws(' ', p_title, p_key, array_to_string(p_labels, ' '), p_text), 200000));
END
$$;
