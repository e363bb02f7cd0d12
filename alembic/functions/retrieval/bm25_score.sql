-- Returns the BM25 score of one term in one document. k1 is 0.9 and b 0.6, here and in app/retrieval/lexical.py.
-- Plain SQL without settings, so that it is inlined.
CREATE OR REPLACE FUNCTION bm25_score(
    p_idf double precision, p_frequency double precision, p_length double precision, p_average double precision)
RETURNS double precision
LANGUAGE sql IMMUTABLE
AS $$
    SELECT p_idf * p_frequency * (0.9 + 1) / (p_frequency + 0.9 * (1 - 0.6 + 0.6 * p_length / p_average))
$$;
