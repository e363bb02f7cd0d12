-- The hash by which a fact is cited: SHA-256 over the RFC 8785 form of its content when it was written.
-- to_json escapes a string as RFC 8785 does; a number's shortest form differs only in where the exponent begins.
CREATE OR REPLACE FUNCTION hash_fact(
    p_confidence double precision, p_entity text, p_relation text, p_scope text, p_source text, p_ts timestamptz,
    p_type text, p_value text)
RETURNS bytea
LANGUAGE sql STABLE PARALLEL SAFE
AS $$
    SELECT sha256(convert_to(
        '{"confidence":' || CASE
            WHEN p_confidence = 0 THEN '0'
            WHEN p_confidence < 1e-6 THEN replace(p_confidence::text, 'e-0', 'e-')
            ELSE p_confidence::text::numeric::text END
        || ',"entity":' || to_json(p_entity)::text
        || ',"relation":' || to_json(p_relation)::text
        || ',"scope":' || to_json(p_scope)::text
        || ',"source":' || coalesce(to_json(p_source)::text, 'null')
        || ',"ts":"' || to_char(p_ts AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.US"Z"')
        || '","value":{"type":"' || p_type || '","v":' || p_value || '}}', 'UTF8'))
$$;
