"""The answer to a recall: what is read of the chosen, packed into the budget, shown and put on record."""

import asyncio
from datetime import UTC, datetime
from typing import Any
from uuid import UUID

import msgspec
import numpy as np
from msgspec import UNSET, UnsetType

from app.access import Principal, new_id, require_project
from app.cards.building import count_tokens
from app.cards.schemas import ShownCard
from app.db.database import Database, Row
from app.facts import reads
from app.facts.as_of import look_back
from app.facts.schemas import FactRead
from app.recall import queries, traces
from app.recall.candidates import Decided, Sought, find_believed
from app.recall.dependencies import Cards, Means, QueryVector, listed, place
from app.recall.rendering import render, value_text
from app.recall.request import Asked
from app.recall.rerank import rerank
from app.recall.schemas import (
    BoostRead,
    Channel,
    RecallAsk,
    RecalledFact,
    RecalledNote,
    RecallMeta,
    RecallRead,
    ScoreRead,
    SeenFact,
    TooLong,
    TraceResult,
    ValueRead,
)
from app.recall.scoring import SECONDS_PER_DAY, Scored
from app.retrieval.normalisation import NORMALIZATION_VERSION
from app.retrieval.packing import TOKENS_FOR_FRAME, pack, token_cost
from app.retrieval.salience import recency

POOL_FACTOR = 3
LEAST_IN_POOL = 100
MOST_IN_POOL = 300
# More than any score.
FIRST = 10.0
FACTS_BESIDE_STALE = 10
"""How many facts stand beside a card that no longer tells what is so."""


async def answer(
    db: Database,
    who: Principal,
    asked: Asked,
    means: Means,
    vector: QueryVector | None,
    decided: Decided,
    *,
    ranked: list[Scored],
    shown: Cards,
    candidates: int,
    sought: Sought | None = None,
    boosted: BoostRead | None = None,
) -> RecallRead:
    """What is returned of the ranked candidates, the most fitting first."""
    ask = asked.ask
    # What a card does not tell yet comes first when room is short.
    urgent = sorted(ranked, key=lambda one: one.id not in shown.divergent) if shown.divergent else ranked
    most_facts = None
    if shown.card is not None and shown.stale:
        most_facts = max(FACTS_BESIDE_STALE, len(shown.divergent))
    pool = _with_fewer_facts(urgent, most_facts)[: pool_size(asked)]
    alone = asked.entity is not None
    seen_at = asked.as_of or decided.now()
    read = await _read(db, who, asked, pool, vector=None if alone or ask.lambda_mmr == 1 else vector)
    # What a policy hides meanwhile, or an edit took away, is not there.
    pool = [one for one in pool if one.id in read.texts]
    if ask.recency:
        pool = _fade(pool, read, asked)
    reranked = None
    settings = decided.pipeline
    if settings.reranker_enabled and settings.reranker_model and pool:
        texts = [read.texts[one.id] for one in pool]
        pool, reranked = await rerank(db, who, asked.query, pool, texts, settings=settings, rerankers=means.rerankers)
    costs = [token_cost(read.texts[one.id]) for one in pool]
    chosen, used = pack(
        [one.score + (FIRST if one.id in shown.divergent else 0.0) for one in pool],
        costs,
        budget=ask.token_budget,
        most=ask.max_results,
        vectors=None if alone else read.vectors(pool),
        diversity=1.0 if alone else ask.lambda_mmr,
    )
    # What is taken follows from what else is taken; how it is shown from the scores alone.
    taken = sorted((pool[index] for index in chosen), key=lambda one: (-one.score, one.id))
    results = [_present(one, read, shown) for one in taken]
    if sought is not None:
        results, used = await _with_parents(db, who, asked, sought, results, used, most_facts=most_facts)
    facts = [result for result in results if isinstance(result, RecalledFact)]
    notices = await reads.notices_of(db, who, list(facts), means.denied)
    means.accesses.note(who.tenant_id, require_project(who), [str(fact.id) for fact in facts])
    truncated = len(taken) < candidates
    trace_id = new_id()
    # Without a model nothing is out of order: that is how the operator wants it.
    missed = vector is None and await means.vectors.expected()
    meta = _meta(asked, vector, candidates, missed=missed, boosted=boosted, reranked=reranked)
    await traces.record(
        db,
        who,
        trace_id=trace_id,
        asked=asked,
        meta=meta,
        seen_at=seen_at,
        card=_shown_card(shown),
        tokens_used=used,
        truncated=truncated,
        results=[_traced(result) for result in results],
    )
    return RecallRead(
        query=asked.query,
        token_budget=ask.token_budget,
        tokens_used=used,
        results=results,
        memory_card=shown.card,
        card_stale=True if shown.stale else UNSET,
        force_refresh_timeout=True if shown.timed_out else UNSET,
        truncated=truncated,
        too_long=_too_long(pool, costs, ask) or UNSET,
        scores_debug=[_explain(one) for one in taken] if ask.debug else None,
        rendered=render(results, _told_card(shown, ask.token_budget - used)) if ask.rendered else UNSET,
        trace_id=UUID(trace_id),
        meta=meta,
        tombstone_notices=notices,
    )


def _with_fewer_facts(ranked: list[Scored], most: int | None) -> list[Scored]:
    """All notes, and of the facts the first so many (None: all)."""
    if most is None:
        return ranked
    kept = {one.id for one in [one for one in ranked if one.kind == "fact"][:most]}
    return [one for one in ranked if one.kind == "note" or one.id in kept]


def _too_long(pool: list[Scored], costs: list[int], ask: RecallAsk) -> list[TooLong]:
    """Those that would have been among the results if the budget had room for them at all."""
    best = sorted(zip(pool, costs, strict=True), key=lambda one: (-one[0].score, one[0].id))[: ask.max_results]
    return [
        TooLong(kind=one.kind, id=UUID(one.id), score=one.score, tokens=cost)
        for one, cost in best
        if cost > ask.token_budget
    ]


def _told_card(shown: Cards, room: int) -> str | None:
    """The card as it goes into a prompt: only one that tells what is so, where the results leave room for it."""
    if shown.card is None or shown.stale or count_tokens(shown.card.value.v) > room:
        return None
    return shown.card.value.v


def _shown_card(shown: Cards) -> ShownCard | None:
    card = shown.card
    if card is None or card.card_id is None:
        return None
    return ShownCard(
        card_id=card.card_id,
        entity_id=card.entity.entity_id,
        scope=card.scope,
        garden_id=card.garden_id,
        built_at=card.built_at,
        card_stale=card.card_stale,
        judged=shown.judged,
    )


def _traced(result: RecalledFact | RecalledNote) -> TraceResult:
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


def pool_size(asked: Asked) -> int:
    """How many of the best are read, to choose from."""
    fit = asked.ask.token_budget // TOKENS_FOR_FRAME + 1
    # What differs from the best may stand far behind them.
    least = LEAST_IN_POOL if asked.ask.lambda_mmr < 1 else 0
    return min(max(POOL_FACTOR * min(asked.ask.max_results, fit), least), MOST_IN_POOL)


class Contents:
    """The candidates as they are read, under the policy."""

    def __init__(self, facts: dict[str, FactRead], notes: dict[str, Row], vectors: dict[str, Any]) -> None:
        self.facts = facts
        self.notes = notes
        self._vectors = vectors
        self.texts = {fact: value_text(read) for fact, read in facts.items()}
        self.texts |= {note: row["content"] for note, row in notes.items()}

    def vectors(self, pool: list[Scored]) -> Any:
        """Their vectors in order, as rows; zeros for what has none."""
        if not self._vectors:
            return None
        nothing = np.zeros_like(next(iter(self._vectors.values())))
        return np.asarray([self._vectors.get(one.id, nothing) for one in pool], dtype=np.float32)


def _apart(row: Row) -> dict[str, Any]:
    """Vectors as PostgreSQL sends them: before each two short numbers, then its own."""
    ids: list[str] = row["ids"] or []
    if not ids:
        return {}
    numbers = np.frombuffer(row["vectors"], dtype=">f2").reshape(len(ids), -1)[:, 2:].astype(np.float32)
    return dict(zip(ids, numbers, strict=True))


async def _read(
    db: Database, who: Principal, asked: Asked, pool: list[Scored], *, vector: QueryVector | None
) -> Contents:
    facts = {UUID(one.id) for one in pool if one.kind == "fact"}
    notes = [one.id for one in pool if one.kind == "note"]
    here = {**place(who), "as_of": asked.as_of}

    async def nothing() -> list[Row]:
        return []

    read, rows, vectors = await asyncio.gather(
        reads.read_facts(db, who, ids=facts, as_of=asked.as_of),
        look_back(db, who, queries.NOTES, {**here, "ids": listed(notes)}) if notes else nothing(),
        db.query(who, queries.VECTORS, {**here, "model": vector.model_id, "ids": listed(one.id for one in pool)})
        if vector is not None and pool
        else nothing(),
    )
    return Contents(
        {str(fact): found for fact, found in read.items()},
        {str(row["note_id"]): row for row in rows},
        _apart(vectors[0]) if vectors else {},
    )


def _fade(pool: list[Scored], read: Contents, asked: Asked) -> list[Scored]:
    """Notes by age too, for who asks for it."""
    now = asked.as_of or datetime.now(UTC)

    def faded(one: Scored) -> Scored:
        if one.kind == "fact":
            return one
        weight = recency((now - read.notes[one.id]["occurred_at"]).total_seconds() / SECONDS_PER_DAY)
        return msgspec.structs.replace(one, score=one.score * weight, salience=weight)

    return sorted(map(faded, pool), key=lambda one: (-one.score, one.id))


def _present(one: Scored, read: Contents, shown: Cards) -> RecalledFact | RecalledNote:
    if one.kind == "note":
        return RecalledNote(id=UUID(one.id), score=one.score, **read.notes[one.id])
    return _recalled(read.facts[one.id], score=one.score, hops=one.hops, card_stale=one.id in shown.divergent)


def _recalled(
    fact: FactRead, *, score: float, hops: int, card_stale: bool = False, of: UUID | UnsetType = UNSET
) -> RecalledFact:
    entity = fact.object.entity
    value = (
        ValueRead(type="ref", v=entity.canonical)
        if entity is not UNSET
        else ValueRead(type=str(fact.object.type), v=fact.object.value)
    )
    fields: dict[str, Any] = {name: getattr(fact, name) for name in fact.__struct_fields__}
    return RecalledFact(
        **fields,
        id=fact.fact_id,
        entity=fact.subject.canonical,
        relation=fact.predicate.name,
        value=value,
        score=score,
        hops=hops,
        card_stale=card_stale,
        provenance_of=of,
    )


async def _with_parents(
    db: Database,
    who: Principal,
    asked: Asked,
    sought: Sought,
    results: list[RecalledFact | RecalledNote],
    used: int,
    *,
    most_facts: int | None,
) -> tuple[list[RecalledFact | RecalledNote], int]:
    """The results with the facts they were concluded from, as far as these are what was asked for and fit; whole or
    not at all. One that is a result already is marked as such."""
    children = [result for result in results if isinstance(result, RecalledFact) and result.derived_from]
    if not children:
        return results, used
    hashes = sorted({found for child in children for found in child.derived_from})
    rows = await db.query(who, queries.BY_HASH, {**place(who), "hashes": hashes})
    ids = {row["hash"]: UUID(str(row["fact_id"])) for row in reversed(rows)}
    origins = [(ids[origin], child) for child in children for origin in child.derived_from if origin in ids]
    first = dict(reversed(origins))
    here = {result.id for result in results}
    believed = await find_believed(db, who, sought, ids=sorted(str(fact) for fact in set(first) - here))
    if not asked.ask.include_contradicted:
        believed = believed.preferred(besides=frozenset())
    read = await reads.read_facts(db, who, ids={UUID(fact) for fact in believed.ids}, as_of=asked.as_of)
    told: list[RecalledFact | RecalledNote] = [
        msgspec.structs.replace(result, provenance_of=first[result.id].id)
        if isinstance(result, RecalledFact) and result.id in first and first[result.id].id != result.id
        else result
        for result in results
    ]
    room = asked.ask.max_results - len(results)
    if most_facts is not None:
        room = min(room, most_facts - sum(isinstance(result, RecalledFact) for result in results))
    for origin, child in origins:
        fact = read.pop(origin, None)
        cost = 0 if fact is None else token_cost(value_text(fact))
        if fact is None or room == 0 or used + cost > asked.ask.token_budget:
            continue
        used += cost
        room -= 1
        told.append(_recalled(fact, score=0.0, hops=child.hops + 1, of=child.id))
    return told, used


def _meta(
    asked: Asked,
    vector: QueryVector | None,
    candidates: int,
    *,
    missed: bool,
    boosted: BoostRead | None,
    reranked: bool | None,
) -> RecallMeta:
    weights = asked.ask.weights
    # Where an entity says which facts are meant, nobody walks.
    walked = asked.ask.depth > 0 and asked.entity is None
    part: dict[Channel, bool] = {
        "lexical": weights.lexical > 0,
        "vector": weights.vector > 0 and vector is not None,
        "graph": weights.graph > 0 and "facts" in asked.include and walked,
    }
    return RecallMeta(
        channels=[name for name, there in part.items() if there],
        degraded=missed and weights.vector > 0,
        fusion=f"{asked.ask.fusion}:v1",
        normalization_version=NORMALIZATION_VERSION,
        candidates=candidates,
        embedding=None if vector is None else vector.model,
        graph_boost=UNSET if boosted is None else boosted,
        reranked=UNSET if reranked is None else reranked,
    )


def _explain(one: Scored) -> ScoreRead:
    return ScoreRead(
        id=UUID(one.id),
        kind=one.kind,
        lexical=one.channels.get("lexical", 0.0),
        vector=one.channels.get("vector", 0.0),
        graph=one.channels.get("graph", 0.0),
        lexical_raw=one.lexical_raw,
        cosine=one.cosine,
        graph_raw=one.graph_raw,
        raw_score=one.raw_score,
        salience=one.salience,
        source_trust_multiplier=one.trust,
        score=one.score,
    )
