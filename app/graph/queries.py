"""SQL of the graph; the traversal itself is a function of the database."""

# An entity and one page of its neighbors.
FIND_NEIGHBORS = """
    SELECT * FROM find_neighbors(
        %(tenant)s, %(project)s, %(entity)s::uuid, %(name)s, %(scope)s, %(depth)s, %(direction)s,
        %(labels)s::json, %(prefixes)s::text[], %(min_confidence)s, %(min_trust)s, %(valid_at)s::timestamptz,
        %(as_of)s::timestamptz, %(pinned)s::timestamptz, %(fanout)s::int[], %(most)s, %(after_hops)s::int,
        %(after)s::uuid, %(limit)s)"""
