-- The terms of a document as the index has them: each behind a mark of its tenant and project, so that a search never
-- walks through what belongs to others.
CREATE OR REPLACE FUNCTION lexical_keys(p_tenant text, p_project text, p_terms text[])
RETURNS text[]
LANGUAGE plpgsql IMMUTABLE
AS $$
DECLARE
    v_mark text := left(md5(p_tenant || '/' || p_project), 8);
    v_keys text[] := '{}';
    v_term text;
BEGIN
    FOREACH v_term IN ARRAY p_terms LOOP
        v_keys := v_keys || (v_mark || v_term);
    END LOOP;
    RETURN v_keys;
END
$$;
