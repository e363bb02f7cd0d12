"""Use cases that write facts: one, a batch, or as part of a larger transaction."""

from contextlib import AbstractAsyncContextManager
from typing import Any
from uuid import UUID

import msgspec

from app.access import Principal, require_project
from app.batches import check_size, convert_item, item_error, stop_if_atomic
from app.db.database import Database, Row, Session
from app.db.retries import retried
from app.errors import AppError, BadRequest, Conflict, Forbidden, NotFound
from app.facts import queries
from app.facts.drafts import Drafts
from app.facts.entities import queries as entity_queries
from app.facts.entities import service as entities
from app.facts.reads import present_fact
from app.facts.schemas import FactBatch, FactBatchDone, FactCreate, FactResult, FactWritten
from app.facts.sources import service as sources
from app.outcomes import Outcome
from app.tenancy import gardens


def audit_arguments(who: Principal) -> dict[str, Any]:
    """Return the caller as the writing functions take it: the key for the audit log, and whether it is an admin's."""
    return {"key": who.key_id, "admin": who.is_admin}


class PreparedFacts(msgspec.Struct, frozen=True, kw_only=True):
    """Facts that passed all checks made before the write."""

    drafts: Drafts
    size: int
    """How many facts the request has, those in `errors` included."""
    atomic: bool
    errors: dict[int, AppError]


class WrittenFacts(msgspec.Struct, frozen=True, kw_only=True):
    """The rows of facts that were written, and the errors of the others by index."""

    rows: list[Row]
    errors: dict[int, AppError]


async def prepare_fact(db: Database, who: Principal, *, data: FactCreate) -> PreparedFacts:
    """Check one fact and give it the trust of its source; raise what is wrong with it."""
    drafts = Drafts(who)
    drafts.add(0, data)
    if errors := await _check_gardens(db, who, drafts):
        raise errors[0]
    await sources.set_trust(db, who, drafts.facts)
    require_project(who)
    return PreparedFacts(drafts=drafts, size=1, atomic=True, errors={})


async def prepare_facts(db: Database, who: Principal, *, data: FactBatch) -> PreparedFacts:
    """Check a batch and give its facts the trust of their sources; raise the first error if it is atomic."""
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
    await sources.set_trust(db, who, drafts.facts)
    require_project(who)
    return PreparedFacts(drafts=drafts, size=len(data.facts), atomic=data.atomic, errors=errors)


async def _check_gardens(db: Database, who: Principal, drafts: Drafts) -> dict[int, AppError]:
    """Return the errors of facts in gardens that the caller cannot write to."""
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


async def write_fact(db: Database, who: Principal, *, data: FactCreate) -> Outcome[FactWritten]:
    """Write one fact in one round trip; it is `created`, `reused` when the same is believed already, or `retracted`."""
    prepared = await prepare_fact(db, who, data=data)
    async with timeline(db, who, prepared):
        return _one_outcome(await _write_at_once(db, who, prepared))


def timeline(db: Database, who: Principal, prepared: PreparedFacts) -> AbstractAsyncContextManager[None]:
    """Let one request at a time of this process write facts of the subject, whose row each of them locks."""
    return db.turns.of((who.tenant_id, who.project_id, "facts", prepared.drafts.first_subject))


async def write_facts(db: Database, who: Principal, *, data: FactBatch) -> Outcome[FactBatchDone]:
    """Write up to 1,000 facts in one round trip: all or none, or each on its own."""
    prepared = await prepare_facts(db, who, data=data)
    written = await _write_at_once(db, who, prepared)
    stop_if_atomic("facts", atomic=prepared.atomic, errors=written.errors)
    return _batch_outcome(prepared, written)


async def write_prepared_fact(session: Session, who: Principal, prepared: PreparedFacts) -> Outcome[FactWritten]:
    """Do the same as `write_fact` inside an open transaction."""
    return _one_outcome(await _write_within(session, who, prepared))


async def write_prepared_facts(session: Session, who: Principal, prepared: PreparedFacts) -> Outcome[FactBatchDone]:
    """Do the same as `write_facts` inside an open transaction."""
    written = await _write_within(session, who, prepared)
    stop_if_atomic("facts", atomic=prepared.atomic, errors=written.errors)
    return _batch_outcome(prepared, written)


async def _write_at_once(db: Database, who: Principal, prepared: PreparedFacts) -> WrittenFacts:
    arguments = prepared.drafts.arguments().values()
    parameters = (*who.arguments(), *arguments, prepared.atomic, who.key_id, who.is_admin)
    rows = await retried(lambda: db.call(queries.PUT_FACTS, parameters, again=False))
    names: list[Row] = []
    if ids := _candidates(rows):
        names = await db.query(who, entity_queries.ENTITIES_BY_ID, {"tenant": who.tenant_id, "ids": ids})
    return _written(rows, names, prepared.errors)


async def _write_within(session: Session, who: Principal, prepared: PreparedFacts) -> WrittenFacts:
    arguments = {**prepared.drafts.arguments(), **audit_arguments(who), "atomic": prepared.atomic}
    rows = await session.rows(queries.WRITE_FACTS, arguments)
    names: list[Row] = []
    if ids := _candidates(rows):
        names = await session.query(entity_queries.ENTITIES_BY_ID, {"tenant": who.tenant_id, "ids": ids})
    return _written(rows, names, prepared.errors)


def _candidates(rows: list[Row]) -> list[str]:
    """Return the ids of the entities that ambiguous names could mean."""
    return sorted({str(found) for row in rows if row["refused"] is not None for found in row["candidates"] or ()})


def _written(rows: list[Row], names: list[Row], errors: dict[int, AppError]) -> WrittenFacts:
    by_id = {str(row["entity_id"]): row for row in names}
    refused = {row["idx"]: _refusal(row, by_id) for row in rows if row["refused"] is not None}
    return WrittenFacts(rows=[row for row in rows if row["refused"] is None], errors={**errors, **refused})


def _one_outcome(written: WrittenFacts) -> Outcome[FactWritten]:
    if written.errors:
        raise written.errors[0]
    (row,) = written.rows
    value = FactWritten(
        fact=present_fact(row), outcome=row["outcome"], superseded=row["superseded"], conflicts=row["conflicts"]
    )
    return Outcome(value, created=row["outcome"] == "created")


def _batch_outcome(prepared: PreparedFacts, written: WrittenFacts) -> Outcome[FactBatchDone]:
    by_index = {row["idx"]: row for row in written.rows}
    results = [_result(index, by_index, written.errors) for index in range(prepared.size)]
    return Outcome(FactBatchDone(results=results), created=False)


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
        return Conflict("predicate: deprecated, so no new facts can use it; use another one.", code=code)
    if code == "agent_required":
        return BadRequest("scope: agent_private needs an agent, and this key has none.", code=code)
    if code == "valid_to_too_early":
        return BadRequest("valid_to: must be later than valid_from, which is now when absent.")
    if code == "confidence_zero":
        return BadRequest(
            "confidence: must be above 0 for a fact that is not believed; 0 retracts the same fact where it is.",
            code=code,
        )
    if code == "note_not_found":
        return NotFound(f"{field}: there is no such note.", code=code)
    return Forbidden(f"{field}: you are not a member of this garden.", code="garden_forbidden")


async def write_within(session: Session, who: Principal, *, data: FactCreate) -> UUID:
    """Write one fact as part of a larger action, in its transaction and without an audit event of its own."""
    drafts = Drafts(who)
    drafts.add(0, data)
    arguments = {**drafts.arguments(), "key": None, "admin": who.is_admin, "atomic": True}
    (row,) = await session.rows(queries.WRITE_FACTS, arguments)
    if row["refused"] is not None:
        raise _refusal(row, {})
    return row["fact_id"]


class DraftsWritten(msgspec.Struct, frozen=True, kw_only=True):
    """The counts of a batch that was written as part of a larger action."""

    created: int
    reused: int
    refused: list[tuple[int, str]]


def draft_all(who: Principal, items: list[FactCreate]) -> tuple[Drafts, list[str]]:
    """Return drafts of the valid facts, and why the others are invalid."""
    drafts = Drafts(who)
    refused: list[str] = []
    for index, item in enumerate(items):
        if item.confidence == 0:
            # A denial retracts, which is not for a larger action that only adds.
            refused.append(f"entities[{index}]: confidence_zero")
            continue
        try:
            drafts.add(index, item)
        except AppError as problem:
            refused.append(f"entities[{index}]: {problem.code}")
    return drafts, refused


async def set_trust(db: Database, who: Principal, drafts: Drafts) -> None:
    """Give drafts the trust of their sources."""
    await sources.set_trust(db, who, drafts.facts)


async def write_drafts(session: Session, who: Principal, drafts: Drafts) -> DraftsWritten:
    """Write each draft on its own as part of a larger action, in its transaction."""
    if not drafts.facts:
        return DraftsWritten(created=0, reused=0, refused=[])
    arguments = {**drafts.arguments(), **audit_arguments(who), "atomic": False}
    rows = await session.rows(queries.WRITE_FACTS, arguments)
    return DraftsWritten(
        created=sum(row["outcome"] == "created" for row in rows),
        reused=sum(row["outcome"] == "reused" for row in rows),
        refused=[(row["idx"], row["refused"]) for row in rows if row["refused"] is not None],
    )
