-- Returns the terms of a note: author, date, tags and content, in the language of the project. Runs with the rights of
-- its caller.
CREATE OR REPLACE FUNCTION note_terms(
    p_tenant text, p_project text, p_author text, p_occurred_at timestamptz, p_tags text[], p_content text)
RETURNS tsvector
LANGUAGE plpgsql STABLE
AS $$
BEGIN
    RETURN to_tsvector(project_language(p_tenant, p_project), fold_words(concat_ws(' ',
        p_author, to_char(p_occurred_at AT TIME ZONE 'UTC', 'FMDD FMMonth YYYY'), array_to_string(p_tags, ' '),
        p_content)));
END
$$;
