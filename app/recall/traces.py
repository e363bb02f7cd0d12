"""Traces of recall: what was asked, by whom and when, and what was returned, kept so that it can be replayed."""

from datetime import datetime
from typing import Any
from uuid import UUID

import msgspec
from msgspec import UNSET

from app.access import Principal
from app.cards import history as cards
from app.cards.schemas import ReplayedCard, ShownCard
from app.db.database import Database, Row
from app.db.scope import LEGAL_HOLD
from app.errors import NotFound
from app.facts import reads
from app.facts.as_of import look_back
from app.facts.schemas import FactRead
from app.read_context import ReadContext
from app.recall import queries
from app.recall.contents import is_held, recalled_note
from app.recall.request import CheckedRequest
from app.recall.schemas import (
    RecalledFact,
    RecalledNote,
    RecallRead,
    ReplayedResult,
    ReplayRead,
    SeenFact,
    TraceRead,
    TraceResult,
)

CARD = "memory_card"
READ_SCOPES = {"fact": "facts:read", "note": "notes:read"}


async def record(
    db: Database,
    request: CheckedRequest,
    *,
    response: RecallRead,
    seen_at: datetime,
    card: ShownCard | None,
) -> None:
    """Store the trace of a response, by ids and numbers alone, so that erasing a fact or note needs no other copy.

    `seen_at` is the time at which the results were true; fields of facts that change later are stored with their ids.
    """
    who = request.context.who
    context = {
        **msgspec.to_builtins(response.meta),
        "kind": who.kind,
        "scopes": sorted(who.scopes),
        "tokens_used": response.tokens_used,
        "truncated": response.truncated,
    }
    if card is not None:
        context[CARD] = msgspec.to_builtins(card)
    results = [_trace_result(result) for result in response.results]
    tenant, project, agent, gardens, reach, user = who.arguments()
    await db.call(
        queries.RECORD_TRACE,
        (
            tenant,
            project,
            agent,
            [UUID(garden) for garden in gardens],
            reach,
            user,
            response.trace_id,
            who.key_id,
            msgspec.json.encode(request.to_trace()).decode(),
            msgspec.json.encode(context).decode(),
            msgspec.json.encode(results).decode(),
            request.context.valid_at,
            seen_at,
        ),
        again=False,
    )


def _trace_result(result: RecalledFact | RecalledNote) -> TraceResult:
    if isinstance(result, RecalledNote):
        return TraceResult(kind="note", id=result.id, score=result.score)
    seen = SeenFact(
        valid_to=result.valid_to,
        closed_at=result.closed_at,
        retracted_at=result.retracted_at,
        confidence=result.confidence,
        source_trust=result.source_trust,
        mentions=result.mentions,
        contradicted=result.contradicted,
    )
    return TraceResult(
        kind="fact",
        id=result.id,
        score=result.score,
        hops=result.hops,
        provenance_of=result.provenance_of,
        seen=seen,
    )


async def get_trace(db: Database, who: Principal, *, trace_id: UUID) -> TraceRead:
    """Return a trace for its agent or an administrator, or raise NotFound; details of facts only if readable now."""
    trace = await _get(db, who, trace_id=trace_id)
    readable = await reads.read_facts(db, who, ids=_fact_ids(who, trace))
    return _without_unreadable(trace, set(readable))


async def replay(db: Database, who: Principal, *, trace_id: UUID, hold_denied: frozenset[str]) -> ReplayRead:
    """Return the results of a trace as they were then, as far as the caller may still read them."""
    trace = await _get(db, who, trace_id=trace_id)
    context = ReadContext.of(who, as_of=trace.as_of, hold_denied=hold_denied)
    facts = await reads.read_facts(db, context.who, ids=_fact_ids(context.who, trace), as_of=trace.as_of)
    notes = await _read_notes(db, context, trace)
    trace = _without_unreadable(trace, set(facts))
    held_notes = [note_id for note_id, row in notes.items() if is_held(row)]
    notices = await reads.notices_of(db, context.who, list(facts.values()), hold_denied, held_notes=held_notes)
    return ReplayRead(
        trace=trace,
        results=[_replay_result(result, facts.get(result.id), notes.get(result.id)) for result in trace.results],
        memory_card=await _replay_card(db, context, trace),
        tombstone_notices=notices,
    )


def _auditor(who: Principal) -> Principal:
    """Return the caller with access to the traces of every agent if they are an administrator."""
    return msgspec.structs.replace(who, reach=LEGAL_HOLD) if who.is_admin and "admin" in who.scopes else who


async def _get(db: Database, who: Principal, *, trace_id: UUID) -> TraceRead:
    rows = await db.query(_auditor(who), queries.TRACE, {"tenant": who.tenant_id, "trace": str(trace_id)})
    if not rows:
        raise NotFound("There is no such trace.", code="trace_not_found")
    found: dict[str, Any] = dict(rows[0])
    found["results"] = msgspec.convert(found["results"], list[TraceResult], strict=False)
    return TraceRead(**found)


def _fact_ids(who: Principal, trace: TraceRead) -> set[UUID]:
    """Return the facts of a trace if the caller's key may read facts."""
    if READ_SCOPES["fact"] not in who.scopes:
        return set()
    return {result.id for result in trace.results if result.kind == "fact"}


def _without_unreadable(trace: TraceRead, readable: set[UUID]) -> TraceRead:
    """Return the trace with only id, score and hops of facts that are not readable."""
    results = [
        result
        if result.kind == "note" or result.id in readable
        else TraceResult(kind=result.kind, id=result.id, score=result.score, hops=result.hops)
        for result in trace.results
    ]
    return msgspec.structs.replace(trace, results=results)


async def _read_notes(db: Database, context: ReadContext, trace: TraceRead) -> dict[UUID, Row]:
    ids = [str(result.id) for result in trace.results if result.kind == "note"]
    if not ids or READ_SCOPES["note"] not in context.who.scopes:
        return {}
    params = {**context.parameters(), "ids": ids}
    return {row["note_id"]: row for row in await look_back(db, context.who, queries.NOTES, params)}


def _replay_result(result: TraceResult, fact: FactRead | None, note: Row | None) -> ReplayedResult:
    if fact is not None and result.seen is not UNSET:
        fact = msgspec.structs.replace(fact, **msgspec.structs.asdict(result.seen))
    return ReplayedResult(
        kind=result.kind,
        id=result.id,
        score=result.score,
        hops=result.hops,
        provenance_of=result.provenance_of,
        exists=fact is not None or note is not None,
        fact=UNSET if fact is None else fact,
        note=UNSET if note is None else recalled_note(note, score=result.score),
    )


async def _replay_card(db: Database, context: ReadContext, trace: TraceRead) -> ReplayedCard | None:
    if CARD not in trace.context or READ_SCOPES["fact"] not in context.who.scopes:
        return None
    shown = msgspec.convert(trace.context[CARD], ShownCard, strict=False)
    return await cards.replay_card(db, context.who, shown=shown, agent_id=trace.agent_id)
