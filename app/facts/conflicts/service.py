"""Use cases of conflicts: list, get, resolve."""

from datetime import datetime
from typing import Any
from uuid import UUID

import msgspec
from msgspec import UnsetType

from app.access import Principal, shared_read_only
from app.db.counts import COUNT_LIMIT, count_query
from app.db.database import Database, Row, Session
from app.db.retries import retried
from app.errors import BadRequest, Conflict, Forbidden, NotFound
from app.facts import reads, writes
from app.facts.conflicts import queries
from app.facts.conflicts.schemas import ConflictList, ConflictRead, ConflictResolve, ConflictResolved
from app.facts.entities import service as entities
from app.facts.queries import queue_cards
from app.facts.schemas import EntityRef, FactCreate, ObjectIn, TombstoneNotice
from app.facts.values import read_value
from app.paging import Page
from app.read_context import ReadContext, look_back


def conflict_not_found() -> NotFound:
    """Return the error for a conflict that is unknown, hidden or of another tenant."""
    return NotFound("There is no such conflict.", code="conflict_not_found")


async def list_conflicts(
    db: Database, context: ReadContext, *, status: str | None, entity: str | None, page: Page
) -> ConflictList:
    """Return the conflicts whose facts the caller can see, newest first, as they were at the context's time."""
    given: dict[str, Any] = {} if status is None else {"status": status}
    if entity is not None:
        found = await entities.find_named(db, context.who, entity, "entity", as_of=context.as_of)
        given["entities"] = [str(row["entity_id"]) for row in found]
    after = {} if page.after is None else {"after": page.after[0], "after_id": page.after[1]}
    rows = await _read(db, context, limit=page.limit + 1, **given, **after)
    rows, next_cursor = page.cut(rows, key=lambda row: [row["detected_at"].isoformat(), str(row["conflict_id"])])
    conflicts = await _present(db, context, rows)
    return ConflictList(
        conflicts=conflicts,
        next_cursor=next_cursor,
        total=await page.count(lambda: _read(db, context, count=True, limit=COUNT_LIMIT, **given)),
        tombstone_notices=await _notices(db, context, conflicts),
    )


async def get_conflict(db: Database, context: ReadContext, *, conflict_id: UUID) -> ConflictRead:
    """Return one conflict as it was at the context's time, or raise NotFound."""
    rows = await _read(db, context, limit=1, conflict=str(conflict_id))
    if not rows:
        raise conflict_not_found()
    (conflict,) = await _present(db, context, rows)
    return msgspec.structs.replace(conflict, tombstone_notices=await _notices(db, context, [conflict]))


async def _read(db: Database, context: ReadContext, *, limit: int, count: bool = False, **given: Any) -> list[Row]:
    filters = given.keys() - {"after_id"}
    if context.as_of is not None:
        filters |= {"as_of"}
    params = {**context.parameters(), **given, "limit": limit}
    query = queries.select_conflicts(filters)
    return await look_back(db, context.who, count_query(query) if count else query, params)


async def _present(db: Database, context: ReadContext, rows: list[Row]) -> list[ConflictRead]:
    ids = {row[side] for row in rows for side in ("fact_a", "fact_b")}
    facts = await reads.read_facts(db, context.who, ids=ids, as_of=context.as_of)
    return [
        ConflictRead(
            **{
                name: row[name] for name in ConflictRead.__struct_fields__ if name not in ("facts", "tombstone_notices")
            },
            facts=[facts[row[side]] for side in ("fact_a", "fact_b") if row[side] in facts],
        )
        for row in rows
    ]


async def _notices(
    db: Database, context: ReadContext, conflicts: list[ConflictRead]
) -> list[TombstoneNotice] | UnsetType:
    facts = [fact for conflict in conflicts for fact in conflict.facts]
    return await reads.notices_of(db, context.who, facts, context.hold_denied)


async def resolve_conflict(
    db: Database, who: Principal, *, conflict_id: UUID, data: ConflictResolve
) -> ConflictResolved:
    """Resolve a conflict with a winner or a new value, in one transaction; the losers stay as history."""
    data = _unwrap_value(data)
    _check_resolution(data)
    present = ReadContext.of(who)
    conflict = await get_conflict(db, present, conflict_id=conflict_id)
    if data.winner is not None and data.winner not in (conflict.fact_a, conflict.fact_b):
        raise BadRequest(
            "winner: not one of the two facts of this conflict; choose one of them, or give a value.",
            code="conflict_winner_invalid",
            details={"facts": [str(conflict.fact_a), str(conflict.fact_b)]},
        )
    winner, losers = await retried(lambda: _resolve(db, who, conflict, data))
    return ConflictResolved(
        conflict=await get_conflict(db, present, conflict_id=conflict_id),
        fact=await reads.get_fact(db, present, fact_id=winner),
        retracted=losers,
    )


def _check_resolution(data: ConflictResolve) -> None:
    if (data.winner is None) == (data.value is msgspec.UNSET):
        raise BadRequest("winner: give either winner (one of the two facts) or value (a new value).")
    if data.winner is not None and (data.evidence or data.valid_from is not None or data.type is not msgspec.UNSET):
        raise BadRequest("winner: evidence, valid_from and type belong to a new value; leave them out.")
    if data.note is not None and data.resolution_note is not None:
        raise BadRequest("note: give only one of note or resolution_note.")


async def _resolve(
    db: Database, who: Principal, conflict: ConflictRead, data: ConflictResolve
) -> tuple[UUID, list[UUID]]:
    """Resolve a conflict in a transaction; return the winner and the losers."""
    async with db.tenant(who) as session:
        winner = data.winner or await _write_value(session, who, conflict, data)
        row = await session.row(
            queries.RESOLVE_CONFLICT,
            {
                "conflict": str(conflict.conflict_id),
                "winner": str(winner),
                "note": data.note or data.resolution_note,
                **writes.audit_arguments(who),
            },
        )
        assert row is not None
        _check_refusal(row["refused"])
        await queue_cards(session, fact_ids=[str(winner), *(str(loser) for loser in row["losers"])])
        return winner, row["losers"]


def _unwrap_value(data: ConflictResolve) -> ConflictResolve:
    """Accept a value written like the object of a fact, with its type beside it."""
    if not isinstance(data.value, dict):
        return data
    try:
        inner = msgspec.convert(data.value, ObjectIn)
    except msgspec.ValidationError as problem:
        raise BadRequest(f"value: {problem}") from problem
    value = inner.value if inner.v is msgspec.UNSET else inner.v
    if value is msgspec.UNSET or data.type is not msgspec.UNSET:
        raise BadRequest("value: text, a number, true, false or null; or an object with value and type.")
    return msgspec.structs.replace(data, value=value, type=inner.type)


async def _write_value(session: Session, who: Principal, conflict: ConflictRead, data: ConflictResolve) -> UUID:
    """Write the new value as a fact with the validity of those it replaces, or confirm the fact that has it."""
    if conflict.status == "resolved" or not conflict.facts:
        raise _already_resolved()
    one = conflict.facts[0]
    if data.type == "ref":
        raise BadRequest("type: a ref names an entity, and this conflict is between values; give a value.")
    value = read_value(data.value, None if data.type is msgspec.UNSET else data.type, "value")
    place = {
        "tenant": who.tenant_id,
        "fact": str(one.fact_id),
        "pair": [str(conflict.fact_a), str(conflict.fact_b)],
        "hash": value.hash,
    }
    same = await session.query(queries.SAME_VALUE, place)
    start = same[0]["valid_from"] if same else data.valid_from
    fact = FactCreate(
        subject=EntityRef(entity_id=one.subject.entity_id),
        predicate=str(one.predicate.predicate_id),
        object=ObjectIn(value=data.value, type=data.type),
        scope=one.scope,
        garden_id=one.garden_id,
        confidence=1.0,
        valid_from=start or min(found.valid_from for found in conflict.facts),
        valid_to=msgspec.UNSET if same else _latest([found.valid_to for found in conflict.facts]),
        evidence=data.evidence,
    )
    return await writes.write_within(session, who, data=fact)


def _latest(ends: list[datetime | None]) -> datetime | None:
    known = [end for end in ends if end is not None]
    return max(known) if len(known) == len(ends) else None


def _already_resolved() -> Conflict:
    return Conflict("This conflict has been resolved already.", code="conflict_already_resolved")


def _check_refusal(refused: str | None) -> None:
    if refused is None:
        return
    if refused == "conflict_already_resolved":
        raise _already_resolved()
    if refused == "garden_forbidden":
        raise Forbidden("Readers of a garden cannot resolve its conflicts.", code="garden_forbidden")
    if refused == "shared_read_only":
        raise shared_read_only("The conflict")
    if refused == "winner_invalid":
        raise Conflict("winner: this fact has been retracted; choose the other one.", code="conflict_winner_invalid")
    raise conflict_not_found()
