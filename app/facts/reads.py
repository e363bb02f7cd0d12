"""Use cases that read facts: a list with filters at two times, one fact, and one with its history."""

from collections.abc import Sequence
from datetime import datetime
from typing import Any, Literal
from uuid import UUID

import msgspec
import psycopg
from msgspec import UNSET, UnsetType

from app.access import Principal
from app.db.counts import COUNT_LIMIT, count_query
from app.db.database import Database, Row
from app.db.scope import EVERY_USER
from app.errors import BadRequest, NotFound
from app.facts import queries
from app.facts.as_of import HELD, hold_notices, look_back
from app.facts.drafts import encode_reference, predicate_reference
from app.facts.entities import service as entities
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
from app.read_context import ReadContext, shared_from
from app.retrieval.trust import LOW_TRUST, UNKNOWN_TRUST
from app.tenancy import gardens


def present_fact(row: Row) -> FactRead:
    """Return a fact as responses show it."""
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
        user_id=row["user_id"] or None,
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
        **shared_from(row),
        tombstone_status="legal_hold" if row.get("suppression") == HELD else UNSET,
    )


def fact_not_found() -> NotFound:
    """Return the error for a fact that is unknown, hidden or of another tenant."""
    return NotFound("There is no such fact.", code="fact_not_found")


async def get_fact(db: Database, context: ReadContext, *, fact_id: UUID) -> FactRead:
    """Return one fact, ended, future and retracted ones included, or raise NotFound."""
    when = queries.FactFilter(context)
    rows = await look_back(db, context.who, queries.select_fact(when), {**when.params, "fact": str(fact_id)})
    if not rows:
        raise fact_not_found()
    fact = present_fact(rows[0])
    notices = await notices_of(db, context.who, [fact], context.hold_denied)
    return msgspec.structs.replace(fact, tombstone_notices=notices)


async def read_facts(
    db: Database, who: Principal, *, ids: set[UUID], as_of: datetime | None = None
) -> dict[UUID, FactRead]:
    """Return those of these facts that `who` can see, who has the rights of their read context already."""
    if not ids:
        return {}
    when = queries.FactFilter(ReadContext(who=who, as_of=as_of))
    params = {**when.params, "facts": sorted(str(found) for found in ids)}
    rows = await look_back(db, who, queries.select_chain(when), params)
    return {row["fact_id"]: present_fact(row) for row in rows}


async def notices_of(
    db: Database, who: Principal, facts: list[FactRead], denied: frozenset[str], *, held_notes: Sequence[UUID] = ()
) -> list[TombstoneNotice] | UnsetType:
    """Return the legal holds on these facts, and on notes under legal hold, after recording the read in the audit log.

    UNSET if there are none.
    """
    held = [fact for fact in facts if fact.tombstone_status is not UNSET]
    if not held and not held_notes:
        return UNSET
    named: set[tuple[UUID, str | None]] = {(fact.subject.entity_id, fact.scope) for fact in held}
    named |= {(fact.object.entity.entity_id, fact.scope) for fact in held if fact.object.entity is not UNSET}
    return await hold_notices(
        db,
        who,
        entities=named,
        denied=denied,
        fact_ids=[fact.fact_id for fact in held],
        note_ids=list(held_notes),
    )


class FactFilters(msgspec.Struct, frozen=True, kw_only=True):
    """The filters of a list of facts; None filters nothing."""

    entity: str | None = None
    object: str | None = None
    predicate: str | None = None
    source: str | None = None
    garden_id: UUID | None = None
    min_confidence: float | None = None
    include_inactive: bool = False
    include_contradicted: bool = True
    include_low_trust: bool = True
    own: bool = False
    """Only what belongs to the caller's user, without what is common to all users."""


async def list_facts(db: Database, context: ReadContext, *, filters: FactFilters, page: Page) -> FactList:
    """Return facts at the context's two times, newest first; a filter by an unknown name finds nothing."""
    who = context.who
    if filters.garden_id is not None:
        async with db.tenant(who) as session:
            await gardens.require_readable(session, who, garden_id=filters.garden_id)
    when = queries.FactFilter(context)
    given, by_id = _given(filters, context)
    every = set(given)
    if page.after is not None:
        given |= {"after": page.after[0]}

    def statement(names: set[str]) -> str:
        return queries.select_facts(
            when,
            filters=names,
            by_id=by_id,
            inactive=filters.include_inactive,
            preferred=not filters.include_contradicted,
            owners=_owners(who, filters),
        )

    params = {
        **when.params,
        **given,
        "user": who.user_id,
        "unknown_trust": UNKNOWN_TRUST,
        "limit": page.limit + 1,
        "after_id": page.after[1] if page.after else None,
    }
    try:
        found = await look_back(db, who, statement(set(given)), params)
    except psycopg.errors.CardinalityViolation as problem:
        raise await _ambiguity(db, context, filters) from problem
    rows, next_cursor = page.cut(found, key=lambda row: [row["created_at"].isoformat(), str(row["fact_id"])])
    facts = [present_fact(row) for row in rows]
    notices = await notices_of(db, who, facts, context.hold_denied)
    counted = {**params, "limit": COUNT_LIMIT}
    total = await page.count(lambda: look_back(db, who, count_query(statement(every)), counted))
    return FactList(facts=facts, next_cursor=next_cursor, total=total, tombstone_notices=notices)


def _owners(who: Principal, filters: FactFilters) -> Literal["every", "visible", "own"]:
    if who.user_id == EVERY_USER:
        return "every"
    # Without any user there is only what is common.
    return "own" if filters.own or not who.user_id else "visible"


def _given(filters: FactFilters, context: ReadContext) -> tuple[dict[str, Any], set[str]]:
    """Return the parameters of the filters that are given, and which of them name an entity by its id."""
    values = {**msgspec.structs.asdict(filters), "scope": context.scope}
    names = ("entity", "object", "predicate", "scope", "source", "garden_id", "min_confidence")
    given: dict[str, Any] = {name: values[name] for name in names if values[name] is not None}
    if not filters.include_low_trust:
        given["low_trust"] = LOW_TRUST
    if "garden_id" in given:
        given["garden_id"] = str(given["garden_id"])
    by_id: set[str] = set()
    for name in {"entity", "object"} & set(given):
        entity_id = as_id(given[name])
        if entity_id is not None:
            by_id.add(name)
        given[name] = entity_id or entity_name(given[name], name).norm
    if "predicate" in given:
        given["predicate"] = encode_reference(predicate_reference(given["predicate"]))
    return given, by_id


async def _ambiguity(db: Database, context: ReadContext, filters: FactFilters) -> Exception:
    """Return the error for a filter whose name several entities share."""
    for name, text in (("entity", filters.entity), ("object", filters.object)):
        if text is not None:
            rows = await entities.find_named(db, context.who, text, name)
            if len(rows) > 1:
                await entities.notices_of(db, context.who, rows, context.hold_denied)
                return entities.ambiguous(rows, name)
    return BadRequest("entity: several entities have this name; use an id.", code="entity_ambiguous")


async def get_history(db: Database, who: Principal, *, fact_id: UUID) -> FactHistory:
    """Return a fact with its supersession chain, evidence, ends and retractions, or raise NotFound."""
    when = queries.FactFilter(ReadContext.of(who))
    place = {**when.params, "fact": str(fact_id), "limit": queries.MAX_CHAIN + 1}
    async with db.tenant(who) as session:
        rows = await session.query(queries.select_fact(when), place)
        if not rows:
            raise fact_not_found()
        links = await session.query(queries.CHAIN, place)
        sides = [[str(row["fact_id"]) for row in links if row["side"] == side] for side in ("older", "newer")]
        ids = {fact for side in sides for fact in side[: queries.MAX_CHAIN]}
        chain = await session.query(queries.select_chain(when), {**place, "facts": sorted(ids)})
        # A link is only shown to callers who can see both of its facts.
        visible = [str(row["fact_id"]) for row in chain]
        supersessions = await session.rows(queries.SUPERSESSIONS, {"tenant": who.tenant_id, "facts": visible})
        place = {"tenant": who.tenant_id, "fact": str(fact_id)}
        evidence = await session.rows(queries.EVIDENCE, place)
        closings = await session.rows(queries.CLOSINGS, place)
        retractions = await session.rows(queries.RETRACTIONS, place)
    return FactHistory(
        fact=present_fact(rows[0]),
        chain=[present_fact(row) for row in chain],
        supersessions=[SupersessionRead(**row) for row in supersessions],
        evidence=[EvidenceRead(**row) for row in evidence],
        closings=[ClosingRead(**row) for row in closings],
        retractions=[RetractionRead(**row) for row in retractions],
        truncated=any(len(side) > queries.MAX_CHAIN for side in sides),
    )
