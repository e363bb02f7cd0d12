"""The use case of recall: query the channels and rank what they find."""

import asyncio
from datetime import UTC, datetime
from functools import partial

from app.access import Principal, require_project
from app.db.database import Database
from app.facts.as_of import look_back
from app.facts.drafts import encode_reference, predicate_reference
from app.facts.entities import service as entities
from app.facts.names import as_id, entity_name
from app.facts.predicates import service as predicates
from app.recall import queries
from app.recall.dependencies import RecallDependencies
from app.recall.memory_card import CardResult, find_card
from app.recall.query_vectors import QueryVector
from app.recall.request import CheckedRequest, check
from app.recall.rerank import boost
from app.recall.response import Ranked, build_response, pool_size
from app.recall.schemas import RecallAsk, RecallRead
from app.recall.terms import ProjectRecallSettings, look_up_terms
from app.retrieval.candidates import CandidateSet, FactCandidates, RankingContext
from app.retrieval.channels import CandidateQuery, Channels, NearestFacts, SharedQuery
from app.retrieval.lexical import WeightedTerms
from app.retrieval.ranking import Ranker, ScoredCandidate

# How many of the best notes lead to facts by the entities they mention, and how many to other notes.
NOTES_TO_FACTS = 10
NOTES_TO_NOTES = 2
# An entity that no project has, for a name that only other projects know.
NO_ENTITY = "00000000-0000-0000-0000-000000000000"


async def recall(db: Database, who: Principal, *, ask: RecallAsk, dependencies: RecallDependencies) -> RecallRead:
    """Return the facts and notes that fit a query, the best first, as many as fit into the token budget."""
    request = check(who, ask, hold_denied=dependencies.hold_denied)
    # Embedding the query and looking up its terms don't depend on each other.
    vector, (terms, settings) = await asyncio.gather(_embed(request, dependencies), look_up_terms(db, request))
    query = await _candidate_query(db, request, vector, settings)
    if query is None:
        return await build_response(db, request, dependencies, settings, vector=vector, ranked=Ranked())
    channels = Channels(partial(look_back, db, request.context.who), query)
    ranked = await _rank(db, request, channels, query, terms, settings, card_max_age=dependencies.card_max_age)
    return await build_response(db, request, dependencies, settings, vector=vector, ranked=ranked, channels=channels)


async def _embed(request: CheckedRequest, dependencies: RecallDependencies) -> QueryVector | None:
    options = request.options
    wanted = options.weights.vector > 0 or options.lambda_mmr < 1
    return await dependencies.vectors.embed(request.context.who.tenant_id, request.query) if wanted else None


async def _candidate_query(
    db: Database, request: CheckedRequest, vector: QueryVector | None, settings: ProjectRecallSettings
) -> CandidateQuery | None:
    """Return what the channels look for; None when the entity or the predicate does not exist."""
    options, context = request.options, request.context
    entity_id = name = None
    if request.entity is not None:
        rows = await entities.find_named(db, context.who, request.entity, "entity", as_of=context.as_of)
        if not rows and (not context.shared or as_id(request.entity)):
            return None
        if len(rows) > 1:
            raise entities.ambiguous(rows, "entity")
        entity_id = str(rows[0]["entity_id"]) if rows else NO_ENTITY
        name = rows[0]["canonical_norm"] if rows else entity_name(request.entity, "entity").norm
    predicate_ids = None
    if request.relation is not None:
        predicate_ids = await predicates.find_ids(db, context.who, name=request.relation)
        if not predicate_ids and not context.shared:
            return None
    return CandidateQuery(
        tenant_id=context.who.tenant_id,
        project_id=require_project(context.who),
        model_id=None if vector is None else vector.model_id,
        dimensions=None if vector is None else vector.model.dimensions,
        vector=None if vector is None else vector.text,
        scope=context.scope,
        valid_at=context.valid_at,
        as_of=context.as_of,
        entity_id=entity_id,
        predicate_ids=predicate_ids,
        min_confidence=options.min_confidence,
        min_trust=request.min_trust(use_trust=settings.use_trust),
        include_contradicted=options.include_contradicted,
        max_results=request.max_results,
        depth=options.depth if options.weights.graph > 0 else 0,
        shared=_shared_query(name, request.relation) if context.shared else None,
    )


def _shared_query(entity: str | None, relation: str | None) -> SharedQuery:
    """Return what to look for in other projects, where a name has other ids than here."""
    return SharedQuery(
        entity=entity, predicate=None if relation is None else encode_reference(predicate_reference(relation))
    )


async def _rank(
    db: Database,
    request: CheckedRequest,
    channels: Channels,
    query: CandidateQuery,
    terms: dict[str, WeightedTerms],
    settings: ProjectRecallSettings,
    *,
    card_max_age: float,
) -> Ranked:
    """Return the ranked candidates of all kinds, with the entity's card and the graph boost where asked for."""
    options = request.options
    # Mentions have no history, and an entity in the request selects the notes already.
    with_boost = (
        options.graph_boost
        and settings.pipeline.graph_enabled
        and "note" in terms
        and request.is_present
        and request.entity is None
    )
    card = CardResult()
    if query.entity_id not in (None, NO_ENTITY) and request.relation is None and "facts" in request.include:
        card = await find_card(
            db, request, entity_id=query.entity_id, use_trust=settings.use_trust, max_age=card_max_age
        )
    ranker = _ranker(request, settings, use_vector=query.vector is not None)
    candidates = await _find_candidates(db, request, channels, query, terms, ranker, card)
    # A boosted note, or a fact missing from a card, may stand anywhere in the ranking.
    limit = None if with_boost or query.entity_id is not None else pool_size(request)
    ranked, total = ranker.rank(candidates, limit=limit)
    if not with_boost:
        return Ranked(candidates=ranked, total=total, card=card)
    boosted: list[ScoredCandidate]
    boosted, boost_read = await boost(db, request, settings.pipeline, ranked)
    return Ranked(candidates=boosted, total=len(boosted), card=card, boost=boost_read)


def _ranker(request: CheckedRequest, settings: ProjectRecallSettings, *, use_vector: bool) -> Ranker:
    weights = request.options.weights
    return Ranker(
        weights={"lexical": weights.lexical, "vector": weights.vector, "graph": weights.graph},
        fusion=request.options.fusion,
        use_vector=use_vector,
        context=RankingContext(now=request.context.as_of or datetime.now(UTC), use_trust=settings.use_trust),
    )


async def _find_candidates(
    db: Database,
    request: CheckedRequest,
    channels: Channels,
    query: CandidateQuery,
    terms: dict[str, WeightedTerms],
    ranker: Ranker,
    card: CardResult,
) -> list[CandidateSet]:
    async def find_facts(nearest: NearestFacts, notes: list[str]) -> FactCandidates:
        facts = await channels.find_facts(terms["fact"], nearest=nearest, notes=notes)
        # Facts that a stale card lacks are shown beside it even when contradicted.
        return facts if request.options.include_contradicted else facts.preferred(besides=card.divergent)

    if "note" not in terms:
        return [await find_facts(await channels.find_nearest_facts(), [])]
    among = None if query.entity_id is None else await _notes_about(db, request, query.entity_id, terms["note"])
    notes, nearest = await asyncio.gather(
        channels.find_notes(terms["note"], among=among),
        channels.find_nearest_facts() if "fact" in terms else _nothing(),
    )
    best = ranker.best_notes(notes, NOTES_TO_FACTS)
    sources = best[:NOTES_TO_NOTES] if query.entity_id is None else []
    _, facts = await asyncio.gather(
        channels.link_notes(notes, sources=sources),
        find_facts(nearest, best) if nearest is not None else _nothing(),
    )
    return [notes] if facts is None else [notes, facts]


async def _notes_about(db: Database, request: CheckedRequest, entity_id: str, terms: WeightedTerms) -> list[str]:
    params = {**request.context.parameters(), "terms": terms.terms, "idf": terms.idf, "entity": entity_id}
    rows = await db.query(request.context.who, queries.NOTES_ABOUT, params)
    return [str(row["note_id"]) for row in rows]


async def _nothing() -> None:
    return None
