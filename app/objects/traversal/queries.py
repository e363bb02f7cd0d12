"""All SQL of traversal; the walks themselves are SQL functions."""

# The neighbourhood of some objects, as JSON text that is sent as it is.
EXPAND_OBJECTS = """
    SELECT * FROM expand_objects(
        %(tenant)s, %(project)s, %(roots)s::uuid[], %(steps)s::jsonb, %(include)s::jsonb, %(options)s::jsonb)"""

# One page of a walk, in the order of depth and id.
TRAVERSE_OBJECTS = """
    SELECT * FROM traverse_objects(
        %(tenant)s, %(project)s, %(roots)s::uuid[], %(steps)s::jsonb, %(options)s::jsonb)"""

# A walk and what its response shows of rows under legal hold: objects, relationships, and the ends of these. The ids
# are computed before the lookups: under a policy an index serves no expression that might leak.
_WITH_HELD = """
    WITH walk AS MATERIALIZED ({walk}),
    shown_objects AS MATERIALIZED (
        SELECT (n ->> 'id')::uuid AS id
        FROM walk CROSS JOIN LATERAL json_array_elements(('[' || walk.nodes || ']')::json) n{roots}
    ),
    shown_relationships AS MATERIALIZED (
        SELECT (e ->> 'id')::uuid AS id, (e ->> '{src}')::uuid AS src_id, (e ->> '{dst}')::uuid AS dst_id
        FROM walk CROSS JOIN LATERAL json_array_elements(('[' || walk.edges || ']')::json) e
    ),
    held_relationships AS MATERIALIZED (
        SELECT s.* FROM shown_relationships s
        WHERE EXISTS (SELECT FROM graph_relationship_versions v
                      WHERE v.tenant_id = %(tenant)s AND v.canonical_id = s.id AND v.suppression > 0)
    )
    SELECT walk.*,
           ARRAY(SELECT DISTINCT s.id FROM shown_objects s
                 WHERE EXISTS (SELECT FROM graph_object_versions v
                               WHERE v.tenant_id = %(tenant)s AND v.canonical_id = s.id AND v.suppression > 0)
                 ORDER BY s.id) AS held_objects,
           ARRAY(SELECT h.id FROM held_relationships h ORDER BY h.id) AS held_relationships,
           ARRAY(SELECT h.src_id FROM held_relationships h UNION SELECT h.dst_id FROM held_relationships h) AS held_ends
    FROM walk"""
EXPAND_WITH_HELD = _WITH_HELD.format(walk=EXPAND_OBJECTS, src="src", dst="dst", roots="")
# A page names all roots, also those that its nodes leave out.
_ROOTS = "\n        UNION ALL SELECT r.id::uuid FROM walk CROSS JOIN LATERAL unnest(walk.roots) r(id)"
TRAVERSE_WITH_HELD = _WITH_HELD.format(walk=TRAVERSE_OBJECTS, src="src_id", dst="dst_id", roots=_ROOTS)
