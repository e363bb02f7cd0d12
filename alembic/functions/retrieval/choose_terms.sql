-- Returns the terms of a query to look up in the index: the rarest, as long as their documents together are at most
-- p_most, and at least one. Frequent terms would have too many documents read; they still count for the score.
CREATE OR REPLACE FUNCTION choose_terms(p_terms text[], p_documents bigint[], p_most bigint)
RETURNS text[]
LANGUAGE plpgsql IMMUTABLE
AS $$
BEGIN
    RETURN ARRAY(
        SELECT c.term FROM (
            SELECT t.term, t.documents, sum(t.documents) OVER (ORDER BY t.documents, t.term) AS brings
            FROM unnest(p_terms, p_documents) t(term, documents) WHERE t.documents > 0
        ) c
        WHERE c.brings <= p_most OR c.brings = c.documents
        ORDER BY c.term);
END
$$;
