"""The use case of recall: ask the channels, and make one order of what they find."""

import asyncio
from datetime import UTC, datetime
from uuid import UUID

from app.access import Principal
from app.cards import service as cards
from app.db.database import Database
from app.facts.entities import service as entities
from app.facts.predicates import service as predicates
from app.read_context import reader
from app.recall import queries
from app.recall import request as asking
from app.recall.candidates import (
    HOP_SOURCES,
    Decided,
    FactCandidates,
    NearFacts,
    Sought,
    Words,
    few,
    find_facts,
    find_linked,
    find_near_facts,
    find_notes,
    find_words,
)
from app.recall.dependencies import Cards, Means, QueryVector, place
from app.recall.request import Asked
from app.recall.rerank import boost
from app.recall.response import answer, pool_size
from app.recall.schemas import RecallAsk, RecallRead
from app.recall.scoring import Scored, Scorer

SEEDING_NOTES = 10
# Facts are short and have no neighbours.
FACTS_BY_WORDS = 2


async def recall(db: Database, who: Principal, *, ask: RecallAsk, means: Means) -> RecallRead:
    """What is known that fits a query, the most fitting first, as much as fits into the budget."""
    asked = asking.check(who, ask)
    who = reader(who, asked.as_of)
    # Words are looked up while the vector is made.
    vector, (words, decided) = await asyncio.gather(_embed(who, asked, means), _words(db, who, asked))
    sought = await _sought(db, who, asked, vector)
    if sought is None:
        return await answer(db, who, asked, means, vector, decided, ranked=[], shown=Cards(), candidates=0)
    scorer = Scorer(
        weights={"lexical": ask.weights.lexical, "vector": ask.weights.vector, "graph": ask.weights.graph},
        fusion=ask.fusion,
        vector=vector is not None,
        judged=decided.judged,
        now=asked.as_of or datetime.now(UTC),
    )
    lifted = ask.graph_boost and decided.pipeline.graph_enabled and "note" in words and _is_present(asked)
    # What is lifted, or missing from a card, may come from anywhere in the order.
    most = None if lifted or sought.entity is not None else pool_size(asked)
    shown = Cards()
    if sought.entity is not None and asked.relation is None and "facts" in asked.include:
        shown = await _cards(db, who, asked, sought.entity, judged=decided.judged)
    ranked, candidates = await _rank(db, who, asked, sought, words, scorer, most=most, divergent=shown.divergent)
    boosted = None
    if lifted:
        ranked, boosted = await boost(db, who, asked, decided.pipeline, ranked)
        candidates = len(ranked)
    return await answer(
        db,
        who,
        asked,
        means,
        vector,
        decided,
        ranked=ranked,
        shown=shown,
        candidates=candidates,
        sought=sought,
        boosted=boosted,
    )


def _is_present(asked: Asked) -> bool:
    """Whether it is about what is, and about no entity in particular: mentions have no past."""
    return asked.as_of is None and asked.valid_at is None and asked.entity is None


async def _embed(who: Principal, asked: Asked, means: Means) -> QueryVector | None:
    wanted = asked.ask.weights.vector > 0 or asked.ask.lambda_mmr < 1
    return await means.vectors.embed(who.tenant_id, asked.query) if wanted else None


async def _words(db: Database, who: Principal, asked: Asked) -> tuple[dict[str, Words], Decided]:
    # Where an entity says which units are meant, words only score them.
    wanted = few(asked.ask.max_results) if asked.entity is None else 0
    limits = {"note": wanted, "fact": FACTS_BY_WORDS * wanted}
    kinds = [kind for kind, name in (("note", "notes"), ("fact", "facts")) if name in asked.include]
    return await find_words(db, who, asked, kinds, limits=limits)


async def _sought(db: Database, who: Principal, asked: Asked, vector: QueryVector | None) -> Sought | None:
    """What the channels look for; None when it names an entity or a predicate that is not there."""
    entity = None
    if asked.entity is not None:
        rows = await entities.find_named(db, who, asked.entity, "entity", as_of=asked.as_of)
        if not rows:
            return None
        if len(rows) > 1:
            raise entities.ambiguous(rows, "entity")
        entity = str(rows[0]["entity_id"])
    relations = None
    if asked.relation is not None:
        relations = await predicates.find_ids(db, who, name=asked.relation)
        if not relations:
            return None
    return Sought(
        model_id=None if vector is None else vector.model_id,
        dimensions=None if vector is None else vector.model.dimensions,
        vector=None if vector is None else vector.text,
        scope=asked.scope,
        valid_at=asked.valid_at,
        as_of=asked.as_of,
        entity=entity,
        relations=relations,
        min_confidence=asked.ask.min_confidence,
        min_trust=asked.min_trust,
        contradicted=asked.ask.include_contradicted,
        results=asked.ask.max_results,
        depth=asked.ask.depth if asked.ask.weights.graph > 0 else 0,
    )


async def _rank(
    db: Database,
    who: Principal,
    asked: Asked,
    sought: Sought,
    words: dict[str, Words],
    scorer: Scorer,
    *,
    most: int | None,
    divergent: frozenset[str],
) -> tuple[list[Scored], int]:
    with_facts = "fact" in words
    if "note" not in words:
        near = await find_near_facts(db, who, sought)
        return scorer.rank(
            None,
            await _facts(db, who, asked, sought, words["fact"], near, [], divergent),
            sources=[],
            links=[],
            whole=sought.entity is not None,
            most=most,
        )
    wanted = None
    if sought.entity is not None:
        about = {"terms": words["note"].terms, "idf": words["note"].idf, "scope": asked.scope, "as_of": asked.as_of}
        rows = await db.query(who, queries.MENTIONING, {**place(who), **about, "entity": sought.entity})
        wanted = [str(row["note_id"]) for row in rows]
    notes, near = await asyncio.gather(
        find_notes(db, who, sought, words=words["note"], wanted=wanted),
        find_near_facts(db, who, sought) if with_facts else _nothing(),
    )
    best = scorer.best_notes(notes, SEEDING_NOTES)
    sources = best[:HOP_SOURCES] if sought.entity is None else []
    links, facts = await asyncio.gather(
        find_linked(db, who, sought, notes=notes, sources=sources),
        _facts(db, who, asked, sought, words["fact"], near, best, divergent) if near is not None else _nothing(),
    )
    whole = sought.entity is not None
    return scorer.rank(notes, facts, sources=sources, links=links, whole=whole, most=most)


async def _nothing() -> None:
    return None


async def _facts(
    db: Database,
    who: Principal,
    asked: Asked,
    sought: Sought,
    words: Words,
    near: NearFacts,
    notes: list[str],
    divergent: frozenset[str],
) -> FactCandidates:
    facts = await find_facts(db, who, sought, words=words, near=near, notes=notes)
    # What a card does not tell yet is shown beside it, however sure.
    return facts if asked.ask.include_contradicted else facts.preferred(besides=divergent)


async def _cards(db: Database, who: Principal, asked: Asked, entity: str, *, judged: bool) -> Cards:
    if asked.as_of is not None or asked.valid_at is not None:
        # A card tells of the present.
        return Cards()
    timed_out = False
    if asked.ask.force_refresh:
        found, timed_out = await cards.refresh_now(db, who, entity_id=UUID(entity), scope=asked.scope)
    else:
        found = await cards.find_cards(db, who, entity_id=UUID(entity), scope=asked.scope)
    if not found:
        return Cards(stale=timed_out, timed_out=timed_out)
    # Of several, what everybody in the project may read.
    first = min(found, key=lambda card: (card.read.scope != "project_shared", card.read.garden_id is not None))
    return Cards(
        card=first.read,
        stale=first.stale,
        timed_out=timed_out,
        divergent=frozenset(str(fact) for card in found if card.stale for fact in card.divergent),
        judged=judged,
    )
