"""The response of a recall: read the best candidates, pack them into the budget, and record a trace."""

from datetime import UTC, datetime
from uuid import UUID

import msgspec
from msgspec import UNSET

from app.access import new_id, require_project
from app.db.database import Database
from app.documents import service as documents
from app.facts import reads
from app.recall import traces
from app.recall.contents import Contents, read_contents
from app.recall.dependencies import RecallDependencies
from app.recall.memory_card import CardResult
from app.recall.parents import Result, add_parents, present_fact
from app.recall.query_vectors import QueryVector
from app.recall.rendering import FRAME_TOKENS, is_chunk, render
from app.recall.request import CheckedRequest
from app.recall.rerank import rerank
from app.recall.schemas import BoostRead, Channel, RecalledFact, RecallMeta, RecallRead, ScoreRead, TooLong
from app.recall.terms import ProjectRecallSettings
from app.retrieval.candidates import SECONDS_PER_DAY
from app.retrieval.channels import Channels
from app.retrieval.normalisation import NORMALIZATION_VERSION
from app.retrieval.packing import TOKENS_FOR_FRAME, pack, token_cost
from app.retrieval.ranking import ScoredCandidate
from app.retrieval.salience import recency

POOL_FACTOR = 3
MIN_POOL_FOR_MMR = 100
MAX_POOL = 300
# Higher than any score.
FIRST = 10.0
FACTS_BESIDE_STALE_CARD = 10


class Ranked(msgspec.Struct, frozen=True, kw_only=True):
    """The ranked candidates of a request and what was found beside them."""

    candidates: list[ScoredCandidate] = msgspec.field(default_factory=list[ScoredCandidate])
    total: int = 0
    """How many candidates there are, also beyond those listed."""
    card: CardResult = CardResult()
    boost: BoostRead | None = None


class _Chosen(msgspec.Struct, frozen=True, kw_only=True):
    """The candidates that fit into the budget, by score, and those too long for it."""

    taken: list[ScoredCandidate]
    used: int
    too_long: list[TooLong]
    reranked: bool | None


def pool_size(request: CheckedRequest) -> int:
    """Return how many of the best candidates are read, to choose results from."""
    fit = request.options.token_budget // TOKENS_FOR_FRAME + 1
    # With MMR, a candidate far behind may be preferred because it differs from the best.
    least = MIN_POOL_FOR_MMR if request.options.lambda_mmr < 1 else 0
    return min(max(POOL_FACTOR * min(request.max_results, fit), least), MAX_POOL)


async def build_response(
    db: Database,
    request: CheckedRequest,
    dependencies: RecallDependencies,
    settings: ProjectRecallSettings,
    *,
    vector: QueryVector | None,
    ranked: Ranked,
    channels: Channels | None = None,
) -> RecallRead:
    """Return the response of a request and record its trace."""
    options, who, card = request.options, request.context.who, ranked.card
    max_facts = None
    if card.card is not None and card.stale:
        max_facts = max(FACTS_BESIDE_STALE_CARD, len(card.divergent))
    pool = _select_pool(ranked, max_facts)[: pool_size(request)]
    seen_at = request.context.as_of or settings.now()
    # MMR compares results with each other, which all about one entity does not ask for.
    diverse = request.entity is None and options.lambda_mmr < 1 and vector is not None
    contents = await read_contents(db, request, pool, channels=channels if diverse else None)
    chosen = await _choose(db, request, dependencies, settings, pool, contents, card)
    results: list[Result] = [_present(one, contents, card) for one in chosen.taken]
    used = chosen.used
    if channels is not None:
        results, used = await add_parents(db, request, channels, results, used, max_facts=max_facts)
    facts = [result for result in results if isinstance(result, RecalledFact)]
    # Notes too long for the budget are named too.
    held_notes = contents.held_notes([result.id for result in (*results, *chosen.too_long)])
    notices = await reads.notices_of(db, who, list(facts), dependencies.hold_denied, held_notes=held_notes)
    own = [str(fact.id) for fact in facts if fact.project_id is UNSET]
    dependencies.access_counts.add(who.tenant_id, require_project(who), own)
    # An operator may run without a model; only a missing vector of an active one is a failure.
    degraded = vector is None and await dependencies.vectors.expected()
    meta = _meta(request, vector, ranked, degraded=degraded, reranked=chosen.reranked)
    response = RecallRead(
        query=request.query,
        token_budget=options.token_budget,
        tokens_used=used,
        results=results,
        memory_card=card.card,
        card_stale=True if card.stale else UNSET,
        force_refresh_timeout=True if card.timed_out else UNSET,
        truncated=len(chosen.taken) < ranked.total,
        too_long=chosen.too_long or UNSET,
        scores_debug=[_explain(one) for one in chosen.taken] if options.debug else None,
        rendered=await _render(db, request, results, card, used) if options.rendered else UNSET,
        trace_id=UUID(new_id()),
        meta=meta,
        tombstone_notices=notices,
    )
    await traces.record(db, request, response=response, seen_at=seen_at, card=card.to_trace())
    return response


def _select_pool(ranked: Ranked, max_facts: int | None) -> list[ScoredCandidate]:
    """Return all notes and the first `max_facts` facts (None: all), facts missing from a stale card first."""
    divergent, pool = ranked.card.divergent, ranked.candidates
    if divergent:
        pool = sorted(pool, key=lambda one: one.id not in divergent)
    if max_facts is None:
        return pool
    kept = {one.id for one in [one for one in pool if one.kind == "fact"][:max_facts]}
    return [one for one in pool if one.kind == "note" or one.id in kept]


async def _choose(
    db: Database,
    request: CheckedRequest,
    dependencies: RecallDependencies,
    settings: ProjectRecallSettings,
    pool: list[ScoredCandidate],
    contents: Contents,
    card: CardResult,
) -> _Chosen:
    """Apply recency and the reranker, then pack what fits into the budget."""
    options, pipeline = request.options, settings.pipeline
    # A candidate that was hidden or deleted since it was found is not in the contents.
    pool = [one for one in pool if one.id in contents.texts]
    if options.recency:
        pool = _apply_recency(pool, contents, now=request.context.as_of or datetime.now(UTC))
    reranked = None
    if pipeline.reranker_enabled and pipeline.reranker_model and pool:
        texts = [contents.texts[one.id] for one in pool]
        pool, reranked = await rerank(db, request, pool, texts, settings=pipeline, rerankers=dependencies.rerankers)
    costs = [token_cost(contents.texts[one.id]) for one in pool]
    by_entity = request.entity is not None
    frame = FRAME_TOKENS if options.rendered else 0
    chosen, used = pack(
        [one.score + (FIRST if one.id in card.divergent else 0.0) for one in pool],
        costs,
        budget=options.token_budget - frame,
        limit=request.max_results,
        vectors=None if by_entity else contents.stack_vectors(pool),
        diversity=1.0 if by_entity else options.lambda_mmr,
    )
    # MMR decides which results are taken; they are shown in the order of their scores.
    taken = sorted((pool[index] for index in chosen), key=lambda one: (-one.score, one.id))
    too_long = _too_long(pool, costs, budget=options.token_budget - frame, limit=request.max_results)
    return _Chosen(taken=taken, used=used + frame if taken else 0, too_long=too_long, reranked=reranked)


def _apply_recency(pool: list[ScoredCandidate], contents: Contents, *, now: datetime) -> list[ScoredCandidate]:
    """Lower the scores of notes by their age, as salience does for facts."""

    def weighted(one: ScoredCandidate) -> ScoredCandidate:
        if one.kind == "fact":
            return one
        weight = recency((now - contents.notes[one.id]["occurred_at"]).total_seconds() / SECONDS_PER_DAY)
        return msgspec.structs.replace(one, score=one.score * weight, salience=weight)

    return sorted(map(weighted, pool), key=lambda one: (-one.score, one.id))


async def _render(db: Database, request: CheckedRequest, results: list[Result], card: CardResult, used: int) -> str:
    budget = request.options.token_budget
    threads = {result.thread_id for result in results if is_chunk(result)}
    # Without the right to read held rows: a document may name somebody under legal hold whom its chunk does not name.
    reader = msgspec.structs.replace(request.context.who, reach="")
    titles = await documents.find_titles(db, reader, threads=threads)
    shown_card = card.to_render(budget - max(used, FRAME_TOKENS))
    return render(results, shown_card, token_budget=budget, titles=titles)


def _too_long(pool: list[ScoredCandidate], costs: list[int], *, budget: int, limit: int) -> list[TooLong]:
    """Return those of the best candidates that exceed the whole budget."""
    best = sorted(zip(pool, costs, strict=True), key=lambda pair: (-pair[0].score, pair[0].id))
    return [
        TooLong(kind=one.kind, id=UUID(one.id), score=one.score, tokens=cost)
        for one, cost in best[:limit]
        if cost > budget
    ]


def _present(one: ScoredCandidate, contents: Contents, card: CardResult) -> Result:
    if one.kind == "note":
        return contents.present_note(one)
    return present_fact(contents.facts[one.id], score=one.score, hops=one.hops, card_stale=one.id in card.divergent)


def _meta(
    request: CheckedRequest, vector: QueryVector | None, ranked: Ranked, *, degraded: bool, reranked: bool | None
) -> RecallMeta:
    options = request.options
    weights = options.weights
    # With an entity in the request its facts are selected directly, not along the graph.
    with_graph = options.depth > 0 and request.entity is None and "facts" in request.include
    used: dict[Channel, bool] = {
        "lexical": weights.lexical > 0,
        "vector": weights.vector > 0 and vector is not None,
        "graph": weights.graph > 0 and with_graph,
    }
    return RecallMeta(
        channels=[name for name, is_used in used.items() if is_used],
        degraded=degraded and weights.vector > 0,
        fusion=f"{options.fusion}:v1",
        normalization_version=NORMALIZATION_VERSION,
        candidates=ranked.total,
        embedding=None if vector is None else vector.model,
        graph_boost=UNSET if ranked.boost is None else ranked.boost,
        reranked=UNSET if reranked is None else reranked,
    )


def _explain(one: ScoredCandidate) -> ScoreRead:
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
