-- Returns how many different terms a text has outside of its questions; few, where somebody only asks or agrees.
-- Runs with the rights of its caller.
CREATE OR REPLACE FUNCTION count_content_terms(p_tenant text, p_project text, p_content text)
RETURNS int
LANGUAGE plpgsql STABLE
AS $$
BEGIN
    RETURN length(to_tsvector(project_language(p_tenant, p_project),
                              regexp_replace(fold_words(p_content, true), '[^.!?。\n]+[.!]*\?+', ' ', 'g')));
END
$$;
