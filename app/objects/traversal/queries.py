"""All SQL of traversal; the walks themselves are SQL functions."""

# The neighbourhood of some objects, as JSON text that is sent as it is.
EXPAND_OBJECTS = """
    SELECT * FROM expand_objects(
        %(tenant)s, %(project)s, %(roots)s::uuid[], %(steps)s::jsonb, %(phased)s, %(depth)s, %(time)s::timestamptz,
        %(fan)s, %(cap)s, %(most)s, %(dedupe)s, %(distinct)s, %(paths)s, %(most_paths)s, %(include)s::jsonb)"""

# One page of a walk, in the order of depth and id.
TRAVERSE_OBJECTS = """
    SELECT * FROM traverse_objects(
        %(tenant)s, %(project)s, %(roots)s::uuid[], %(steps)s::jsonb, %(depth)s, %(cap)s, %(most)s,
        %(after_depth)s::int, %(after)s::uuid, %(back)s, %(limit)s)"""
