-- Return the nodes that a level of a walk reaches: those of p_found that the statement of walk_node_query returns, that
-- are not among p_known, at most p_limit of the lowest ids and p_bytes of text. front: from where the next level
-- starts; with p_phased also from nodes that are known. tried: how many were looked for; is_full: whether a limit left
-- some out. Runs with the rights and the planner settings of walk_objects, so that arrays are joined by hash.
CREATE OR REPLACE FUNCTION reach_nodes(
    p_query text, p_known uuid[], p_found uuid[], p_phased boolean, p_level int, p_limit int, p_slice int,
    p_bytes bigint,
    OUT ids uuid[], OUT texts text[], OUT front uuid[], OUT tried int, OUT bytes bigint, OUT is_full boolean)
LANGUAGE plpgsql STABLE
AS $$
#variable_conflict use_column
DECLARE
    v_end text := format(',"depth":%s}', p_level);
    v_tried uuid[];
    v_read record;
BEGIN
    IF p_phased THEN
        v_tried := ARRAY(SELECT DISTINCT f.id FROM unnest(p_found) f(id) ORDER BY f.id);
        v_read := read_nodes(p_query, v_tried, NULL, v_end, p_slice, p_bytes);
        SELECT array_agg(n.id ORDER BY n.id), array_agg(n.fragment ORDER BY n.id) INTO ids, texts
        FROM unnest(v_read.ids, v_read.texts) n(id, fragment)
        WHERE NOT EXISTS (SELECT FROM unnest(p_known) k(id) WHERE k.id = n.id);
        front := ARRAY(
            SELECT n.id FROM unnest(v_read.ids) n(id)
            WHERE NOT EXISTS (SELECT FROM unnest(ids[p_limit + 1 :]) k(id) WHERE k.id = n.id) ORDER BY n.id);
    ELSE
        v_tried := ARRAY(
            SELECT DISTINCT f.id FROM unnest(p_found) f(id)
            WHERE NOT EXISTS (SELECT FROM unnest(p_known) k(id) WHERE k.id = f.id) ORDER BY f.id);
        v_read := read_nodes(p_query, v_tried, p_limit + 1, v_end, p_slice, p_bytes);
        ids := v_read.ids;
        texts := v_read.texts;
        front := coalesce(ids[:p_limit], '{}');
    END IF;
    tried := cardinality(v_tried);
    bytes := v_read.bytes;
    is_full := v_read.is_full OR coalesce(cardinality(ids) > p_limit, false);
    ids := coalesce(ids[:p_limit], '{}');
    texts := coalesce(texts[:p_limit], '{}');
END
$$;
