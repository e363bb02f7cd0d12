"""Use cases of conflicts: which there are, and how they end."""

from datetime import datetime
from typing import Any
from uuid import UUID

import msgspec

from app.access import Principal, require_project
from app.db.database import Database, Row, Session
from app.db.retries import retried
from app.errors import BadRequest, Conflict, Forbidden, NotFound
from app.facts import entities, reading, writing
from app.facts.schemas import EntityRef, FactCreate, ObjectIn
from app.facts.upkeep import queries
from app.facts.upkeep.schemas import ConflictList, ConflictRead, ConflictResolve, ConflictResolved
from app.facts.values import read_value
from app.paging import Page


def conflict_not_found() -> NotFound:
    """The one answer for a conflict that is unknown, hidden or of another tenant."""
    return NotFound("There is no such conflict.", code="conflict_not_found")


async def list_conflicts(
    db: Database, who: Principal, *, status: str | None, entity: str | None, page: Page
) -> ConflictList:
    """Conflicts whose facts the caller can see, newest first."""
    asked: dict[str, Any] = {} if status is None else {"status": status}
    if entity is not None:
        meant = await entities.find_named(db, who, entity, "entity")
        asked["entities"] = [str(row["entity_id"]) for row in meant]
    if page.after is not None:
        asked |= {"after": page.after[0]}
    place = _place(who)
    params = {**place, **asked, "limit": page.limit + 1, "after_id": page.after[1] if page.after else None}
    found = await db.query(who, queries.select_conflicts(set(asked)), params)
    rows, next_cursor = page.cut(found, key=lambda row: [row["detected_at"].isoformat(), str(row["conflict_id"])])
    return ConflictList(conflicts=await _present(db, who, rows), next_cursor=next_cursor)


async def get_conflict(db: Database, who: Principal, *, conflict_id: UUID) -> ConflictRead:
    """One conflict."""
    rows = await db.query(
        who, queries.select_conflicts({"conflict"}), {**_place(who), "conflict": str(conflict_id), "limit": 1}
    )
    if not rows:
        raise conflict_not_found()
    return (await _present(db, who, rows))[0]


def _place(who: Principal) -> dict[str, str]:
    return {"tenant": who.tenant_id, "project": require_project(who)}


async def _present(db: Database, who: Principal, rows: list[Row]) -> list[ConflictRead]:
    facts = await reading.read_facts(db, who, ids={row[side] for row in rows for side in ("fact_a", "fact_b")})
    return [
        ConflictRead(
            **{name: row[name] for name in ConflictRead.__struct_fields__ if name != "facts"},
            facts=[facts[row[side]] for side in ("fact_a", "fact_b") if row[side] in facts],
        )
        for row in rows
    ]


async def resolve_conflict(
    db: Database, who: Principal, *, conflict_id: UUID, data: ConflictResolve
) -> ConflictResolved:
    """Ends a conflict with a winner or a new value, in one transaction; the losers stay as history."""
    data = _unwrapped(data)
    if (data.winner is None) == (data.value is msgspec.UNSET):
        raise BadRequest("winner: name one of the two facts, or give a new value.")
    if data.winner is not None and (data.evidence or data.valid_from is not None or data.type is not msgspec.UNSET):
        raise BadRequest("winner: evidence, valid_from and type are said of a new value; a winner has its own.")
    if data.note is not None and data.resolution_note is not None:
        raise BadRequest("note: give only one of note or resolution_note.")
    conflict = await get_conflict(db, who, conflict_id=conflict_id)
    if data.winner is not None and data.winner not in (conflict.fact_a, conflict.fact_b):
        raise BadRequest(
            "winner: not one of the two facts of this conflict; name one of them, or give a value.",
            code="conflict_winner_invalid",
            details={"facts": [str(conflict.fact_a), str(conflict.fact_b)]},
        )

    async def write() -> tuple[UUID, list[UUID]]:
        async with db.tenant(who) as session:
            winner = data.winner or await _write_value(session, who, conflict, data)
            row = await session.row(
                queries.RESOLVE_CONFLICT,
                {
                    "conflict": str(conflict_id),
                    "winner": str(winner),
                    "note": data.note or data.resolution_note,
                    **writing.written_by(who),
                },
            )
            assert row is not None
            _check_refusal(row["refused"])
            await queries.queue_cards(session, fact_ids=[str(winner), *(str(loser) for loser in row["losers"])])
            return winner, row["losers"]

    winner, losers = await retried(write)
    return ConflictResolved(
        conflict=await get_conflict(db, who, conflict_id=conflict_id),
        fact=await reading.get_fact(db, who, fact_id=winner),
        retracted=losers,
    )


def _unwrapped(data: ConflictResolve) -> ConflictResolve:
    """A value may also be written as the object of a fact is: with its type beside it."""
    if not isinstance(data.value, dict):
        return data
    try:
        inner = msgspec.convert(data.value, ObjectIn)
    except msgspec.ValidationError as problem:
        raise BadRequest(f"value: {problem}") from problem
    if inner.value is msgspec.UNSET or data.type is not msgspec.UNSET:
        raise BadRequest("value: text, a number, true, false or null; or an object with value and type.")
    return msgspec.structs.replace(data, value=inner.value, type=inner.type)


async def _write_value(session: Session, who: Principal, conflict: ConflictRead, data: ConflictResolve) -> UUID:
    """The value as a fact of the same place, for as long as what it replaces; one that holds it is confirmed."""
    if conflict.status == "resolved" or not conflict.facts:
        raise _already_resolved()
    one = conflict.facts[0]
    value = read_value(data.value, None if data.type is msgspec.UNSET else data.type, "value")
    place = {
        "tenant": who.tenant_id,
        "fact": str(one.fact_id),
        "pair": [str(conflict.fact_a), str(conflict.fact_b)],
        "hash": value.hash,
    }
    held = await session.query(queries.SAME_VALUE, place)
    start = held[0]["valid_from"] if held else data.valid_from
    fact = FactCreate(
        subject=EntityRef(entity_id=one.subject.entity_id),
        predicate=str(one.predicate.predicate_id),
        object=ObjectIn(value=data.value, type=data.type),
        scope=one.scope,
        garden_id=one.garden_id,
        confidence=1.0,
        valid_from=start or min(found.valid_from for found in conflict.facts),
        valid_to=msgspec.UNSET if held else _latest([found.valid_to for found in conflict.facts]),
        evidence=data.evidence,
    )
    return await writing.write_within(session, who, data=fact)


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
        raise Forbidden("A reader of this garden may not decide what grows in it.", code="garden_forbidden")
    if refused == "winner_invalid":
        raise Conflict("winner: this fact has been taken back; name the other one.", code="conflict_winner_invalid")
    raise conflict_not_found()
