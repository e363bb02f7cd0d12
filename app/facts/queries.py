"""All SQL of the room facts."""

from datetime import datetime
from typing import Any

from sqlalchemy import (
    select,
    text,
)

from app.facts.tables import (
    fact_closings,
    graph_fact_evidence,
)

# Sets the scope and writes facts, in one round trip.
PUT_FACTS = (
    "SELECT * FROM put_facts(%s, %s, %s, %s::uuid[], %s, %s::json, %s::json, %s::json, %s::json, %s::json, %s, %s, %s)"
)
# The same inside a transaction that has its scope.
WRITE_FACTS = text(
    "SELECT * FROM write_facts(CAST(:entities AS json), CAST(:predicates AS json), CAST(:facts AS json), "
    "CAST(:evidence AS json), CAST(:derived AS json), :atomic, :key, :admin)"
)
# Which entities are meant by names or ids.
RESOLVE_ENTITIES = text("SELECT * FROM resolve_entities(:tenant, :project, CAST(:names AS json))")
# Which predicates are meant by names or ids.
RESOLVE_PREDICATES = text("SELECT * FROM resolve_predicates(:tenant, :project, CAST(:names AS json))")
# The same as a read of its own.
MEANT_PREDICATES = "SELECT * FROM resolve_predicates(%(tenant)s, %(project)s, %(names)s::json)"
# Takes facts back, by id or all under a subject, a predicate and a scope.
RETRACT_FACTS = text(
    "SELECT * FROM retract_facts(CAST(:facts AS uuid[]), CAST(:subject AS uuid), CAST(:predicate AS uuid), :scope, "
    ":reason, :admin, :key)"
)
# Facts whose only evidence is one note.
RESTING_ON = """
    SELECT v.fact_id FROM graph_fact_evidence v
    JOIN graph_facts f ON f.tenant_id = %(tenant)s AND f.fact_id = v.fact_id
    WHERE v.tenant_id = %(tenant)s AND v.note_id = %(note)s::uuid AND f.project_id = %(project)s
      AND f.retracted_at IS NULL AND NOT EXISTS (
        SELECT FROM graph_fact_evidence o
        JOIN memory_notes n ON n.tenant_id = %(tenant)s AND n.note_id = o.note_id AND n.deleted_at IS NULL
        WHERE o.tenant_id = %(tenant)s AND o.fact_id = v.fact_id AND o.note_id <> v.note_id)"""
# Moves the end of one fact.
END_FACT = text("SELECT * FROM end_fact(CAST(:fact AS uuid), CAST(:valid_to AS timestamptz), :admin, :key)")
# Makes an entity or finds the one of that name.
PUT_ENTITY = text("SELECT * FROM put_entity(CAST(:id AS uuid), :canonical, :norm, :kind, CAST(:aliases AS json))")
# Gives an entity one more name.
PUT_ALIAS = text("SELECT * FROM put_alias(CAST(:entity AS uuid), CAST(:id AS uuid), :alias, :norm)")
# Makes one entity of two.
MERGE_ENTITIES = text("SELECT * FROM merge_entities(CAST(:source AS uuid), CAST(:target AS uuid), :key)")
MAX_CHAIN = 200

# What an id means: itself, or what it was merged into.
_BY_ID = """(SELECT coalesce(m.merged_into, m.entity_id) FROM graph_entities m
    WHERE m.tenant_id = %(tenant)s AND m.project_id = %(project)s AND m.entity_id = %({name})s::uuid)"""
# What a name means: one, or none, or several that share an alias. Where one is expected, several make the subquery
# fail, which is told as the conflict it is.
_BY_NAME = """(
    SELECT coalesce(m.merged_into, m.entity_id) FROM graph_entities m
    WHERE m.tenant_id = %(tenant)s AND m.project_id = %(project)s AND m.canonical_norm = %({name})s
    UNION ALL
    SELECT a.entity_id FROM graph_entity_aliases a
    WHERE a.tenant_id = %(tenant)s AND a.project_id = %(project)s AND a.alias_norm = %({name})s
      AND NOT EXISTS (SELECT FROM graph_entities m WHERE m.tenant_id = %(tenant)s
                        AND m.project_id = %(project)s AND m.canonical_norm = %({name})s))"""
# Entities with all their names.
_ENTITIES = """
    SELECT e.entity_id, e.canonical, e.canonical_norm, e.kind, e.created_at, e.updated_at, e.suppression,
           ARRAY(SELECT a.alias FROM graph_entity_aliases a
                 WHERE a.tenant_id = %(tenant)s AND a.entity_id = e.entity_id{known_alias}
                 ORDER BY a.alias_norm) AS aliases,
           (SELECT o.canonical_id FROM graph_object_versions o
            WHERE o.tenant_id = %(tenant)s AND o.canonical_id = e.object_canonical_id{known_object}
            LIMIT 1) AS object_canonical_id
    FROM graph_entities e WHERE e.tenant_id = %(tenant)s AND {where}
    ORDER BY e.canonical_norm"""
# Refuses a time before the project's floor; one condition for the whole query, and no round trip of its own.
_ALLOWED = "(SELECT check_as_of(%(tenant)s, %(project)s, %(as_of)s::timestamptz))"
ENTITIES_BY_ID = _ENTITIES.format(where="e.entity_id = ANY (%(ids)s::uuid[])", known_alias="", known_object="")
# A prefix is a range of names, which an index serves under a policy where LIKE does not.
PREFIX = "{column} >= %(prefix)s AND {column} < %(prefix)s || U&'\\+10FFFF'"
_ENTITIES_ASKED = {
    "prefix": PREFIX.format(column="e.canonical_norm"),
    "kind": "e.kind = %(kind)s",
    "after": "e.canonical_norm > %(after)s",
}


def _entities(where: list[str], *, at_past: bool) -> str:
    known = " AND {0}.created_at <= %(as_of)s::timestamptz" if at_past else ""
    if at_past:
        where = [*where, "e.created_at <= %(as_of)s::timestamptz", _ALLOWED]
    return _ENTITIES.format(where=" AND ".join(where), known_alias=known.format("a"), known_object=known.format("o"))


def select_meant(*, by_id: bool, at_past: bool) -> str:
    """The entities that a name or id means."""
    meant = f"= {_BY_ID.format(name='meant')}" if by_id else f"IN {_BY_NAME.format(name='meant')}"
    return _entities([f"e.entity_id {meant}"], at_past=at_past)


def select_entities(asked: set[str], *, at_past: bool) -> str:
    """Entities of the project by name, for the filters that are given."""
    where = ["e.project_id = %(project)s", "e.merged_into IS NULL", *(_ENTITIES_ASKED[name] for name in sorted(asked))]
    return f"{_entities(where, at_past=at_past)} LIMIT %(limit)s"


class FactFilter:
    """At which two times facts are asked for; each time is an expression in SQL.

    `key` is the column with the fact's id: edges carry all that is asked here, under the name edge_id.
    """

    def __init__(
        self,
        *,
        tenant_id: str,
        project_id: str,
        valid_at: datetime | None,
        as_of: datetime | None,
        key: str = "fact_id",
    ) -> None:
        self._key = key
        self.params: dict[str, Any] = {"tenant": tenant_id, "project": project_id, "valid_at": valid_at, "as_of": as_of}
        self.known_at = None if as_of is None else "%(as_of)s::timestamptz"
        # The database's clock decides what is valid now, since it also decided when facts begin.
        self.valid_at = "%(valid_at)s::timestamptz" if valid_at is not None else (self.known_at or "now()")

    def ends(self, fact: str = "f") -> str:
        """When a fact ended as it was recorded at the known time."""
        if self.known_at is None:
            return f"{fact}.valid_until"
        return (
            f"CASE WHEN {fact}.closed_at > {self.known_at} THEN ("  # noqa: S608 - expressions of ours, never input
            "SELECT coalesce(c.previous_valid_to, 'infinity') FROM fact_closings c WHERE c.tenant_id = %(tenant)s "
            f"AND c.fact_id = {fact}.{self._key} AND c.recorded_at > {self.known_at} ORDER BY c.recorded_at LIMIT 1"
            f") ELSE {fact}.valid_until END"
        )

    def confidence(self, fact: str = "f", *, weighed: str | None = None) -> str:
        """How sure it was at the known time, before it was weighed anew (`weighed`: as looked up) or taken back."""
        if self.known_at is None:
            return f"{fact}.confidence"
        before = weighed or (
            f"CASE WHEN {fact}.weighed_at > {self.known_at} THEN ("  # noqa: S608 - expressions of ours, never input
            "SELECT w.previous_confidence FROM fact_confidences w WHERE w.tenant_id = %(tenant)s "
            f"AND w.fact_id = {fact}.{self._key} AND w.recorded_at > {self.known_at} "
            "ORDER BY w.recorded_at LIMIT 1) END"
        )
        return (
            f"coalesce({before}, CASE WHEN {fact}.retracted_at > {self.known_at} THEN ("  # noqa: S608
            "SELECT r.confidence_before FROM fact_retractions r WHERE r.tenant_id = %(tenant)s "
            f"AND r.fact_id = {fact}.{self._key} ORDER BY r.retracted_at LIMIT 1) END, {fact}.confidence)"
        )

    @property
    def disputed(self) -> str:
        """Whether a conflict was open at the known time."""
        if self.known_at is None:
            return "k.status = 'open'"
        return f"k.detected_at <= {self.known_at} AND (k.resolved_at IS NULL OR k.resolved_at > {self.known_at})"

    def conditions(self, fact: str = "f", *, inactive: bool = False) -> list[str]:
        """Which facts were believed at the known time and valid at the other; with `inactive` all ever known then."""
        found = self._known(fact)
        if inactive:
            return found
        found.append(f"{fact}.valid_from <= {self.valid_at}")
        if self.known_at is None:
            return [*found, f"{fact}.retracted_at IS NULL", f"{fact}.valid_until > {self.valid_at}"]
        return [
            *found,
            f"({fact}.retracted_at IS NULL OR {fact}.retracted_at > {self.known_at})",
            # Without the first half no index bounds what was closed since.
            f"({fact}.valid_until > {self.valid_at} OR {fact}.closed_at > {self.known_at})",
            f"{self.ends(fact)} > {self.valid_at}",
        ]

    def still_open(self) -> list[str]:
        """Those of the facts meant by `conditions` that are open to this day: they have an index of their own."""
        found = [*self._known("f"), f"f.valid_from <= {self.valid_at}", "f.valid_to IS NULL", "f.retracted_at IS NULL"]
        return found if self.known_at is None else [*found, f"(f.closed_at IS NULL OR f.closed_at <= {self.known_at})"]

    def no_longer_open(self) -> list[str]:
        """The others: ended or taken back after the times that are asked for; few, when those are near the present."""
        # Of valid_to there are statistics without the open facts, of valid_until there are not.
        if self.known_at is None:
            return [*self.conditions(), "f.valid_to IS NOT NULL", f"f.valid_to > {self.valid_at}"]
        since = f"f.closed_at > {self.known_at} OR f.retracted_at > {self.known_at} OR f.valid_to > {self.valid_at}"
        return [*self.conditions(), f"({since})"]

    def _known(self, fact: str) -> list[str]:
        found = [f"{fact}.tenant_id = %(tenant)s", f"{fact}.project_id = %(project)s"]
        return found if self.known_at is None else [*found, f"{fact}.created_at <= {self.known_at}"]


# A fact with the names of what it speaks of, its evidence and whether it is in conflict, as it was known at a time.
# OFFSET 0 keeps the joins lookups from the chosen few, which no statistics of a young table would suggest.
_FACT = """
    SELECT f.fact_id, f.subject_entity_id AS subject_id, s.canonical AS subject_name, s.kind AS subject_kind,
           f.predicate_id, p.canonical AS predicate_name, p.status AS predicate_status,
           p.cardinality AS predicate_cardinality, f.object_entity_id AS object_id, o.canonical AS object_name,
           o.kind AS object_kind, f.object_value, f.value_type, f.scope, f.garden_id, f.agent_id, f.source,
           f.source_trust, f.sure AS confidence, f.valid_from, nullif(f.ends, 'infinity') AS valid_to,
           f.created_at, {closed} AS closed_at, {retracted} AS retracted_at,
           coalesce(
               (SELECT true FROM fact_conflicts k
                WHERE k.tenant_id = %(tenant)s AND k.fact_a = f.fact_id AND {disputed} LIMIT 1),
               (SELECT true FROM fact_conflicts k
                WHERE k.tenant_id = %(tenant)s AND k.fact_b = f.fact_id AND {disputed} LIMIT 1),
               false) AS contradicted,
           ARRAY(SELECT v.note_id FROM graph_fact_evidence v
                 WHERE v.tenant_id = %(tenant)s AND v.fact_id = f.fact_id AND {cited}
                 ORDER BY v.created_at, v.evidence_id) AS evidence,
           ARRAY(SELECT encode(d.source_hash, 'hex') FROM fact_derivations d
                 WHERE d.tenant_id = %(tenant)s AND d.fact_id = f.fact_id AND d.kind = 'derived'
                 ORDER BY d.source_hash) AS derived_from,
           encode(f.fact_hash, 'hex') AS fact_hash, f.told AS mentions, f.suppression
    FROM {chosen} c
    CROSS JOIN LATERAL (
        SELECT x.*, {ends} AS ends, {confidence} AS sure, {mentions} AS told FROM graph_facts x{weighed}
        WHERE x.tenant_id = %(tenant)s AND x.fact_id = c.fact_id OFFSET 0) f
    CROSS JOIN LATERAL (
        SELECT x.* FROM graph_entities x
        WHERE x.tenant_id = %(tenant)s AND x.entity_id = f.subject_entity_id OFFSET 0) s
    CROSS JOIN LATERAL (
        SELECT x.* FROM graph_predicates x
        WHERE x.tenant_id = %(tenant)s AND x.predicate_id = f.predicate_id OFFSET 0) p
    LEFT JOIN LATERAL (
        SELECT x.* FROM graph_entities x
        WHERE x.tenant_id = %(tenant)s AND x.entity_id = f.object_entity_id OFFSET 0) o ON true
    WHERE {known}
    ORDER BY {order}"""


# What a fact weighed before the first change after a time.
_WEIGHED = """ LEFT JOIN LATERAL (
            SELECT w.previous_confidence, w.previous_mentions FROM fact_confidences w
            WHERE x.weighed_at > {known} AND w.tenant_id = %(tenant)s AND w.fact_id = x.fact_id
              AND w.recorded_at > {known}
            ORDER BY w.recorded_at LIMIT 1) w ON true"""


def _facts(when: FactFilter, *, chosen: str, order: str) -> str:
    known = when.known_at
    closed = retracted = cited = ""
    if known is not None:
        before = (
            "(SELECT max(x.recorded_at) FROM fact_closings x WHERE x.tenant_id = %(tenant)s "  # noqa: S608
            f"AND x.fact_id = f.fact_id AND x.recorded_at <= {known})"
        )
        made_so = "CASE WHEN f.ends < 'infinity' THEN f.created_at END"
        closed = f"CASE WHEN f.closed_at <= {known} THEN f.closed_at ELSE coalesce({before}, {made_so}) END"
        retracted = f"CASE WHEN f.retracted_at <= {known} THEN f.retracted_at END"
        cited = f"v.created_at <= {known}"
    return _FACT.format(
        confidence=when.confidence("x", weighed="w.previous_confidence"),
        mentions="x.mentions" if known is None else "coalesce(w.previous_mentions, x.mentions)",
        weighed="" if known is None else _WEIGHED.format(known=known),
        disputed=when.disputed,
        ends=when.ends("x"),
        closed=closed or "f.closed_at",
        retracted=retracted or "f.retracted_at",
        cited=cited or "true",
        chosen=chosen,
        known="true" if known is None else f"f.created_at <= {known} AND {_ALLOWED}",
        order=order,
    )


def select_fact(when: FactFilter) -> str:
    """One fact, whatever became of it."""
    return _facts(when, chosen="(SELECT %(fact)s::uuid AS fact_id)", order="f.fact_id")


def select_chain(when: FactFilter) -> str:
    """Facts by their ids, in the order of valid_from."""
    chosen = "(SELECT unnest(%(facts)s::uuid[]) AS fact_id)"
    return _facts(when, chosen=chosen, order="f.valid_from, f.created_at, f.fact_id")


# In an open conflict with a fact that is preferred: of higher confidence, or as high and written later.
_WORSE = """EXISTS (
    SELECT FROM fact_conflicts k
    JOIN graph_facts x ON x.tenant_id = %(tenant)s
        AND x.fact_id = CASE k.fact_a WHEN f.fact_id THEN k.fact_b ELSE k.fact_a END
    WHERE k.tenant_id = %(tenant)s AND {disputed} AND (k.fact_a = f.fact_id OR k.fact_b = f.fact_id)
      AND {seen} AND (({sure}, x.created_at) > ({as_sure}, f.created_at)))"""
_ASKED = {
    "entity": "f.subject_entity_id = {meant}",
    "object": "f.object_entity_id = {meant}",
    "predicate": "f.predicate_id = (SELECT r.predicate_id FROM resolve_predicates("
    "%(tenant)s, %(project)s, %(predicate)s::json) r)",
    "scope": "f.scope = %(scope)s",
    "source": "f.source = %(source)s",
    "garden_id": "f.garden_id = %(garden_id)s::uuid",
    "min_confidence": "{sure} >= %(min_confidence)s",
    "low_trust": "{sure} * f.source_trust >= %(low_trust)s",
    "after": "(f.created_at, f.fact_id) < (%(after)s::timestamptz, %(after_id)s::uuid)",
}
# Of one entity there are only so many: all of them, and then the newest.
_OF_ENTITY = """(
    SELECT u.fact_id FROM (SELECT f.fact_id, f.created_at FROM graph_facts f WHERE {where} OFFSET 0) u
    ORDER BY u.created_at DESC, u.fact_id DESC LIMIT %(limit)s)"""
# Facts that are open to this day, and the others: two ranges, each with an index of its own, so that history does not
# slow this down.
_VALID = """(
    SELECT u.fact_id FROM (
        (SELECT f.fact_id, f.created_at FROM graph_facts f WHERE {still_open}
         ORDER BY f.created_at DESC, f.fact_id DESC LIMIT %(limit)s)
        UNION ALL
        (SELECT f.fact_id, f.created_at FROM graph_facts f WHERE {no_longer_open}
         ORDER BY f.created_at DESC, f.fact_id DESC LIMIT %(limit)s)
    ) u ORDER BY u.created_at DESC, u.fact_id DESC LIMIT %(limit)s)"""
_ANY_TIME = """(
    SELECT f.fact_id FROM graph_facts f WHERE {where}
    ORDER BY f.created_at DESC, f.fact_id DESC LIMIT %(limit)s)"""


def select_facts(when: FactFilter, *, asked: set[str], by_id: set[str], inactive: bool, preferred: bool) -> str:
    """Facts newest first; `asked` are the filters that are given, `by_id` those of them that name an entity by id."""
    where: list[str] = []
    for name in sorted(asked):
        meant = (_BY_ID if name in by_id else _BY_NAME).format(name=name)
        where.append(_ASKED[name].format(meant=meant, sure=when.confidence()))
    if preferred:
        seen = " AND ".join(when.conditions("x", inactive=inactive))
        where.append(
            "NOT "
            + _WORSE.format(seen=seen, disputed=when.disputed, sure=when.confidence("x"), as_sure=when.confidence())
        )
    parts = {
        "where": when.conditions(inactive=inactive),
        "still_open": when.still_open(),
        "no_longer_open": when.no_longer_open(),
    }
    shape = _OF_ENTITY if asked & {"entity", "object"} else _ANY_TIME if inactive else _VALID
    chosen = shape.format(**{name: " AND ".join([*conditions, *where]) for name, conditions in parts.items()})
    return _facts(when, chosen=chosen, order="f.created_at DESC, f.fact_id DESC")


# The chain a fact belongs to: what it superseded, and so on, and what superseded it; nearest first.
CHAIN = """
    WITH RECURSIVE older(fact_id) AS (
        SELECT %(fact)s::uuid
        UNION
        SELECT x.from_fact_id FROM older c
        JOIN graph_fact_supersessions x ON x.tenant_id = %(tenant)s AND x.to_fact_id = c.fact_id
    ), newer(fact_id) AS (
        SELECT %(fact)s::uuid
        UNION
        SELECT x.to_fact_id FROM newer c
        JOIN graph_fact_supersessions x ON x.tenant_id = %(tenant)s AND x.from_fact_id = c.fact_id
    )
    (SELECT fact_id, 'older' AS side FROM older LIMIT %(limit)s)
    UNION ALL
    (SELECT fact_id, 'newer' FROM newer LIMIT %(limit)s)"""


# The links between facts of a chain; of a note that is hidden not even the id.
SUPERSESSIONS = text(
    "SELECT x.from_fact_id, x.to_fact_id, n.note_id, x.effective_at, x.created_at FROM graph_fact_supersessions x "
    "LEFT JOIN memory_notes n ON n.tenant_id = :tenant AND n.note_id = x.note_id "
    "WHERE x.tenant_id = :tenant AND x.from_fact_id = ANY (CAST(:facts AS uuid[])) "
    "AND x.to_fact_id = ANY (CAST(:facts AS uuid[])) ORDER BY x.created_at, x.effective_at, x.supersession_id"
)


def select_evidence(*, tenant_id: str, fact_id: str) -> Any:
    """The notes that say so."""
    c = graph_fact_evidence.c
    return (
        select(c.note_id, c.created_at)
        .where(c.tenant_id == tenant_id, c.fact_id == fact_id)
        .order_by(c.created_at, c.evidence_id)
    )


def select_closings(*, tenant_id: str, fact_id: str) -> Any:
    """Every change of a fact's end."""
    c = fact_closings.c
    return (
        select(c.recorded_at, c.previous_valid_to)
        .where(c.tenant_id == tenant_id, c.fact_id == fact_id)
        .order_by(c.recorded_at)
    )


# The active holds on these entities in these scopes (NULL: any): what is told to who reads what they hide.
HOLDS = """
    SELECT t.tombstone_id, t.entity_id, t.entity, t.created_at FROM tombstones t
    WHERE t.tenant_id = %(tenant)s AND t.project_id = %(project)s AND t.legal_hold
      AND (EXISTS (SELECT FROM unnest(%(entities)s::uuid[], %(scopes)s::text[]) h(entity_id, scope)
                   WHERE h.entity_id = t.entity_id
                     AND (t.scopes IS NULL OR h.scope IS NULL OR h.scope = ANY (t.scopes)))
           OR EXISTS (SELECT FROM graph_fact_mentions m
                      WHERE m.tenant_id = %(tenant)s AND m.entity_id = t.entity_id
                        AND m.fact_id = ANY (%(facts)s::uuid[])))
      AND NOT EXISTS (SELECT FROM tombstone_revocations r
                      WHERE r.tenant_id = %(tenant)s AND r.tombstone_id = t.tombstone_id)
    ORDER BY t.created_at, t.tombstone_id"""

# When and why a fact was taken back.
RETRACTIONS = text(
    "SELECT kind, reason, retracted_by, confidence_before, retracted_at FROM fact_retractions "
    "WHERE tenant_id = :tenant AND fact_id = CAST(:fact AS uuid) ORDER BY retracted_at"
)
