"""All SQL of entities."""

from sqlalchemy import text

# Find the entities that names or ids mean.
RESOLVE_ENTITIES = text("SELECT * FROM resolve_entities(:tenant, :project, CAST(:names AS json))")
# Create an entity, or find the one of that name.
PUT_ENTITY = text("SELECT * FROM put_entity(CAST(:id AS uuid), :canonical, :norm, :kind, CAST(:aliases AS json))")
# Give an entity one more name.
PUT_ALIAS = text("SELECT * FROM put_alias(CAST(:entity AS uuid), CAST(:id AS uuid), :alias, :norm)")
# Merge two entities into one.
MERGE_ENTITIES = text("SELECT * FROM merge_entities(CAST(:source AS uuid), CAST(:target AS uuid), :key)")
# Whether two entities can be merged, and how many facts they have, up to a number.
MEASURE_MERGE = text("SELECT * FROM measure_merge(CAST(:source AS uuid), CAST(:target AS uuid), :most)")
# A merge of many facts takes as long as it takes.
NO_TIMEOUT = text("SET LOCAL statement_timeout = 0")

# The entity of an id: itself, or the one it was merged into.
BY_ID = """(SELECT coalesce(m.merged_into, m.entity_id) FROM graph_entities m
    WHERE m.tenant_id = %(tenant)s AND m.project_id = %(project)s AND m.entity_id = %({name})s::uuid)"""
# The entities of a name: none, one, or several that share an alias. Where one is expected, several make the subquery
# fail, which the caller reports as ambiguous.
BY_NAME = "(SELECT named_entities(%(tenant)s, %(project)s, %({name})s))"
# Entities with all their names.
_ENTITIES = """
    SELECT e.entity_id, e.canonical, e.canonical_norm, e.user_id, e.kind, e.created_at, e.updated_at, e.suppression,
           ARRAY(SELECT a.alias FROM graph_entity_aliases a
                 WHERE a.tenant_id = %(tenant)s AND a.entity_id = e.entity_id{known_alias}
                 ORDER BY a.alias_norm) AS aliases,
           (SELECT o.canonical_id FROM graph_object_versions o
            WHERE o.tenant_id = %(tenant)s AND o.canonical_id = e.object_canonical_id{known_object}
            LIMIT 1) AS object_canonical_id
    FROM graph_entities e WHERE e.tenant_id = %(tenant)s AND {where}
    ORDER BY e.canonical_norm, e.entity_id"""
# Raises an error for a time before the project's retention floor, without a round trip of its own.
AS_OF_ALLOWED = "(SELECT check_as_of(%(tenant)s, %(project)s, %(as_of)s::timestamptz))"
ENTITIES_BY_ID = _ENTITIES.format(where="e.entity_id = ANY (%(ids)s::uuid[])", known_alias="", known_object="")
# How many current facts and live notes about an entity the caller can see, counted up to a limit.
COUNTS = """
    SELECT (SELECT count(*) FROM (
                SELECT f.fact_id FROM graph_facts f
                WHERE f.tenant_id = %(tenant)s AND f.project_id = %(project)s AND f.subject_entity_id = %(entity)s::uuid
                  AND f.valid_until > now() AND f.valid_from <= now() AND f.retracted_at IS NULL
                UNION
                SELECT f.fact_id FROM graph_facts f
                WHERE f.tenant_id = %(tenant)s AND f.project_id = %(project)s AND f.object_entity_id = %(entity)s::uuid
                  AND f.valid_until > now() AND f.valid_from <= now() AND f.retracted_at IS NULL
                LIMIT %(limit)s) counted) AS facts,
           (SELECT count(*) FROM (
                SELECT FROM note_entity_mentions m
                JOIN memory_notes n ON n.tenant_id = %(tenant)s AND n.note_id = m.note_id AND n.deleted_at IS NULL
                WHERE m.tenant_id = %(tenant)s AND m.project_id = %(project)s AND m.entity_id = %(entity)s::uuid
                  AND NOT m.by_name
                LIMIT %(limit)s) counted) AS mentions"""
# A prefix is a range of names: under a row policy an index serves a range, but not LIKE.
PREFIX = "{column} >= %(prefix)s AND {column} < %(prefix)s || U&'\\+10FFFF'"
_FILTERS = {
    "prefix": PREFIX.format(column="e.canonical_norm"),
    "kind": "e.kind = %(kind)s",
    "after": "(e.canonical_norm, e.entity_id) > (%(after)s, %(after_id)s::uuid)",
}


def _entities(where: list[str], *, at_past: bool) -> str:
    known = " AND {0}.created_at <= %(as_of)s::timestamptz" if at_past else ""
    if at_past:
        where = [*where, "e.created_at <= %(as_of)s::timestamptz", AS_OF_ALLOWED]
    return _ENTITIES.format(where=" AND ".join(where), known_alias=known.format("a"), known_object=known.format("o"))


def select_referenced(*, by_id: bool, at_past: bool) -> str:
    """Return the query for the entities that `reference` names, by id or by name."""
    found = f"= {BY_ID.format(name='reference')}" if by_id else f"IN {BY_NAME.format(name='reference')}"
    return _entities([f"e.entity_id {found}"], at_past=at_past)


def select_entities(filters: set[str], *, at_past: bool) -> str:
    """Return the query for a project's entities in the order of their names, with the given filters."""
    where = ["e.project_id = %(project)s", "e.merged_into IS NULL", *(_FILTERS[name] for name in sorted(filters))]
    return f"{_entities(where, at_past=at_past)} LIMIT %(limit)s"
