-- The lowest UUIDv7 of a time, so that a range of times is a range of ids.
CREATE OR REPLACE FUNCTION first_id(p_at timestamptz)
RETURNS uuid
LANGUAGE sql IMMUTABLE PARALLEL SAFE
AS $$
    SELECT (lpad(to_hex((extract(epoch FROM p_at) * 1000)::bigint), 12, '0') || '70008000000000000000')::uuid
$$;
