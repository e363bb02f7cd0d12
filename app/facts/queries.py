"""All SQL of the room facts."""

from datetime import datetime
from typing import Any

from sqlalchemy import (
    Uuid,
    and_,
    case,
    cast,
    exists,
    func,
    literal,
    literal_column,
    or_,
    select,
    text,
    tuple_,
    union_all,
)
from sqlalchemy.dialects.postgresql import insert as upsert

from app.db.database import Row, Session
from app.facts.tables import (
    fact_closings,
    fact_conflicts,
    global_predicate_aliases,
    global_predicates,
    graph_entities,
    graph_entity_aliases,
    graph_fact_evidence,
    graph_fact_supersessions,
    graph_facts,
    graph_predicate_aliases,
    graph_predicates,
)

# Sets the scope and writes facts, in one round trip.
PUT_FACTS = "SELECT * FROM put_facts(%s, %s, %s, %s::uuid[], %s, %s::json, %s::json, %s::json, %s::json, %s::json, %s)"
# The same inside a transaction that has its scope.
WRITE_FACTS = text(
    "SELECT * FROM write_facts(CAST(:entities AS json), CAST(:predicates AS json), CAST(:facts AS json), "
    "CAST(:evidence AS json), CAST(:derived AS json), :atomic)"
)
# Which entities are meant by names or ids.
RESOLVE_ENTITIES = text("SELECT * FROM resolve_entities(:tenant, :project, CAST(:names AS json))")
# Which predicates are meant by names or ids.
RESOLVE_PREDICATES = text("SELECT * FROM resolve_predicates(:tenant, :project, CAST(:names AS json))")
# Takes facts back, by id or all under a subject, a predicate and a scope.
RETRACT_FACTS = text(
    "SELECT * FROM retract_facts(CAST(:facts AS uuid[]), CAST(:subject AS uuid), CAST(:predicate AS uuid), :scope, "
    ":reason, :admin)"
)
# Moves the end of one fact.
END_FACT = text("SELECT * FROM end_fact(CAST(:fact AS uuid), CAST(:valid_to AS timestamptz), :admin)")
# Makes an entity or finds the one of that name.
PUT_ENTITY = text("SELECT * FROM put_entity(CAST(:id AS uuid), :canonical, :norm, :kind, CAST(:aliases AS json))")
# Gives an entity one more name.
PUT_ALIAS = text("SELECT * FROM put_alias(CAST(:entity AS uuid), CAST(:id AS uuid), :alias, :norm)")
# Makes one entity of two.
MERGE_ENTITIES = text("SELECT * FROM merge_entities(CAST(:source AS uuid), CAST(:target AS uuid), :key, :reason)")
# Changes cardinality or status of a predicate, with what follows for its facts.
CONFIGURE_PREDICATE = text(
    "SELECT * FROM configure_predicate(CAST(:predicate AS uuid), :cardinality, :status, :resolve)"
)


def _sql(expression: str) -> Any:
    return literal_column(expression)


INFINITY = _sql("'infinity'::timestamptz")
MAX_CHAIN = 200

_e = graph_entities.c
_a = graph_entity_aliases.c
_p = graph_predicates.c
_f = graph_facts.c


def _entity_columns() -> list[Any]:
    names = select(_a.alias).where(_a.tenant_id == _e.tenant_id, _a.entity_id == _e.entity_id).order_by(_a.alias_norm)
    shown = [_e.entity_id, _e.canonical, _e.kind, _e.created_at, _e.updated_at]
    return [*shown, func.array(names.correlate(graph_entities).scalar_subquery()).label("aliases")]


def select_entities(
    *, tenant_id: str, project_id: str, prefix: str | None, kind: str | None, after: str | None, limit: int
) -> Any:
    """Entities by name; a prefix is a range of names, which an index serves under a policy where LIKE does not."""
    conditions: list[Any] = [_e.tenant_id == tenant_id, _e.project_id == project_id, _e.merged_into.is_(None)]
    if prefix:
        conditions += [_e.canonical_norm >= prefix, _e.canonical_norm < prefix + "\U0010ffff"]
    if kind is not None:
        conditions.append(_e.kind == kind)
    if after is not None:
        conditions.append(_e.canonical_norm > after)
    columns = [*_entity_columns(), _e.canonical_norm]
    return select(*columns).where(and_(*conditions)).order_by(_e.canonical_norm).limit(limit)


def select_entities_by_id(*, tenant_id: str, ids: list[str]) -> Any:
    """Entities by their ids, with all their names."""
    return (
        select(*_entity_columns()).where(_e.tenant_id == tenant_id, _e.entity_id.in_(ids)).order_by(_e.canonical_norm)
    )


def select_entity_named(*, tenant_id: str, project_id: str, entity_id: str | None, norm: str | None) -> Any:
    """The entities a name or id means: one, or none, or several that share an alias."""
    meant = _meant_by_id(tenant_id, project_id, entity_id) if norm is None else _meant(tenant_id, project_id, norm)
    return (
        select(*_entity_columns()).where(_e.tenant_id == tenant_id, _e.entity_id.in_(meant)).order_by(_e.canonical_norm)
    )


def _meant_by_id(tenant_id: str, project_id: str, entity_id: str | None) -> Any:
    other = graph_entities.alias("meant")
    return select(func.coalesce(other.c.merged_into, other.c.entity_id)).where(
        other.c.tenant_id == tenant_id, other.c.project_id == project_id, other.c.entity_id == entity_id
    )


def _meant(tenant_id: str, project_id: str, norm: str) -> Any:
    other = graph_entities.alias("meant")
    named = [other.c.tenant_id == tenant_id, other.c.project_id == project_id, other.c.canonical_norm == norm]
    canonical = select(func.coalesce(other.c.merged_into, other.c.entity_id)).where(*named)
    alias = select(_a.entity_id).where(
        _a.tenant_id == tenant_id,
        _a.project_id == project_id,
        _a.alias_norm == norm,
        ~exists().where(*named),
    )
    return union_all(canonical, alias)


def select_predicates(*, tenant_id: str, filters: dict[str, Any], after: list[str] | None, limit: int) -> Any:
    """Predicates the project can use, by name; a row of the installation that is not copied yet among them."""
    own = select(
        _p.predicate_id, _p.canonical, _p.canonical_norm, _p.cardinality, _p.status, _p.scope_key, _p.created_at,
        _p.updated_at,
        func.array(
            select(graph_predicate_aliases.c.alias)
            .where(graph_predicate_aliases.c.tenant_id == tenant_id,
                   graph_predicate_aliases.c.predicate_id == _p.predicate_id)
            .order_by(graph_predicate_aliases.c.alias_norm)
            .scalar_subquery()
        ).label("aliases"),
    ).where(_p.tenant_id == tenant_id)  # fmt: skip
    g = global_predicates.c
    copied = exists().where(_p.tenant_id == tenant_id, _p.predicate_id == g.predicate_id)
    shared = select(
        g.predicate_id, g.canonical, g.canonical_norm, g.cardinality, g.status, literal("__global__"), g.created_at,
        g.updated_at,
        func.array(
            select(global_predicate_aliases.c.alias)
            .where(global_predicate_aliases.c.predicate_id == g.predicate_id)
            .order_by(global_predicate_aliases.c.alias_norm)
            .scalar_subquery()
        ),
    ).where(~copied)  # fmt: skip
    all_of_them = union_all(own, shared).subquery()
    c = all_of_them.c
    conditions: list[Any] = []
    if (status := filters.get("status")) is not None:
        conditions.append(c.status == status)
    if (prefix := filters.get("prefix")) is not None:
        conditions += [c.canonical_norm >= prefix, c.canonical_norm < prefix + "\U0010ffff"]
    if (predicate_id := filters.get("predicate_id")) is not None:
        conditions.append(c.predicate_id == cast(literal(predicate_id), Uuid(as_uuid=False)))
    if after is not None:
        here = tuple_(literal(after[0]), cast(literal(after[1]), Uuid(as_uuid=False)))
        conditions.append(tuple_(c.canonical_norm, c.predicate_id) > here)
    return select(all_of_them).where(and_(True, *conditions)).order_by(c.canonical_norm, c.predicate_id).limit(limit)


async def insert_predicate(session: Session, *, row: Row) -> bool:
    """Registers a predicate; false when the name is taken in its scope."""
    statement = upsert(graph_predicates).values(row).on_conflict_do_nothing().returning(_p.predicate_id)
    return await session.row(statement) is not None


async def find_predicate_named(session: Session, *, tenant_id: str, scope_key: str, norm: str) -> Row | None:
    """What a name means in one scope, as a canonical name or an alias."""
    canonical = select(_p.predicate_id, literal(0).label("rank")).where(
        _p.tenant_id == tenant_id, _p.scope_key == scope_key, _p.canonical_norm == norm
    )
    c = graph_predicate_aliases.c
    alias = select(c.predicate_id, literal(1)).where(
        c.tenant_id == tenant_id, c.scope_key == scope_key, c.alias_norm == norm
    )
    found = union_all(canonical, alias).subquery()
    return await session.row(select(found).order_by(found.c.rank).limit(1))


async def find_predicate(session: Session, *, tenant_id: str, predicate_id: str) -> Row | None:
    """One predicate of the tenant."""
    return await session.row(
        select(_p.predicate_id, _p.scope_key, _p.project_id, _p["global"]).where(
            _p.tenant_id == tenant_id, _p.predicate_id == predicate_id
        )
    )


async def insert_predicate_alias(session: Session, *, row: Row) -> Row | None:
    """Adds a name; None when it is taken in its scope."""
    c = graph_predicate_aliases.c
    shown = (c.alias_id, c.predicate_id, c.alias, c.created_at)
    return await session.row(upsert(graph_predicate_aliases).values(row).on_conflict_do_nothing().returning(*shown))


async def find_predicate_alias(session: Session, *, tenant_id: str, scope_key: str, norm: str) -> Row | None:
    """An alias by its name."""
    c = graph_predicate_aliases.c
    return await session.row(
        select(c.alias_id, c.predicate_id, c.alias, c.created_at).where(
            c.tenant_id == tenant_id, c.scope_key == scope_key, c.alias_norm == norm
        )
    )


class FactFilter:
    """What a reader asks of facts, and at which two times."""

    def __init__(self, *, tenant_id: str, project_id: str, valid_at: datetime | None, as_of: datetime | None) -> None:
        self.tenant_id = tenant_id
        self.project_id = project_id
        # The database's clock decides what is valid now, since it also decided when facts begin.
        self.known_at: Any = None if as_of is None else literal(as_of)
        default: Any = func.now() if as_of is None else literal(as_of)
        self.valid_at: Any = default if valid_at is None else literal(valid_at)

    def ends(self) -> Any:
        """When a fact ended as it was recorded at the known time."""
        if self.known_at is None:
            return _f.valid_until
        c = fact_closings.c
        before = (
            select(func.coalesce(c.previous_valid_to, INFINITY))
            .where(c.tenant_id == self.tenant_id, c.fact_id == _f.fact_id, c.recorded_at > self.known_at)
            .order_by(c.recorded_at)
            .limit(1)
            .scalar_subquery()
        )
        return case((_f.closed_at > self.known_at, before), else_=_f.valid_until)

    def conditions(self, *, inactive: bool) -> list[Any]:
        """Which facts were believed at the known time and valid at the other; with `inactive` all ever known then."""
        found: list[Any] = [_f.tenant_id == self.tenant_id, _f.project_id == self.project_id]
        if self.known_at is not None:
            found.append(_f.created_at <= self.known_at)
        if inactive:
            return found
        found.append(_f.valid_from <= self.valid_at)
        if self.known_at is None:
            return [*found, _f.retracted_at.is_(None), _f.valid_until > self.valid_at]
        return [
            *found,
            or_(_f.retracted_at.is_(None), _f.retracted_at > self.known_at),
            # Without the first half no index bounds what was closed since.
            or_(_f.valid_until > self.valid_at, _f.closed_at > self.known_at),
            self.ends() > self.valid_at,
        ]


def _fact_columns(tenant_id: str, when: FactFilter) -> list[Any]:
    known = when.known_at
    v, k = graph_fact_evidence.c, fact_conflicts.c
    evidence = select(v.note_id).where(v.tenant_id == tenant_id, v.fact_id == _f.fact_id)
    conflicts = (k.tenant_id == tenant_id, k.status == "open")
    retraction: Any = _f.retracted_at
    closed: Any = _f.closed_at
    confidence: Any = _f.confidence
    if known is not None:
        evidence = evidence.where(v.created_at <= known)
        retraction = case((_f.retracted_at > known, None), else_=_f.retracted_at)
        closed = case((_f.closed_at > known, None), else_=_f.closed_at)
        before = _sql(
            "(SELECT r.confidence_before FROM fact_retractions r WHERE r.tenant_id = graph_facts.tenant_id "
            "AND r.fact_id = graph_facts.fact_id ORDER BY r.retracted_at LIMIT 1)"
        )
        confidence = case((_f.retracted_at > known, before), else_=_f.confidence)
    derived = _sql(
        "ARRAY(SELECT encode(d.source_hash, 'hex') FROM fact_derivations d WHERE d.tenant_id = graph_facts.tenant_id "
        "AND d.fact_id = graph_facts.fact_id ORDER BY d.source_hash)"
    ).label("derived_from")
    return [
        _f.fact_id, _f.subject_entity_id.label("subject_id"), _f.predicate_id, _f.object_entity_id.label("object_id"),
        _f.object_value, _f.value_type, _f.scope, _f.garden_id, _f.agent_id, _f.source, _f.source_trust,
        confidence.label("confidence"), _f.valid_from,
        func.nullif(when.ends(), INFINITY).label("valid_to"), _f.created_at, closed.label("closed_at"),
        retraction.label("retracted_at"),
        or_(
            exists().where(*conflicts, k.fact_a == _f.fact_id), exists().where(*conflicts, k.fact_b == _f.fact_id)
        ).label("contradicted"),
        func.array(evidence.order_by(v.created_at, v.evidence_id).scalar_subquery()).label("evidence"),
        derived, func.encode(_f.fact_hash, "hex").label("fact_hash"), _f.mentions,
    ]  # fmt: skip


def _with_names(facts: Any, tenant_id: str) -> Any:
    """Facts with the names of what they speak of."""
    subject, target = graph_entities.alias("s"), graph_entities.alias("o")
    c = facts.c
    names = [
        subject.c.canonical.label("subject_name"), subject.c.kind.label("subject_kind"),
        _p.canonical.label("predicate_name"), _p.status.label("predicate_status"),
        _p.cardinality.label("predicate_cardinality"), target.c.canonical.label("object_name"),
        target.c.kind.label("object_kind"),
    ]  # fmt: skip
    joined = (
        facts.join(subject, and_(subject.c.tenant_id == tenant_id, subject.c.entity_id == c.subject_id))
        .join(graph_predicates, and_(_p.tenant_id == tenant_id, _p.predicate_id == c.predicate_id))
        .outerjoin(target, and_(target.c.tenant_id == tenant_id, target.c.entity_id == c.object_id))
    )
    return select(facts, *names).select_from(joined)


def select_fact(*, tenant_id: str, fact_id: str, when: FactFilter) -> Any:
    """One fact, whatever became of it."""
    found = select(*_fact_columns(tenant_id, when)).where(
        *when.conditions(inactive=True)[:1], _f.fact_id == fact_id, *_known(when)
    )
    return _with_names(found.subquery("f"), tenant_id)


def _known(when: FactFilter) -> list[Any]:
    return [] if when.known_at is None else [_f.created_at <= when.known_at]


def select_facts(*, when: FactFilter, filters: dict[str, Any], after: tuple[datetime, str] | None, limit: int) -> Any:
    """Facts, newest first. Those that are open have an index of their own, so history does not slow this down."""
    inactive = bool(filters.get("include_inactive"))
    conditions = [*when.conditions(inactive=inactive), *_asked(when, filters)]
    if after is not None:
        here = tuple_(literal(after[0]), literal(after[1], Uuid(as_uuid=False)))
        conditions.append(tuple_(_f.created_at, _f.fact_id) < here)
    columns = _fact_columns(when.tenant_id, when)
    newest = (_f.created_at.desc(), _f.fact_id.desc())

    def part(*more: Any) -> Any:
        return select(_f.fact_id, _f.created_at).where(*conditions, *more).order_by(*newest).limit(limit)

    if inactive or when.known_at is not None:
        chosen = part().subquery("chosen")
    else:
        # Open facts, and the few whose end is known but not yet come: two ranges, each with its own index.
        both = union_all(
            select(part(_f.valid_to.is_(None)).subquery()), select(part(_f.valid_until < INFINITY).subquery())
        ).subquery()
        chosen = (
            select(both.c.fact_id).order_by(both.c.created_at.desc(), both.c.fact_id.desc()).limit(limit)
        ).subquery("chosen")
    facts = select(*columns).where(_f.tenant_id == when.tenant_id, _f.fact_id == chosen.c.fact_id).subquery("f")
    return _with_names(facts, when.tenant_id).order_by(facts.c.created_at.desc(), facts.c.fact_id.desc())


def _asked(when: FactFilter, filters: dict[str, Any]) -> list[Any]:
    found: list[Any] = []
    for name, column in (("entity", _f.subject_entity_id), ("object", _f.object_entity_id)):
        entity = filters.get(name)
        if entity is None:
            continue
        entity_id, norm = entity
        if norm is None:
            meant = _meant_by_id(when.tenant_id, when.project_id, entity_id)
        else:
            # Several entities by that alias make this subquery fail, which is told as the conflict it is.
            meant = select(_meant(when.tenant_id, when.project_id, norm).subquery())
        found.append(column == meant.scalar_subquery())
    if (predicate := filters.get("predicate")) is not None:
        found.append(
            _f.predicate_id
            == text(
                "(SELECT r.predicate_id FROM resolve_predicates(:tenant, :project, CAST(:names AS json)) r)"
            ).bindparams(tenant=when.tenant_id, project=when.project_id, names=predicate)
        )
    for name in ("scope", "source", "garden_id"):
        if (value := filters.get(name)) is not None:
            found.append(_f[name] == value)
    if (least := filters.get("min_confidence")) is not None:
        found.append(_f.confidence >= least)
    if filters.get("include_contradicted") is False:
        found.append(~_worse_of_two(when))
    return found


def _worse_of_two(when: FactFilter) -> Any:
    """In an open conflict with a fact that is preferred: of higher confidence, or as high and written later."""
    k, other = fact_conflicts.c, graph_facts.alias("other")
    open_conflict = and_(k.tenant_id == when.tenant_id, k.status == "open")
    pair = or_(
        and_(k.fact_a == _f.fact_id, k.fact_b == other.c.fact_id),
        and_(k.fact_b == _f.fact_id, k.fact_a == other.c.fact_id),
    )
    preferred = tuple_(other.c.confidence, other.c.created_at) > tuple_(_f.confidence, _f.created_at)
    return exists().where(
        open_conflict,
        pair,
        other.c.tenant_id == when.tenant_id,
        other.c.retracted_at.is_(None),
        preferred,
    )


# The chain a fact belongs to, both ways, link by link.
CHAIN = text(
    """
    WITH RECURSIVE chain(fact_id, depth) AS (
        SELECT CAST(:fact AS uuid), 0
        UNION
        SELECT CASE s.from_fact_id WHEN c.fact_id THEN s.to_fact_id ELSE s.from_fact_id END, c.depth + 1
        FROM chain c
        CROSS JOIN LATERAL (
            (SELECT x.from_fact_id, x.to_fact_id FROM graph_fact_supersessions x
             WHERE x.tenant_id = :tenant AND x.from_fact_id = c.fact_id ORDER BY x.supersession_id LIMIT 50)
            UNION ALL
            (SELECT x.from_fact_id, x.to_fact_id FROM graph_fact_supersessions x
             WHERE x.tenant_id = :tenant AND x.to_fact_id = c.fact_id ORDER BY x.supersession_id LIMIT 50)
        ) s
        WHERE c.depth < :depth
    )
    SELECT fact_id FROM chain GROUP BY fact_id ORDER BY min(depth), fact_id LIMIT :limit
    """
)


def select_facts_by_id(*, when: FactFilter, ids: list[str]) -> Any:
    """Facts by their ids, in the order of valid_from."""
    facts = select(*_fact_columns(when.tenant_id, when)).where(_f.tenant_id == when.tenant_id, _f.fact_id.in_(ids))
    found = facts.subquery("f")
    return _with_names(found, when.tenant_id).order_by(found.c.valid_from, found.c.created_at, found.c.fact_id)


def select_supersessions(*, tenant_id: str, ids: list[str]) -> Any:
    """The links between facts of a chain."""
    c = graph_fact_supersessions.c
    return (
        select(c.from_fact_id, c.to_fact_id, c.note_id, c.effective_at, c.created_at)
        .where(c.tenant_id == tenant_id, c.from_fact_id.in_(ids), c.to_fact_id.in_(ids))
        .order_by(c.created_at, c.effective_at, c.supersession_id)
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


# When and why a fact was taken back.
RETRACTIONS = text(
    "SELECT kind, reason, retracted_by, confidence_before, retracted_at FROM fact_retractions "
    "WHERE tenant_id = :tenant AND fact_id = CAST(:fact AS uuid) ORDER BY retracted_at"
)
