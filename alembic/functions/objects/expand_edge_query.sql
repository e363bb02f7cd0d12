-- Return the statement that presents the edges of a walk: each once, as first followed, ordered by id, as JSON
-- fragments. Its parameters: $1 to $7 edges, from_ids, to_ids, forwards, types, weights and levels of walk_objects, $8
-- its links, $9 and $10 the pairs of neighbors on paths. p_kept: all; first: only $8; path: only between neighbors on
-- paths. p_max_edges: NULL when there are fewer edges, else the nearest so many are returned. p_include: the fields of
-- an edge. p_as_of: as they were recorded then.
CREATE OR REPLACE FUNCTION expand_edge_query(
    p_tenant text, p_branches uuid[], p_include jsonb, p_kept text, p_max_edges int, p_as_of timestamptz)
RETURNS text
LANGUAGE plpgsql IMMUTABLE
AS $$
DECLARE
    -- Whether fields are read from the table; only these can be long, so that their text has a limit.
    v_stored boolean := p_include -> 'stored' IS NOT DISTINCT FROM 'true'::jsonb;
    c_bytes CONSTANT bigint := 33554432;
    v_query text;
BEGIN
    v_query := 'SELECT DISTINCT ON (e.id) e.id AS canonical_id, '
        'CASE WHEN e.forward THEN e.from_id ELSE e.to_id END AS src_id, '
        'CASE WHEN e.forward THEN e.to_id ELSE e.from_id END AS dst_id, e.type, e.weight, e.level, e.from_id, e.to_id '
        'FROM unnest($1, $2, $3, $4, $5, $6, $7) e(id, from_id, to_id, forward, type, weight, level) '
        || CASE p_kept
               WHEN 'first' THEN 'WHERE e.id IN (SELECT unnest($8)) '
               WHEN 'path' THEN 'WHERE (e.from_id, e.to_id) IN (SELECT p.from_id, p.to_id '
                                'FROM unnest($9, $10) p(from_id, to_id)) '
               ELSE '' END
        || 'ORDER BY e.id, e.level, e.from_id';
    IF p_max_edges IS NOT NULL THEN
        v_query := format('SELECT n.* FROM (SELECT c.* FROM (%s) c ORDER BY c.level, c.canonical_id LIMIT %s) n '
                          'ORDER BY n.canonical_id', v_query, p_max_edges);
    END IF;
    IF v_stored THEN
        v_query := format(
            'SELECT s.*, c.from_id, c.to_id FROM (%s) c CROSS JOIN LATERAL (%s) s ORDER BY c.canonical_id', v_query,
            CASE WHEN p_as_of IS NULL THEN format(
                    'SELECT r.* FROM graph_relationships r WHERE r.tenant_id = %L AND r.branch_id = ANY (%L::uuid[]) '
                    'AND r.canonical_id = c.canonical_id OFFSET 0', p_tenant, p_branches)
                 ELSE version_query('relationship', p_tenant, p_branches, 'c.canonical_id', p_as_of) END);
    END IF;
    v_query := format(
        'SELECT x.from_id, x.to_id, 1 AS total, concat(''{"id":"'', x.canonical_id, ''","src":"'', x.src_id, '
        '''","dst":"'', x.dst_id, ''"''%s, ''}'') AS fragment FROM (%s) x',
        fragment_clause(p_include), v_query);
    IF v_stored THEN
        v_query := format(
            'SELECT s.from_id, s.to_id, s.total, s.fragment FROM ('
            'SELECT c.from_id, c.to_id, c.fragment, count(*) OVER () AS total, '
            'sum(octet_length(c.fragment)) OVER (ROWS UNBOUNDED PRECEDING) AS size FROM (%s) c) s WHERE s.size <= %s',
            v_query, c_bytes);
    END IF;
    RETURN v_query;
END
$$;
