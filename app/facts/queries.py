"""All SQL of facts."""

from copy import copy
from typing import Any, Literal, Self

from sqlalchemy import text

from app.db.database import Session
from app.db.rls import SHARED_SCOPES
from app.facts.entities.queries import AS_OF_ALLOWED, BY_ID, BY_NAME
from app.read_context import ReadContext

# Set the scope and write facts in one round trip.
PUT_FACTS = (
    "SELECT * FROM put_facts(%s, %s, %s, %s::uuid[], %s, %s, "
    "%s::json, %s::json, %s::json, %s::json, %s::json, %s, %s, %s)"
)
# Write facts inside a transaction that has its scope.
WRITE_FACTS = text(
    "SELECT * FROM write_facts(CAST(:entities AS json), CAST(:predicates AS json), CAST(:facts AS json), "
    "CAST(:evidence AS json), CAST(:derived AS json), :atomic, :key, :admin)"
)
# Retract facts by id, or all of a subject, a predicate and a scope.
RETRACT_FACTS = text(
    "SELECT * FROM retract_facts(CAST(:facts AS uuid[]), CAST(:subject AS uuid), CAST(:predicate AS uuid), :scope, "
    ":reason, :admin, :key)"
)
# The live facts of a garden.
LIVE_IN_GARDEN = text(
    "SELECT f.fact_id FROM graph_facts f WHERE f.tenant_id = :tenant AND f.project_id = :project "
    "AND f.garden_id = CAST(:garden AS uuid) AND f.retracted_at IS NULL ORDER BY f.fact_id"
)
# Change the end of one fact.
END_FACT = text("SELECT * FROM end_fact(CAST(:fact AS uuid), CAST(:valid_to AS timestamptz), :admin, :key)")
# Whether this transaction changed the end of a fact, and the conflicts it recorded for it.
CHANGED_END = text(
    "SELECT f.updated_at >= now() AS changed, ARRAY(SELECT k.conflict_id FROM fact_conflicts k "
    "WHERE k.tenant_id = :tenant AND k.fact_b = f.fact_id AND k.detected_at >= now() ORDER BY 1) AS conflicts "
    "FROM graph_facts f WHERE f.tenant_id = :tenant AND f.fact_id = CAST(:fact AS uuid)"
)
# Queue the rebuild of the cards that show these facts.
QUEUE_CARDS = text("SELECT queue_cards(CAST(:facts AS uuid[])) AS queued")
MAX_CHAIN = 200
# Lower than every id: where a walk through facts in the order of their ids begins.
FIRST_ID = "00000000-0000-0000-0000-000000000000"


async def queue_cards(session: Session, *, fact_ids: list[str]) -> None:
    """Queue the rebuild of the cards that show these facts, if there are any."""
    row = await session.row(QUEUE_CARDS, {"facts": fact_ids})
    if row is not None and row["queued"]:
        session.wake_workers()


class FactFilter:
    """The SQL conditions on facts at a read's two times: `valid_at` in the world, `known_at` on record.

    The rules of fact_stood and past_confidence, written out: calling those for each fact takes more than twice as long.
    `key` is the column with the fact's id, which is edge_id in edges.
    """

    def __init__(self, context: ReadContext, *, key: str = "fact_id") -> None:
        self._key = key
        self.params: dict[str, Any] = context.parameters()
        self.known_at = None if context.as_of is None else "%(as_of)s::timestamptz"
        # The database's clock decides what is valid now, since it also decided when facts begin.
        self.valid_at = "%(valid_at)s::timestamptz" if context.valid_at is not None else (self.known_at or "now()")
        self.shared = context.shared
        self._project = "{fact}.project_id = %(project)s"

    def of_other_projects(self) -> Self:
        """Return the same conditions on the facts that other projects share."""
        other = copy(self)
        other._project = f"{{fact}}.project_id <> %(project)s AND {{fact}}.{SHARED_SCOPES}"
        return other

    def ends(self, fact: str = "f") -> str:
        """Return the end of a fact as it was recorded at the known time."""
        if self.known_at is None:
            return f"{fact}.valid_until"
        return (
            f"CASE WHEN {fact}.closed_at > {self.known_at} THEN ("  # noqa: S608 - expressions of ours, never input
            "SELECT coalesce(c.previous_valid_to, 'infinity') FROM fact_closings c WHERE c.tenant_id = %(tenant)s "
            f"AND c.fact_id = {fact}.{self._key} AND c.recorded_at > {self.known_at} ORDER BY c.recorded_at LIMIT 1"
            f") ELSE {fact}.valid_until END"
        )

    def confidence(self, fact: str = "f", *, weighed: str | None = None) -> str:
        """Return the confidence of a fact at the known time; `weighed` is a joined column with it, if there is one."""
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
            f"AND r.fact_id = {fact}.{self._key} AND r.retracted_at > {self.known_at} "
            f"ORDER BY r.retracted_at LIMIT 1) END, {fact}.confidence)"
        )

    @property
    def disputed(self) -> str:
        """Return whether a conflict was open at the known time."""
        if self.known_at is None:
            return "k.status = 'open'"
        return f"k.detected_at <= {self.known_at} AND (k.resolved_at IS NULL OR k.resolved_at > {self.known_at})"

    def conditions(self, fact: str = "f", *, inactive: bool = False) -> list[str]:
        """Return which facts were believed at the known time and valid at the other; or all known with `inactive`."""
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
        """Return the part of `conditions` that is still open today, which has an index of its own."""
        found = [*self._known("f"), f"f.valid_from <= {self.valid_at}", "f.valid_to IS NULL", "f.retracted_at IS NULL"]
        return found if self.known_at is None else [*found, f"(f.closed_at IS NULL OR f.closed_at <= {self.known_at})"]

    def no_longer_open(self) -> list[str]:
        """Return the rest of `conditions`: facts ended or retracted after the given times, few if those are recent."""
        # Statistics of valid_to leave out the open facts, those of valid_until do not.
        if self.known_at is None:
            return [*self.conditions(), "f.valid_to IS NOT NULL", f"f.valid_to > {self.valid_at}"]
        since = f"f.closed_at > {self.known_at} OR f.retracted_at > {self.known_at} OR f.valid_to > {self.valid_at}"
        return [*self.conditions(), f"({since})"]

    def _known(self, fact: str) -> list[str]:
        found = [f"{fact}.tenant_id = %(tenant)s", self._project.format(fact=fact)]
        return found if self.known_at is None else [*found, f"{fact}.created_at <= {self.known_at}"]


# Facts with their names, evidence and conflicts, as known at a time. OFFSET 0 makes each join a lookup by key from
# the chosen rows; the statistics of a small table would suggest hash joins.
_FACT = """
    SELECT f.fact_id, f.subject_entity_id AS subject_id, s.canonical AS subject_name, s.kind AS subject_kind,
           f.predicate_id, p.canonical AS predicate_name, p.status AS predicate_status,
           p.cardinality AS predicate_cardinality, f.object_entity_id AS object_id, o.canonical AS object_name,
           o.kind AS object_kind, f.object_value, f.value_type, f.scope, f.garden_id, f.agent_id, f.user_id, f.source,
           f.source_trust, f.confidence_then AS confidence, f.valid_from, nullif(f.ends, 'infinity') AS valid_to,
           f.created_at, {closed} AS closed_at, {retracted} AS retracted_at,
           coalesce(
               (SELECT true FROM fact_conflicts k
                WHERE k.tenant_id = %(tenant)s AND k.fact_a = f.fact_id AND {disputed} LIMIT 1),
               (SELECT true FROM fact_conflicts k
                WHERE k.tenant_id = %(tenant)s AND k.fact_b = f.fact_id AND {disputed} LIMIT 1),
               {contradicted}) AS contradicted,
           -- Only notes that the caller may read: row-level security hides the others.
           ARRAY(SELECT v.note_id FROM graph_fact_evidence v
                 CROSS JOIN LATERAL (
                     SELECT FROM memory_notes n
                     WHERE n.tenant_id = %(tenant)s AND n.note_id = v.note_id
                       AND note_stands(n.created_at, n.deleted_at, {known_at}) OFFSET 0) n
                 WHERE v.tenant_id = %(tenant)s AND v.fact_id = f.fact_id AND {cited}
                 ORDER BY v.created_at, v.evidence_id){evidence} AS evidence,
           ARRAY(SELECT encode(d.source_hash, 'hex') FROM fact_derivations d
                 WHERE d.tenant_id = %(tenant)s AND d.fact_id = f.fact_id AND d.kind = 'derived'
                 ORDER BY d.source_hash) AS derived_from,
           encode(f.fact_hash, 'hex') AS fact_hash, f.mentions_then AS mentions, f.suppression{project}
    FROM {chosen} c
    CROSS JOIN LATERAL (
        SELECT x.*, {ends} AS ends, {confidence} AS confidence_then, {mentions} AS mentions_then
        FROM graph_facts x{weighed}
        WHERE x.tenant_id = %(tenant)s AND x.fact_id = c.fact_id OFFSET 0) f{names}
    WHERE {known}
    ORDER BY {order}"""
_NAMES = """
    CROSS JOIN LATERAL (
        SELECT x.* FROM graph_entities x
        WHERE x.tenant_id = %(tenant)s AND x.entity_id = f.subject_entity_id OFFSET 0) s
    CROSS JOIN LATERAL (
        SELECT x.* FROM graph_predicates x
        WHERE x.tenant_id = %(tenant)s AND x.predicate_id = f.predicate_id OFFSET 0) p
    LEFT JOIN LATERAL (
        SELECT x.* FROM graph_entities x
        WHERE x.tenant_id = %(tenant)s AND x.entity_id = f.object_entity_id OFFSET 0) o ON true"""
# The names of other projects are hidden: a shared fact brings its own along.
_NAMES_OF_ALL = """
    LEFT JOIN LATERAL present_shared_fact(CASE WHEN f.project_id <> %(project)s THEN f.fact_id END) h ON true
    CROSS JOIN LATERAL (
        SELECT x.canonical, x.kind FROM graph_entities x
        WHERE f.project_id = %(project)s AND x.tenant_id = %(tenant)s AND x.entity_id = f.subject_entity_id
        UNION ALL
        SELECT h.subject_name, h.subject_kind WHERE h.subject_name IS NOT NULL) s
    CROSS JOIN LATERAL (
        SELECT x.canonical, x.status, x.cardinality FROM graph_predicates x
        WHERE f.project_id = %(project)s AND x.tenant_id = %(tenant)s AND x.predicate_id = f.predicate_id
        UNION ALL
        SELECT h.predicate_name, h.predicate_status, h.predicate_cardinality WHERE h.predicate_name IS NOT NULL) p
    LEFT JOIN LATERAL (
        SELECT x.canonical, x.kind FROM graph_entities x
        WHERE f.project_id = %(project)s AND x.tenant_id = %(tenant)s AND x.entity_id = f.object_entity_id
        UNION ALL
        SELECT h.object_name, h.object_kind WHERE h.object_name IS NOT NULL) o ON true"""


# Confidence and mentions of a fact before their first change after a time.
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
        known_at=known or "NULL",
        chosen=chosen,
        known="true" if known is None else f"f.created_at <= {known} AND {AS_OF_ALLOWED}",
        order=order,
        names=_NAMES_OF_ALL if when.shared else _NAMES,
        contradicted="coalesce(h.contradicted, false)" if when.shared else "false",
        evidence=" || coalesce(h.evidence, '{}')" if when.shared else "",
        project=", nullif(f.project_id, %(project)s) AS other_project" if when.shared else "",
    )


def select_fact(when: FactFilter) -> str:
    """Return the query for one fact, retracted or not."""
    return _facts(when, chosen="(SELECT %(fact)s::uuid AS fact_id)", order="f.fact_id")


def select_chain(when: FactFilter) -> str:
    """Return the query for facts by their ids, in the order of valid_from."""
    chosen = "(SELECT unnest(%(facts)s::uuid[]) AS fact_id)"
    return _facts(when, chosen=chosen, order="f.valid_from, f.created_at, f.fact_id")


# The rule of is_overruled, written out: contradicted, and another value of the same belief is preferred.
_OVERRULED = """((
        EXISTS (SELECT FROM fact_conflicts k WHERE k.tenant_id = %(tenant)s AND k.fact_a = f.fact_id AND {disputed})
        OR EXISTS (SELECT FROM fact_conflicts k WHERE k.tenant_id = %(tenant)s AND k.fact_b = f.fact_id AND {disputed})
    ) AND EXISTS (
        SELECT FROM graph_facts x
        WHERE x.subject_entity_id = f.subject_entity_id AND x.predicate_id = f.predicate_id AND x.scope = f.scope
          AND x.owner_key = f.owner_key AND x.object_value IS NOT NULL AND x.object_hash <> f.object_hash
          AND {stands} AND {other_confidence} > 0
          AND is_preferred({other_confidence}, x.created_at, {confidence}, f.created_at)))"""
_FILTERS = {
    "entity": "f.subject_entity_id = {entity}",
    "object": "f.object_entity_id = {entity}",
    "predicate": "f.predicate_id = (SELECT r.predicate_id FROM resolve_predicates("
    "%(tenant)s, %(project)s, %(predicate)s::json) r)",
    "scope": "f.scope = %(scope)s",
    "source": "f.source = %(source)s",
    "garden_id": "f.garden_id = %(garden_id)s::uuid",
    "min_confidence": "{confidence} >= %(min_confidence)s",
    # Where trust is off, a source that is not blocklisted counts at least as much as none.
    "low_trust": "{confidence} * CASE WHEN f.source_trust > 0 AND f.source_trust < %(unknown_trust)s AND coalesce(("
    "SELECT p.settings ->> 'trust_mode' FROM projects p WHERE p.tenant_id = %(tenant)s AND p.project_id = %(project)s"
    "), 'off') = 'off' THEN %(unknown_trust)s ELSE f.source_trust END >= %(low_trust)s",
    "after": "(f.created_at, f.fact_id) < (%(after)s::timestamptz, %(after_id)s::uuid)",
}
_SHARED_FILTERS = {
    **_FILTERS,
    "predicate": "f.predicate_id = ANY (ARRAY(SELECT shared_predicates(%(predicate)s::json)))",
}
# One entity has few facts: read all of them, then keep the newest.
_OF_ENTITY = """(
    SELECT u.fact_id FROM (SELECT f.fact_id, f.created_at FROM graph_facts f WHERE {where} OFFSET 0) u
    ORDER BY u.created_at DESC, u.fact_id DESC LIMIT %(limit)s)"""
# Open facts and ended ones are two ranges with an index each, so that a long history does not slow this down.
# So are those of a user and those of all users.
_RANGE = """(SELECT f.fact_id, f.created_at FROM graph_facts f WHERE {where}
         ORDER BY f.created_at DESC, f.fact_id DESC LIMIT %(limit)s)"""
_RANGES = """(
    SELECT u.fact_id FROM ({ranges}) u ORDER BY u.created_at DESC, u.fact_id DESC LIMIT %(limit)s)"""
OWNERS = {"every": (), "visible": ("f.user_id = %(user)s", "f.user_id = ''"), "own": ("f.user_id = %(user)s",)}


def select_facts(
    when: FactFilter,
    *,
    filters: set[str],
    by_id: set[str],
    inactive: bool,
    preferred: bool,
    owners: Literal["every", "visible", "own"] = "every",
) -> str:
    """Return the query for facts, newest first; `by_id` are the filters that name an entity by its id.

    `owners` are every user, one user with what is common to all, or one user alone.
    """
    where: list[str] = []
    for name in sorted(filters):
        entity = (BY_ID if name in by_id else BY_NAME).format(name=name)
        where.append(_FILTERS[name].format(entity=entity, confidence=when.confidence()))
    if preferred:
        stands = when.conditions("x", inactive=inactive)
        if inactive:
            # Of facts of all times only those that were valid at once contradict each other.
            stands += ["x.valid_from < f.valid_until", "x.valid_until > f.valid_from"]
        overruled = _OVERRULED.format(
            stands=" AND ".join(stands),
            disputed=when.disputed,
            confidence=when.confidence(),
            other_confidence=when.confidence("x"),
        )
        where.append(f"NOT {overruled}")
    if filters & {"entity", "object"}:
        own = list(OWNERS[owners][:1]) if owners == "own" else []
        chosen = _OF_ENTITY.format(where=" AND ".join([*when.conditions(inactive=inactive), *where, *own]))
    else:
        times = [when.conditions(inactive=True)] if inactive else [when.still_open(), when.no_longer_open()]
        ranges = [[*time, *where, *owner] for time in times for owner in _each_owner(owners)]
        chosen = _RANGES.format(
            ranges="\n        UNION ALL\n        ".join(_RANGE.format(where=" AND ".join(found)) for found in ranges)
        )
    order = "f.created_at DESC, f.fact_id DESC"
    if not when.shared:
        return _facts(when, chosen=chosen, order=order)
    shared = _select_shared(
        when.of_other_projects(), filters=filters, by_id=by_id, inactive=inactive, preferred=preferred
    )
    both = f"(SELECT a.fact_id FROM {chosen} a UNION ALL SELECT b.fact_id FROM {shared} b)"  # noqa: S608 - no input in it
    return _facts(when, chosen=both, order=f"{order} LIMIT %(limit)s")


def _select_shared(when: FactFilter, *, filters: set[str], by_id: set[str], inactive: bool, preferred: bool) -> str:
    """Return the same choice among the facts that other projects share."""
    where = when.conditions(inactive=inactive)
    for name in sorted(filters):
        entity = f"%({name})s::uuid" if name in by_id else f"ANY (ARRAY(SELECT shared_entities(%({name})s)))"
        where.append(_SHARED_FILTERS[name].format(entity=entity, confidence=when.confidence()))
    if preferred:
        where.append(f"NOT is_shared_overruled(f.fact_id, {when.valid_at})")
    return _RANGES.format(ranges=_RANGE.format(where=" AND ".join(where)))


def _each_owner(owners: str) -> list[list[str]]:
    return [[condition] for condition in OWNERS[owners]] or [[]]


# The supersession chain of a fact: what it superseded and what superseded it, transitively, nearest first.
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


# The links between facts of a chain, without the ids of hidden and deleted notes.
SUPERSESSIONS = text(
    "SELECT x.from_fact_id, x.to_fact_id, n.note_id, x.effective_at, x.created_at FROM graph_fact_supersessions x "
    "LEFT JOIN memory_notes n ON n.tenant_id = :tenant AND n.note_id = x.note_id "
    "AND n.deleted_at IS NULL "
    "WHERE x.tenant_id = :tenant AND x.from_fact_id = ANY (CAST(:facts AS uuid[])) "
    "AND x.to_fact_id = ANY (CAST(:facts AS uuid[])) ORDER BY x.created_at, x.effective_at, x.supersession_id"
)


# The live notes that a fact cites and the caller may read.
EVIDENCE = text(
    "SELECT v.note_id, v.created_at FROM graph_fact_evidence v "
    "JOIN memory_notes n ON n.tenant_id = :tenant AND n.note_id = v.note_id AND n.deleted_at IS NULL "
    "WHERE v.tenant_id = :tenant AND v.fact_id = CAST(:fact AS uuid) ORDER BY v.created_at, v.evidence_id"
)
# Every change of a fact's end. Without the two closings for the time in which its notes were deleted, which its
# retractions tell.
CLOSINGS = text(
    "SELECT c.recorded_at, c.previous_valid_to FROM fact_closings c "
    "WHERE c.tenant_id = :tenant AND c.fact_id = CAST(:fact AS uuid) AND NOT EXISTS ("
    "SELECT FROM fact_retractions r WHERE r.tenant_id = :tenant AND r.fact_id = c.fact_id "
    "AND r.kind = 'note_deleted' AND c.recorded_at IN (r.retracted_at, r.restored_at)) ORDER BY c.recorded_at"
)


# The entities under legal hold that objects or relationships name or stand for, after merges.
HELD_ENTITIES = """
    SELECT coalesce(e.merged_into, e.entity_id) AS entity_id FROM object_entity_mentions m
    JOIN graph_entities e ON e.tenant_id = %(tenant)s AND e.entity_id = m.entity_id
    WHERE m.tenant_id = %(tenant)s AND m.canonical_id = ANY (%(ids)s::uuid[]) AND e.held_scopes IS NOT NULL
    UNION
    SELECT coalesce(e.merged_into, e.entity_id) FROM graph_entities e
    WHERE e.tenant_id = %(tenant)s AND e.object_canonical_id = ANY (%(ids)s::uuid[]) AND e.held_scopes IS NOT NULL"""
# The active legal holds on these entities in these scopes (NULL: any), and on what these facts and notes name.
HOLDS = """
    SELECT t.tombstone_id, t.entity_id, t.entity, t.created_at FROM tombstones t
    WHERE t.tenant_id = %(tenant)s AND t.project_id = %(project)s AND t.legal_hold
      AND (EXISTS (SELECT FROM unnest(%(entities)s::uuid[], %(scopes)s::text[]) h(entity_id, scope)
                   WHERE h.entity_id = t.entity_id
                     AND (t.scopes IS NULL OR h.scope IS NULL OR h.scope = ANY (t.scopes)))
           OR EXISTS (SELECT FROM graph_fact_mentions m
                      WHERE m.tenant_id = %(tenant)s AND m.entity_id = t.entity_id
                        AND m.fact_id = ANY (%(facts)s::uuid[]))
           OR EXISTS (SELECT FROM note_entity_mentions m
                      JOIN memory_notes n ON n.tenant_id = %(tenant)s AND n.note_id = m.note_id
                      WHERE m.tenant_id = %(tenant)s AND m.entity_id = t.entity_id
                        AND m.note_id = ANY (%(notes)s::uuid[])
                        AND (t.scopes IS NULL OR n.scope = ANY (t.scopes))))
      AND NOT EXISTS (SELECT FROM tombstone_revocations r
                      WHERE r.tenant_id = %(tenant)s AND r.tombstone_id = t.tombstone_id)
    ORDER BY t.created_at, t.tombstone_id"""

# When and why a fact was retracted.
RETRACTIONS = text(
    "SELECT kind, reason, retracted_by, confidence_before, retracted_at, restored_at FROM fact_retractions "
    "WHERE tenant_id = :tenant AND fact_id = CAST(:fact AS uuid) ORDER BY retracted_at"
)

# The sources of a fact, level by level: a hash stands for the newest live fact with it that the caller can see, if
# there is one. The limit in each step keeps a wide graph from being read whole.
_PROVENANCE = """
    WITH RECURSIVE walk(fact_id, hash, parent, kind, depth) AS (
        SELECT f.fact_id, f.fact_hash, NULL::uuid, NULL::text, 0
        FROM graph_facts f
        WHERE f.tenant_id = %(tenant)s AND f.project_id = %(project)s AND f.fact_id = %(fact)s::uuid AND {visible}
        UNION
        SELECT s.fact_id, d.source_hash, w.fact_id, d.kind, w.depth + 1
        FROM walk w
        CROSS JOIN LATERAL (
            SELECT d.source_hash, d.kind FROM fact_derivations d
            WHERE d.tenant_id = %(tenant)s AND d.fact_id = w.fact_id{known_link}
            ORDER BY d.source_hash, d.kind LIMIT 201
        ) d
        LEFT JOIN LATERAL (
            SELECT f.fact_id FROM graph_facts f
            WHERE f.tenant_id = %(tenant)s AND f.fact_hash = d.source_hash AND f.project_id = %(project)s AND {visible}
            ORDER BY f.retracted_at IS NOT NULL, f.created_at DESC, f.fact_id LIMIT 1
        ) s ON true
        WHERE w.fact_id IS NOT NULL AND w.depth <= %(depth)s
    )
    SELECT fact_id, encode(hash, 'hex') AS hash, parent, kind, depth FROM walk
    ORDER BY depth, hash, parent LIMIT %(limit)s"""


def select_provenance(*, in_scope: bool, at_past: bool) -> str:
    """Return the query for the sources of a fact, within one scope or at a past time if given."""
    visible = ["true"]
    if in_scope:
        visible.append("f.scope = %(scope)s")
    if at_past:
        visible += [
            "f.created_at <= %(as_of)s::timestamptz",
            AS_OF_ALLOWED,
        ]
    known = " AND d.created_at <= %(as_of)s::timestamptz" if at_past else ""
    return _PROVENANCE.format(visible=" AND ".join(visible), known_link=known)
