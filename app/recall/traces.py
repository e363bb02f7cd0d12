"""Traces of recall: what was asked, as whom and when, what was returned, and what that was then."""

from datetime import datetime
from typing import Any
from uuid import UUID

import msgspec
from msgspec import UNSET

from app.access import Principal
from app.cards import past as cards
from app.cards.schemas import ReplayedCard, ShownCard
from app.db.database import Database
from app.db.scope import LEGAL_HOLD
from app.errors import NotFound
from app.facts import reads
from app.facts.as_of import look_back
from app.read_context import reader
from app.recall import queries
from app.recall.request import Asked
from app.recall.schemas import (
    RecalledNote,
    RecallMeta,
    ReplayedResult,
    ReplayRead,
    TraceRead,
    TraceResult,
)

SHOWN = "memory_card"
SCOPES = {"fact": "facts:read", "note": "notes:read"}


async def record(
    db: Database,
    who: Principal,
    *,
    trace_id: str,
    asked: Asked,
    meta: RecallMeta,
    seen_at: datetime,
    card: ShownCard | None,
    tokens_used: int,
    truncated: bool,
    results: list[TraceResult],
) -> None:
    """Keeps a trace, by ids and numbers alone: what is forgotten later is forgotten here too. What was read is what was
    so at `seen_at`; what changed about facts at that very moment stands beside their ids."""
    context = {
        **msgspec.to_builtins(meta),
        "kind": who.kind,
        "scopes": sorted(who.scopes),
        "tokens_used": tokens_used,
        "truncated": truncated,
    }
    if card is not None:
        context[SHOWN] = msgspec.to_builtins(card)
    tenant, project, agent, gardens, reach = who.arguments()
    await db.call(
        queries.RECORD_TRACE,
        (
            tenant,
            project,
            agent,
            [UUID(garden) for garden in gardens],
            reach,
            UUID(trace_id),
            who.key_id,
            msgspec.json.encode(asked.plain()).decode(),
            msgspec.json.encode(context).decode(),
            msgspec.json.encode(results).decode(),
            asked.valid_at,
            seen_at,
        ),
        again=False,
    )


def _auditor(who: Principal) -> Principal:
    """Administrators see the traces of every agent; agents their own."""
    return msgspec.structs.replace(who, reach=LEGAL_HOLD) if who.is_admin and "admin" in who.scopes else who


async def get_trace(db: Database, who: Principal, *, trace_id: UUID) -> TraceRead:
    """One trace, for the agent that asked and for administrators; what it saw in a fact, for who may read that now."""
    trace = await _find(db, who, trace_id=trace_id)
    readable = await reads.read_facts(db, who, ids=_facts_of(who, trace))
    return _told(trace, set(readable))


async def _find(db: Database, who: Principal, *, trace_id: UUID) -> TraceRead:
    rows = await db.query(_auditor(who), queries.TRACE, {"tenant": who.tenant_id, "trace": str(trace_id)})
    if not rows:
        raise NotFound("There is no such trace.", code="trace_not_found")
    found: dict[str, Any] = dict(rows[0])
    found["results"] = msgspec.convert(found["results"], list[TraceResult], strict=False)
    return TraceRead(**found)


def _facts_of(who: Principal, trace: TraceRead) -> set[UUID]:
    """Its facts, for a key that may read facts at all."""
    return {result.id for result in trace.results if result.kind == "fact"} if SCOPES["fact"] in who.scopes else set()


def _told(trace: TraceRead, readable: set[UUID]) -> TraceRead:
    """The trace with no more than the place of those facts that are not readable."""
    results = [
        result
        if result.kind == "note" or result.id in readable
        else TraceResult(kind=result.kind, id=result.id, score=result.score, hops=result.hops)
        for result in trace.results
    ]
    return msgspec.structs.replace(trace, results=results)


async def replay(db: Database, who: Principal, *, trace_id: UUID, denied: frozenset[str]) -> ReplayRead:
    """What was returned then, as it was then, as far as the caller may still read it."""
    trace = await _find(db, who, trace_id=trace_id)
    who = reader(who, trace.as_of)
    readable = {kind for kind, scope in SCOPES.items() if scope in who.scopes}
    notes = [str(result.id) for result in trace.results if result.kind == "note" and "note" in readable]
    read = await reads.read_facts(db, who, ids=_facts_of(who, trace), as_of=trace.as_of)
    trace = _told(trace, set(read))
    place = {"tenant": who.tenant_id, "as_of": trace.as_of}
    rows = await look_back(db, who, queries.NOTES, {**place, "ids": notes}) if notes else []
    said = {row["note_id"]: row for row in rows}

    def then(result: TraceResult) -> ReplayedResult:
        row, fact = said.get(result.id), read.get(result.id)
        if fact is not None and result.seen is not UNSET:
            fact = msgspec.structs.replace(fact, **msgspec.structs.asdict(result.seen))
        return ReplayedResult(
            kind=result.kind,
            id=result.id,
            score=result.score,
            hops=result.hops,
            provenance_of=result.provenance_of,
            exists=fact is not None or row is not None,
            fact=UNSET if fact is None else fact,
            note=UNSET if row is None else RecalledNote(id=result.id, score=result.score, **row),
        )

    card: ReplayedCard | None = None
    if SHOWN in trace.context and "fact" in readable:
        shown = msgspec.convert(trace.context[SHOWN], ShownCard, strict=False)
        card = await cards.replay_card(db, who, shown=shown, agent_id=trace.agent_id)
    notices = await reads.notices_of(db, who, list(read.values()), denied)
    results = [then(result) for result in trace.results]
    return ReplayRead(trace=trace, results=results, memory_card=card, tombstone_notices=notices)
