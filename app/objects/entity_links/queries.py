"""All SQL of links between entities and objects."""

from sqlalchemy import text

# Bind an entity to an object, or with NULL to none.
BIND_ENTITY = text("SELECT * FROM bind_entity(CAST(:entity AS uuid), CAST(:object AS uuid), :admin, :shared, :key)")

# The project's main branch; NULL when there is no such project.
MAIN_BRANCH = "SELECT ensure_main_branch(%(project)s) AS branch_id"

# Entities that may have an object, which all users share: common to all users, not merged, and not hidden by a
# tombstone in project_shared.
_BINDABLE = """
    e.tenant_id = %(tenant)s AND e.project_id = %(project)s AND e.merged_into IS NULL AND e.suppression = 0
    AND e.user_id = '' AND hidden_level(e.erased_scopes, e.held_scopes, 'project_shared') = 0"""
# Facts between two entities that are valid now and that the whole project may read.
_CURRENT = """
    f.tenant_id = %(tenant)s AND f.project_id = %(project)s AND f.object_entity_id IS NOT NULL
    AND f.user_id = ''
    AND f.scope <> 'agent_private' AND f.garden_id IS NULL AND f.retracted_at IS NULL AND f.suppression = 0
    AND f.valid_from <= %(now)s AND f.valid_until > %(now)s"""
_TYPE = "coalesce(e.kind, 'Entity')"
_KEY_EXISTS = f"""
    EXISTS (SELECT FROM graph_objects o
            WHERE o.tenant_id = %(tenant)s AND o.branch_id = %(branch)s::uuid AND o.type = {_TYPE}
              AND o.key = e.canonical_norm AND o.deleted_at IS NULL)"""

# The object of an end of a fact: the one it is bound to, if that is live on main, or NULL for one to be created.
_END = f"""
    SELECT e.object_canonical_id AS id FROM graph_entities e
    WHERE {_BINDABLE} AND e.entity_id = f.{{end}}_entity_id
      AND (e.object_canonical_id IS NULL OR EXISTS (
          SELECT FROM graph_objects o
          WHERE o.tenant_id = %(tenant)s AND o.branch_id = %(branch)s::uuid
            AND o.canonical_id = e.object_canonical_id AND o.deleted_at IS NULL))"""

# Entities without an object, with their other names.
UNBOUND_ENTITIES = f"""
    SELECT e.entity_id, e.canonical, e.canonical_norm, {_TYPE} AS type,
           ARRAY(SELECT a.alias FROM graph_entity_aliases a
                 WHERE a.tenant_id = %(tenant)s AND a.entity_id = e.entity_id AND a.user_id = ''
                 ORDER BY a.alias_norm) AS aliases
    FROM graph_entities e
    WHERE {_BINDABLE} AND e.object_canonical_id IS NULL AND e.entity_id > %(after)s::uuid
    ORDER BY e.entity_id LIMIT %(limit)s"""

# Facts that may become relationships, oldest first.
CURRENT_FACTS = f"""
    SELECT f.fact_id FROM graph_facts f WHERE {_CURRENT} AND f.fact_id > %(after)s::uuid
    ORDER BY f.fact_id LIMIT %(limit)s"""

BACKFILL_OBJECTS = text("SELECT * FROM backfill_objects(CAST(:rows AS json))")
BACKFILL_RELATIONSHIPS = text("SELECT backfill_relationships(CAST(:rows AS json)) AS made")

# What a run would create.
COUNT_UNBOUND = f"""
    SELECT count(*) FILTER (WHERE NOT x.found) AS made, count(*) FILTER (WHERE x.found) AS bound
    FROM (SELECT {_KEY_EXISTS} AS found FROM graph_entities e WHERE {_BINDABLE} AND e.object_canonical_id IS NULL) x"""
COUNT_RELATIONSHIPS = f"""
    SELECT count(*) AS made
    FROM (SELECT DISTINCT f.subject_entity_id, f.predicate_id, f.object_entity_id FROM graph_facts f
          WHERE {_CURRENT} AND f.subject_entity_id <> f.object_entity_id) f
    JOIN graph_predicates p ON p.tenant_id = %(tenant)s AND p.predicate_id = f.predicate_id
    CROSS JOIN LATERAL ({_END.format(end="subject")}) a
    CROSS JOIN LATERAL ({_END.format(end="object")}) b
    WHERE (a.id IS NULL OR a.id IS DISTINCT FROM b.id)
      AND NOT EXISTS (
          SELECT FROM graph_relationships r
          WHERE r.tenant_id = %(tenant)s AND r.branch_id = %(branch)s::uuid AND r.src_id = a.id
            AND r.type = p.canonical AND r.dst_id = b.id)"""
