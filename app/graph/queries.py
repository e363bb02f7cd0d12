"""SQL of the graph; the traversal itself is a function of the database."""

# An entity and one page of its neighbors.
FIND_NEIGHBORS = """
    SELECT * FROM find_neighbors(
        ROW(%(tenant)s, %(project)s, %(valid_at)s::timestamptz, %(as_of)s::timestamptz, %(scope)s)::read_context,
        ROW(%(depth)s, %(direction)s, %(min_confidence)s, %(min_trust)s, %(fanout)s::int[], %(max_nodes)s)::traversal,
        %(entity)s::uuid, %(name)s, %(labels)s::json, %(prefixes)s::text[], %(pinned)s::timestamptz,
        %(after_hops)s::int, %(after)s::uuid, %(limit)s)"""
