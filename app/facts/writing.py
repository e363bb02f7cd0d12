"""Use cases that write facts: one or many, ended, taken back."""

from typing import Any
from uuid import UUID

import msgspec

from app.access import Principal, require_project
from app.batches import check_size, convert_item, item_error, stop_if_atomic
from app.db.database import Database, Row, Session
from app.db.retries import retried
from app.errors import AppError, BadRequest, Conflict, Forbidden, NotFound, Unprocessable
from app.facts import entities, queries
from app.facts.drafts import Drafts, alone, entity_row, predicate_row
from app.facts.reading import fact_not_found, get_fact, present_fact
from app.facts.schemas import (
    FactBatch,
    FactBatchDone,
    FactCreate,
    FactPatch,
    FactRead,
    FactResult,
    FactRetract,
    FactRetracted,
    FactsRetract,
    FactsRetracted,
    FactWritten,
)
from app.facts.upkeep import sources
from app.inputs import as_utc
from app.tenancy import gardens
from app.tenancy.schemas import SYNONYMS
from app.web.idempotency import Answer, Once


def written_by(who: Principal) -> dict[str, Any]:
    """Who writes, as the database asks: for the audit log, and for what only administrators may or may not."""
    return {"key": who.key_id, "admin": who.is_admin}


async def write_fact(db: Database, who: Principal, *, data: FactCreate, once: Once) -> Answer:
    """Writes one fact: 201 when it is new, 200 when what it says was believed already."""
    drafts = Drafts(who)
    drafts.add(0, data)
    errors = await _check_gardens(db, who, drafts)
    if errors:
        raise errors[0]
    await sources.judge(db, who, drafts.facts)

    def finish(rows: list[Row], _: dict[int, AppError]) -> tuple[int, msgspec.Struct]:
        (row,) = rows
        body = FactWritten(
            fact=present_fact(row), outcome=row["outcome"], superseded=row["superseded"], conflicts=row["conflicts"]
        )
        return (201 if row["outcome"] == "created" else 200), body

    return await _write(db, who, drafts, atomic=True, once=once, finish=finish, errors={}, batch=False)


async def write_facts(db: Database, who: Principal, *, data: FactBatch, once: Once) -> Answer:
    """Writes up to 1,000 facts in one transaction: all or none, or each on its own."""
    check_size(data.facts, "facts")
    drafts = Drafts(who)
    errors: dict[int, AppError] = {}
    for index, item in enumerate(data.facts):
        try:
            drafts.add(index, convert_item(item, FactCreate))
        except AppError as problem:
            errors[index] = problem
    errors |= await _check_gardens(db, who, drafts)
    stop_if_atomic("facts", atomic=data.atomic, errors=errors)
    drafts.drop(set(errors))
    await sources.judge(db, who, drafts.facts)

    def finish(rows: list[Row], errors: dict[int, AppError]) -> tuple[int, msgspec.Struct]:
        written = {row["idx"]: row for row in rows}
        results = [_result(index, written, errors) for index in range(len(data.facts))]
        return 200, FactBatchDone(results=results)

    return await _write(db, who, drafts, atomic=data.atomic, once=once, finish=finish, errors=errors, batch=True)


def _result(index: int, written: dict[int, Row], errors: dict[int, AppError]) -> FactResult:
    if index in errors:
        return FactResult(index=index, error=item_error(errors[index]))
    row = written[index]
    return FactResult(
        index=index,
        outcome=row["outcome"],
        fact=present_fact(row),
        superseded=row["superseded"],
        conflicts=row["conflicts"],
    )


async def _check_gardens(db: Database, who: Principal, drafts: Drafts) -> dict[int, AppError]:
    """Who may not write into the gardens that were named."""
    errors: dict[int, AppError] = {}
    if not drafts.gardens:
        return errors
    async with db.tenant(who) as session:
        for (garden_id, scope), indexes in drafts.gardens.items():
            try:
                await gardens.require_writable(session, who, garden_id=garden_id, scope=scope)
            except AppError as problem:
                # Each gets its own, since a batch adds the index to it.
                errors |= {
                    index: type(problem)(problem.message, code=problem.code, details=problem.details)
                    for index in indexes
                }
    return errors


async def _write(
    db: Database,
    who: Principal,
    drafts: Drafts,
    *,
    atomic: bool,
    once: Once,
    finish: Any,
    errors: dict[int, AppError],
    batch: bool,
) -> Answer:
    """One round trip; with an Idempotency-Key a transaction around it, so that the answer is stored with the effect."""
    require_project(who)
    arguments = drafts.arguments()

    async def refuse(rows: list[Row]) -> tuple[list[Row], dict[int, AppError]]:
        refused = [row for row in rows if row["refused"] is not None]
        names = await _candidates(db, who, refused)
        found = {**errors, **{row["idx"]: _refusal(row, names) for row in refused}}
        if found and not batch:
            raise found[0]
        stop_if_atomic("facts", atomic=atomic, errors=found)
        return [row for row in rows if row["refused"] is None], found

    async def write() -> Answer:
        if not once.has_key:
            parameters = (*who.arguments(), *arguments.values(), atomic, who.key_id, who.is_admin)
            status, body = finish(*await refuse(await db.call(queries.PUT_FACTS, parameters, again=False)))
            return Answer(status, msgspec.json.encode(body))
        async with once.tenant(db, who) as step:
            if step.stored:
                return step.stored
            rows = await step.session.rows(queries.WRITE_FACTS, {**arguments, **written_by(who), "atomic": atomic})
            return await step.answer(*finish(*await refuse(rows)))

    return await retried(write)


async def write_within(session: Session, who: Principal, *, data: FactCreate) -> UUID:
    """Writes one fact as part of a larger act, whose transaction and whose line in the audit log it shares."""
    drafts = Drafts(who)
    drafts.add(0, data)
    arguments = {**drafts.arguments(), "key": None, "admin": who.is_admin, "atomic": True}
    (row,) = await session.rows(queries.WRITE_FACTS, arguments)
    if row["refused"] is not None:
        raise _refusal(row, {})
    return row["fact_id"]


class Written(msgspec.Struct, frozen=True, kw_only=True):
    """What became of a batch that is part of a larger act."""

    created: int
    reused: int
    refused: list[tuple[int, str]]


def draft_all(who: Principal, items: list[FactCreate]) -> tuple[Drafts, list[str]]:
    """Drafts of all that hold, and why the others do not."""
    drafts = Drafts(who)
    refused: list[str] = []
    for index, item in enumerate(items):
        try:
            drafts.add(index, item)
        except AppError as problem:
            refused.append(f"entities[{index}]: {problem.code}")
    return drafts, refused


async def judge_drafts(db: Database, who: Principal, drafts: Drafts) -> None:
    """Gives drafts the trust of their sources."""
    await sources.judge(db, who, drafts.facts)


async def write_drafts(session: Session, who: Principal, drafts: Drafts) -> Written:
    """Writes each draft on its own as part of a larger act, whose transaction it shares."""
    if not drafts.facts:
        return Written(created=0, reused=0, refused=[])
    arguments = {**drafts.arguments(), **written_by(who), "atomic": False}
    rows = await session.rows(queries.WRITE_FACTS, arguments)
    return Written(
        created=sum(row["outcome"] == "created" for row in rows),
        reused=sum(row["outcome"] == "reused" for row in rows),
        refused=[(row["idx"], row["refused"]) for row in rows if row["refused"] is not None],
    )


async def retract_resting_on(session: Session, who: Principal, *, note_id: str, reason: str) -> None:
    """Takes back what was believed because of one note alone."""
    place = {"tenant": who.tenant_id, "project": require_project(who), "note": note_id}
    facts = [str(row["fact_id"]) for row in await session.query(queries.RESTING_ON, place)]
    if facts:
        nothing: dict[str, Any] = {"subject": None, "predicate": None, "scope": None}
        await session.rows(queries.RETRACT_FACTS, {**nothing, "facts": facts, "reason": reason, **written_by(who)})


async def _candidates(db: Database, who: Principal, refused: list[Row]) -> dict[str, Row]:
    ids = sorted({str(found) for row in refused for found in row["candidates"] or ()})
    if not ids:
        return {}
    rows = await db.query(who, queries.ENTITIES_BY_ID, {"tenant": who.tenant_id, "ids": ids})
    return {str(row["entity_id"]): row for row in rows}


def _refusal(row: Row, names: dict[str, Row]) -> AppError:
    code, field = row["refused"], row["field"]
    if code == "entity_ambiguous":
        return entities.ambiguous([names[str(found)] for found in row["candidates"] if str(found) in names], field)
    if code == "entity_tombstoned":
        return entities.tombstoned(field)
    if code == "provenance_cycle_detected":
        return BadRequest("derived_from: this fact would be derived from itself; leave that hash out.", code=code)
    if code == "entity_not_found":
        return entities.entity_not_found(field)
    if code == "predicate_not_found":
        return NotFound("predicate: there is no such predicate.", code=code)
    if code == "predicate_deprecated":
        return Conflict("predicate: deprecated, nothing new is written by it; use another one.", code=code)
    if code == "agent_required":
        return BadRequest("scope: agent_private needs an agent, and this key has none.", code=code)
    if code == "valid_to_too_early":
        return BadRequest("valid_to: must be later than valid_from, which is now when absent.")
    if code == "note_not_found":
        return NotFound(f"{field}: there is no such note.", code=code)
    return Forbidden(f"{field}: you are no member of this garden.", code="garden_forbidden")


async def retract_fact(db: Database, who: Principal, *, fact_id: UUID, data: FactRetract) -> FactRetracted:
    """Takes one fact back; it stays readable as history."""
    await _retract(db, who, facts=[str(fact_id)], reason=data.reason)
    return FactRetracted(fact=await get_fact(db, who, fact_id=fact_id))


async def retract_facts(db: Database, who: Principal, *, data: FactsRetract) -> FactsRetracted:
    """Takes back everything under a subject, a predicate and a scope; nothing there is no failure."""
    subject = entity_row(data.subject, "subject")
    predicate = predicate_row(data.predicate)
    place = {"tenant": who.tenant_id, "project": require_project(who)}

    async def write() -> FactsRetracted:
        async with db.tenant(who) as session:
            meant = await session.rows(queries.RESOLVE_ENTITIES, {**place, "names": alone(subject)})
            if meant[0]["state"] == "ambiguous":
                ids = [str(found) for found in meant[0]["candidates"]]
                found = await session.query(queries.ENTITIES_BY_ID, {"tenant": who.tenant_id, "ids": ids})
                raise entities.ambiguous(found, "subject")
            named = await session.rows(queries.RESOLVE_PREDICATES, {**place, "names": alone(predicate)})
            if meant[0]["entity_id"] is None or named[0]["predicate_id"] is None:
                return FactsRetracted(retracted=[])
            arguments = {
                "facts": None,
                "subject": str(meant[0]["entity_id"]),
                "predicate": str(named[0]["predicate_id"]),
                "scope": SYNONYMS.get(data.scope, data.scope),
                "reason": data.reason,
                **written_by(who),
            }
            rows = await session.rows(queries.RETRACT_FACTS, arguments)
            return FactsRetracted(retracted=sorted(row["fact_id"] for row in rows if row["refused"] is None))

    return await retried(write)


async def _retract(db: Database, who: Principal, *, facts: list[str], reason: str | None) -> None:
    arguments = {
        "facts": facts,
        "subject": None,
        "predicate": None,
        "scope": None,
        "reason": reason,
        **written_by(who),
    }

    async def write() -> None:
        async with db.tenant(who) as session:
            rows = await session.rows(queries.RETRACT_FACTS, arguments)
            _check_refusal("fact_not_found" if not rows else rows[0]["refused"], None)

    await retried(write)


async def patch_fact(db: Database, who: Principal, *, fact_id: UUID, data: FactPatch) -> FactRead:
    """Moves the end of a fact, within the room its timeline leaves; every end it had stays on record."""
    if data.derived_from is not msgspec.UNSET:
        raise Unprocessable(
            "derived_from: what a fact came from is fixed when it is made; write another fact.",
            code="derived_from_immutable",
        )
    if data.valid_to is msgspec.UNSET:
        raise BadRequest("valid_to: required; a time, or null to open the fact again.")
    valid_to = None if data.valid_to is None else as_utc(data.valid_to, "valid_to")
    arguments = {"fact": str(fact_id), "valid_to": valid_to, **written_by(who)}

    async def write() -> None:
        async with db.tenant(who) as session:
            row = await session.row(queries.END_FACT, arguments)
            assert row is not None
            _check_refusal(row["refused"], row["bound"])

    await retried(write)
    return await get_fact(db, who, fact_id=fact_id)


def _check_refusal(refused: str | None, bound: Any) -> None:
    if refused is None:
        return
    if refused == "garden_forbidden":
        raise Forbidden("A reader of this garden may not change what grows in it.", code="garden_forbidden")
    if refused == "already_retracted":
        raise Conflict("This fact has been taken back already.", code="already_retracted")
    if refused == "valid_to_too_early":
        raise BadRequest(f"valid_to: must be later than valid_from, which is {bound.isoformat()}.")
    if refused == "timeline_occupied":
        raise Conflict(
            f"valid_to: the next fact of this timeline starts at {bound.isoformat()}; end it there or earlier.",
            code="timeline_occupied",
            details={"valid_to_at_most": bound.isoformat()},
        )
    raise fact_not_found()
