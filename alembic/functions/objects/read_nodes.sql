-- Return ids and JSON fragments of nodes by the statement of walk_node_query, p_slice of them at a time, in the order
-- given, at most p_limit (NULL: all) and p_bytes of text; is_full: whether p_bytes left some out. Runs with the rights
-- of its caller.
CREATE OR REPLACE FUNCTION read_nodes(
    p_query text, p_ids uuid[], p_limit int, p_end text, p_slice int, p_bytes bigint,
    OUT ids uuid[], OUT texts text[], OUT bytes bigint, OUT is_full boolean)
LANGUAGE plpgsql STABLE
AS $$
DECLARE
    v_ids uuid[];
    v_texts text[];
    v_from int := 1;
    v_size bigint;
BEGIN
    ids := '{}';
    texts := '{}';
    bytes := 0;
    is_full := false;
    WHILE v_from <= cardinality(p_ids) LOOP
        EXECUTE p_query INTO v_ids, v_texts
        USING p_ids[v_from : v_from + p_slice - 1], p_limit - cardinality(ids), p_end;
        IF v_ids IS NOT NULL THEN
            SELECT sum(octet_length(t.text)) INTO v_size FROM unnest(v_texts) t(text);
            IF bytes + v_size > p_bytes THEN
                SELECT array_agg(n.id ORDER BY n.place), array_agg(n.text ORDER BY n.place), max(n.size)
                INTO v_ids, v_texts, v_size
                FROM (SELECT t.id, t.text, t.place, sum(octet_length(t.text)) OVER (ORDER BY t.place) AS size
                      FROM unnest(v_ids, v_texts) WITH ORDINALITY t(id, text, place)) n
                WHERE bytes + n.size <= p_bytes;
                is_full := true;
            END IF;
            ids := ids || coalesce(v_ids, '{}');
            texts := texts || coalesce(v_texts, '{}');
            bytes := bytes + coalesce(v_size, 0);
        END IF;
        EXIT WHEN is_full OR cardinality(ids) >= p_limit;
        v_from := v_from + p_slice;
    END LOOP;
    IF ids = '{}' THEN
        ids := NULL;
        texts := NULL;
    END IF;
END
$$;
