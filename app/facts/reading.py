"""Use cases that read facts: by filters at two times, one, and one with its history."""

from datetime import datetime
from typing import Any
from uuid import UUID

import msgspec
import psycopg
from msgspec import UNSET, UnsetType

from app.access import Principal, require_project
from app.db.database import Database, Row
from app.errors import BadRequest, NotFound
from app.facts import entities, queries
from app.facts.as_of import HELD, hold_notices, look_back
from app.facts.drafts import alone, predicate_row
from app.facts.names import as_id, entity_name
from app.facts.schemas import (
    ClosingRead,
    EntityBrief,
    EvidenceRead,
    FactHistory,
    FactList,
    FactRead,
    ObjectRead,
    PredicateBrief,
    RetractionRead,
    SupersessionRead,
    TombstoneNotice,
)
from app.facts.values import show_value
from app.paging import Page
from app.read_context import reader
from app.retrieval.trust import LOW_TRUST
from app.tenancy import gardens


def present_fact(row: Row) -> FactRead:
    """A fact as it goes out."""
    if row["object_id"] is None:
        target = ObjectRead(value=show_value(row["value_type"], row["object_value"]), type=row["value_type"])
    else:
        entity = EntityBrief(entity_id=row["object_id"], canonical=row["object_name"] or "", kind=row["object_kind"])
        target = ObjectRead(entity=entity)
    return FactRead(
        fact_id=row["fact_id"],
        subject=EntityBrief(entity_id=row["subject_id"], canonical=row["subject_name"], kind=row["subject_kind"]),
        predicate=PredicateBrief(
            predicate_id=row["predicate_id"],
            name=row["predicate_name"],
            status=row["predicate_status"],
            cardinality=row["predicate_cardinality"],
        ),
        object=target,
        scope=row["scope"],
        garden_id=row["garden_id"],
        agent_id=row["agent_id"],
        source=row["source"],
        source_trust=row["source_trust"],
        confidence=row["confidence"],
        valid_from=row["valid_from"],
        valid_to=row["valid_to"],
        created_at=row["created_at"],
        closed_at=row["closed_at"],
        retracted_at=row["retracted_at"],
        contradicted=row["contradicted"],
        evidence=row["evidence"],
        derived_from=row["derived_from"],
        fact_hash=row["fact_hash"],
        mentions=row["mentions"],
        tombstone_status="legal_hold" if row.get("suppression") == HELD else UNSET,
    )


def fact_not_found() -> NotFound:
    """The one answer for a fact that is unknown, hidden or of another tenant."""
    return NotFound("There is no such fact.", code="fact_not_found")


def _when(who: Principal, *, valid_at: datetime | None = None, as_of: datetime | None = None) -> queries.FactFilter:
    return queries.FactFilter(tenant_id=who.tenant_id, project_id=require_project(who), valid_at=valid_at, as_of=as_of)


async def get_fact(
    db: Database,
    who: Principal,
    *,
    fact_id: UUID,
    as_of: datetime | None = None,
    denied: frozenset[str] = frozenset(),
) -> FactRead:
    """One fact, whatever became of it."""
    who = reader(who, as_of)
    when = _when(who, as_of=as_of)
    rows = await look_back(db, who, queries.select_fact(when), {**when.params, "fact": str(fact_id)})
    if not rows:
        raise fact_not_found()
    fact = present_fact(rows[0])
    return msgspec.structs.replace(fact, tombstone_notices=await notices_of(db, who, [fact], denied))


async def read_facts(
    db: Database, who: Principal, *, ids: set[UUID], as_of: datetime | None = None
) -> dict[UUID, FactRead]:
    """Those of these facts that the caller can see; `who` reads as they already are."""
    if not ids:
        return {}
    when = _when(who, as_of=as_of)
    params = {**when.params, "facts": sorted(str(found) for found in ids)}
    rows = await look_back(db, who, queries.select_chain(when), params)
    return {row["fact_id"]: present_fact(row) for row in rows}


async def notices_of(
    db: Database, who: Principal, facts: list[FactRead], denied: frozenset[str]
) -> list[TombstoneNotice] | UnsetType:
    """The holds on those of these facts that are only seen because the caller looks back, put on record."""
    held = [fact for fact in facts if fact.tombstone_status is not UNSET]
    if not held:
        return UNSET
    entities: set[tuple[UUID, str | None]] = {(fact.subject.entity_id, fact.scope) for fact in held}
    entities |= {(fact.object.entity.entity_id, fact.scope) for fact in held if fact.object.entity is not UNSET}
    return await hold_notices(db, who, entities=entities, denied=denied, fact_ids=[fact.fact_id for fact in held])


async def list_facts(
    db: Database,
    who: Principal,
    *,
    filters: dict[str, Any],
    valid_at: datetime | None,
    as_of: datetime | None,
    page: Page,
    denied: frozenset[str] = frozenset(),
) -> FactList:
    """Facts at two times, newest first; a filter by an unknown name finds nothing."""
    who = reader(who, as_of)
    if filters.get("garden_id") is not None:
        async with db.tenant(who) as session:
            await gardens.require_readable(session, who, garden_id=UUID(filters["garden_id"]))
    when = _when(who, valid_at=valid_at, as_of=as_of)
    asked, by_id = _asked(filters)
    if page.after is not None:
        asked |= {"after": page.after[0]}
    statement = queries.select_facts(
        when,
        asked=set(asked),
        by_id=by_id,
        inactive=bool(filters.get("include_inactive")),
        preferred=filters.get("include_contradicted") is False,
    )
    params = {**when.params, **asked, "limit": page.limit + 1, "after_id": page.after[1] if page.after else None}
    try:
        found = await look_back(db, who, statement, params)
    except psycopg.errors.CardinalityViolation as problem:
        raise await _ambiguity(db, who, filters, denied) from problem
    rows, next_cursor = page.cut(found, key=lambda row: [row["created_at"].isoformat(), str(row["fact_id"])])
    facts = [present_fact(row) for row in rows]
    notices = await notices_of(db, who, facts, denied)
    return FactList(facts=facts, next_cursor=next_cursor, tombstone_notices=notices)


def _asked(filters: dict[str, Any]) -> tuple[dict[str, Any], set[str]]:
    """The filters that are given, as the query wants them, and those that name an entity by its id."""
    names = ("entity", "object", "predicate", "scope", "source", "garden_id", "min_confidence")
    asked: dict[str, Any] = {name: filters[name] for name in names if filters.get(name) is not None}
    if filters.get("include_low_trust") is False:
        asked["low_trust"] = LOW_TRUST
    by_id: set[str] = set()
    for name in {"entity", "object"} & set(asked):
        entity_id = as_id(asked[name])
        if entity_id is not None:
            by_id.add(name)
        asked[name] = entity_id or entity_name(asked[name], name).norm
    if "predicate" in asked:
        asked["predicate"] = alone(predicate_row(asked["predicate"]))
    return asked, by_id


async def _ambiguity(db: Database, who: Principal, filters: dict[str, Any], denied: frozenset[str]) -> Exception:
    for name in ("entity", "object"):
        if (text := filters.get(name)) is not None:
            rows = await entities.find_named(db, who, text, name)
            if len(rows) > 1:
                await entities.notices_of(db, who, rows, denied)
                return entities.ambiguous(rows, name)
    return BadRequest("entity: this name fits several entities; use an id.", code="entity_ambiguous")


async def get_history(db: Database, who: Principal, *, fact_id: UUID) -> FactHistory:
    """A fact with the chain it belongs to, its evidence, its ends and whether it was taken back."""
    when = _when(who)
    place = {**when.params, "fact": str(fact_id), "limit": queries.MAX_CHAIN + 1}
    async with db.tenant(who) as session:
        rows = await session.query(queries.select_fact(when), place)
        if not rows:
            raise fact_not_found()
        links = await session.query(queries.CHAIN, place)
        sides = [[str(row["fact_id"]) for row in links if row["side"] == side] for side in ("older", "newer")]
        ids = {fact for side in sides for fact in side[: queries.MAX_CHAIN]}
        chain = await session.query(queries.select_chain(when), {**place, "facts": sorted(ids)})
        # Of a link only those see anything who see both its ends.
        seen = [str(row["fact_id"]) for row in chain]
        supersessions = await session.rows(queries.SUPERSESSIONS, {"tenant": who.tenant_id, "facts": seen})
        evidence = await session.rows(queries.select_evidence(tenant_id=who.tenant_id, fact_id=str(fact_id)))
        closings = await session.rows(queries.select_closings(tenant_id=who.tenant_id, fact_id=str(fact_id)))
        retractions = await session.rows(queries.RETRACTIONS, {"tenant": who.tenant_id, "fact": str(fact_id)})
    return FactHistory(
        fact=present_fact(rows[0]),
        chain=[present_fact(row) for row in chain],
        supersessions=[SupersessionRead(**row) for row in supersessions],
        evidence=[EvidenceRead(**row) for row in evidence],
        closings=[ClosingRead(**row) for row in closings],
        retractions=[RetractionRead(**row) for row in retractions],
        truncated=any(len(side) > queries.MAX_CHAIN for side in sides),
    )
