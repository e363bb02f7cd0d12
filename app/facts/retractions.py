"""Use cases that end or retract facts."""

from typing import Any
from uuid import UUID

import msgspec

from app.access import Principal, require_project, shared_read_only
from app.db.database import Database, Row, Session
from app.db.retries import retried
from app.errors import BadRequest, Conflict, Forbidden, Unprocessable
from app.facts import queries
from app.facts.drafts import encode_reference, entity_reference, predicate_reference
from app.facts.entities import queries as entity_queries
from app.facts.entities import service as entities
from app.facts.predicates import queries as predicate_queries
from app.facts.reads import fact_not_found, get_fact
from app.facts.schemas import FactPatch, FactRetract, FactRetracted, FactsRetract, FactsRetracted, FactWritten
from app.facts.writes import audit_arguments
from app.inputs import as_utc
from app.read_context import ReadContext
from app.tenancy.schemas import SYNONYMS

_BY_ID: dict[str, Any] = {"subject": None, "predicate": None, "scope": None}


async def retract_fact(db: Database, who: Principal, *, fact_id: UUID, data: FactRetract) -> FactRetracted:
    """Retract one fact, which stays readable as history; raise NotFound or Conflict."""
    arguments = {**_BY_ID, "facts": [str(fact_id)], "reason": data.reason, **audit_arguments(who)}

    async def write() -> None:
        async with db.tenant(who) as session:
            rows = await session.rows(queries.RETRACT_FACTS, arguments)
            _check_refusal("fact_not_found" if not rows else rows[0]["refused"], None)

    await retried(write)
    return FactRetracted(fact=await get_fact(db, ReadContext.of(who), fact_id=fact_id))


async def retract_facts(db: Database, who: Principal, *, data: FactsRetract) -> FactsRetracted:
    """Retract all visible facts of a subject, a predicate and a scope, which may be none."""
    subject = encode_reference(entity_reference(data.subject, "subject"))
    predicate = encode_reference(predicate_reference(data.predicate))

    async def write() -> FactsRetracted:
        async with db.tenant(who) as session:
            found = await _resolve(session, who, subject=subject, predicate=predicate)
            if found is None:
                return FactsRetracted(retracted=[])
            arguments = {
                **found,
                "facts": None,
                "scope": SYNONYMS.get(data.scope, data.scope),
                "reason": data.reason,
                **audit_arguments(who),
            }
            rows = await session.rows(queries.RETRACT_FACTS, arguments)
            return FactsRetracted(retracted=sorted(row["fact_id"] for row in rows if row["refused"] is None))

    return await retried(write)


async def _resolve(session: Session, who: Principal, *, subject: str, predicate: str) -> dict[str, str] | None:
    """Return the ids of a subject and a predicate, or None when one of them is unknown."""
    place = {"tenant": who.tenant_id, "project": require_project(who)}
    (entity,) = await session.rows(entity_queries.RESOLVE_ENTITIES, {**place, "names": subject})
    if entity["state"] == "ambiguous":
        raise entities.ambiguous(await entities.read_entities(session, who, ids=entity["candidates"]), "subject")
    (named,) = await session.rows(predicate_queries.RESOLVE_PREDICATES, {**place, "names": predicate})
    if entity["entity_id"] is None or named["predicate_id"] is None:
        return None
    return {"subject": str(entity["entity_id"]), "predicate": str(named["predicate_id"])}


async def list_in_garden(session: Session, who: Principal, *, garden_id: UUID) -> list[str]:
    """Return the live facts of a garden that the caller can see."""
    place = {"tenant": who.tenant_id, "project": require_project(who), "garden": str(garden_id)}
    return [str(row["fact_id"]) for row in await session.rows(queries.LIVE_IN_GARDEN, place)]


async def retract_named(session: Session, who: Principal, *, fact_ids: list[str], reason: str) -> None:
    """Retract facts by their ids, as far as the caller may."""
    if fact_ids:
        arguments = {**_BY_ID, "facts": fact_ids, "reason": reason, **audit_arguments(who)}
        await session.rows(queries.RETRACT_FACTS, arguments)


async def patch_fact(db: Database, who: Principal, *, fact_id: UUID, data: FactPatch) -> FactWritten:
    """Change the end of a fact as far as its timeline allows; every earlier end stays on record."""
    if data.derived_from is not msgspec.UNSET:
        raise Unprocessable(
            "derived_from: cannot be changed; write another fact.",
            code="derived_from_immutable",
        )
    if data.valid_to is msgspec.UNSET:
        raise BadRequest("valid_to: required; a time, or null to open the fact again.")
    valid_to = None if data.valid_to is None else as_utc(data.valid_to, "valid_to")
    arguments = {"fact": str(fact_id), "valid_to": valid_to, **audit_arguments(who)}

    async def write() -> Row:
        async with db.tenant(who) as session:
            row = await session.row(queries.END_FACT, arguments)
            assert row is not None
            _check_refusal(row["refused"], row["bound"])
            place = {"tenant": who.tenant_id, "fact": str(fact_id)}
            (done,) = await session.rows(queries.CHANGED_END, place)
            return done

    done = await retried(write)
    fact = await get_fact(db, ReadContext.of(who), fact_id=fact_id)
    changed = "reopened" if valid_to is None else "ended"
    outcome = changed if done["changed"] else "unchanged"
    return FactWritten(fact=fact, outcome=outcome, superseded=[], conflicts=done["conflicts"])


def _check_refusal(refused: str | None, bound: Any) -> None:
    if refused is None:
        return
    if refused == "garden_forbidden":
        raise Forbidden("Readers of a garden cannot write to it.", code="garden_forbidden")
    if refused == "shared_read_only":
        raise shared_read_only("The fact")
    if refused == "already_retracted":
        raise Conflict("This fact has been retracted already.", code="already_retracted")
    if refused == "valid_to_too_early":
        raise BadRequest(f"valid_to: must be later than valid_from, which is {bound.isoformat()}.")
    if refused == "timeline_occupied":
        raise Conflict(
            f"valid_to: the next fact of this timeline starts at {bound.isoformat()}; end it there or earlier.",
            code="timeline_occupied",
            details={"valid_to_at_most": bound.isoformat()},
        )
    raise fact_not_found()
