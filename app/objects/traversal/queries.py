"""All SQL of traversal; the walks themselves are SQL functions."""

# The neighbourhood of some objects, as JSON text that is sent as it is.
EXPAND_OBJECTS = """
    SELECT * FROM expand_objects(
        %(tenant)s, %(project)s, %(roots)s::uuid[], %(steps)s::jsonb, %(include)s::jsonb, %(options)s::jsonb)"""

# One page of a walk, in the order of depth and id.
TRAVERSE_OBJECTS = """
    SELECT * FROM traverse_objects(
        %(tenant)s, %(project)s, %(roots)s::uuid[], %(steps)s::jsonb, %(options)s::jsonb)"""
