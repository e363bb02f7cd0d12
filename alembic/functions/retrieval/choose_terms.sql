-- Which terms to look up, out of those a query has: the rarest, as long as they bring few documents together, and one at
-- least. What stands everywhere tells nothing apart, and would have everything read; it still counts for the score.
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
