"""Adjust a finished ranking: lift notes about the query's entities, and let a reranker order the first candidates.

Both have a time limit, and neither removes a candidate.
"""

import asyncio
import re
from collections import OrderedDict
from collections.abc import Callable, Sequence
from typing import Protocol

import msgspec
import psycopg
import structlog
from sqlalchemy.exc import DBAPIError

from app.admission import stepped_aside
from app.config import Settings
from app.db.database import Database
from app.embeddings.models import provider_settings
from app.embeddings.redactions import RedactionSlow, redacted
from app.errors import Unavailable
from app.prompt_text import inline, visible
from app.providers.base import ProviderError, Reranker
from app.providers.build import build_reranker, parse_model
from app.recall import queries
from app.recall.request import CheckedRequest
from app.recall.schemas import BoostRead
from app.retrieval.ranking import ScoredCandidate
from app.tenancy.settings import PipelineSettings

log: structlog.stdlib.BoundLogger = structlog.get_logger()

WORD = re.compile(r"[^\W_]{2,}")
MAX_WORDS = 32
CACHE_SIZE = 16
# Keeps candidates with equal scores in the order of the reranker.
SCORE_STEP = 1e-9

Build = Callable[[str], Reranker | None]


class RerankersByName(Protocol):
    """Finds the reranker that a project names."""

    def of(self, name: str) -> Reranker | None: ...


async def boost(
    db: Database, request: CheckedRequest, settings: PipelineSettings, ranked: list[ScoredCandidate]
) -> tuple[list[ScoredCandidate], BoostRead]:
    """Lift notes about the entities that the query names to (1 - w) * score + w; add those not found before."""
    words = sorted(set(WORD.findall(request.query.lower())))[:MAX_WORDS]
    notes, timed_out = await _find_notes(db, request, settings, words)
    weight = settings.graph_boost_weight
    known = {one.id for one in ranked if one.kind == "note"}
    lifted = [
        msgspec.structs.replace(one, score=(1 - weight) * one.score + weight)
        if one.kind == "note" and one.id in notes
        else one
        for one in ranked
    ]
    if weight > 0:
        lifted += [_new_candidate(note, weight) for note in sorted(notes - known)]
    return sorted(lifted, key=lambda one: (-one.score, one.id)), BoostRead(notes=len(notes), timed_out=timed_out)


def _new_candidate(note: str, score: float) -> ScoredCandidate:
    return ScoredCandidate(kind="note", id=note, score=score, channels={}, lexical_raw=0.0, cosine=None, raw_score=0.0)


async def _find_notes(
    db: Database, request: CheckedRequest, settings: PipelineSettings, words: list[str]
) -> tuple[frozenset[str], bool]:
    if not words:
        return frozenset(), False
    params = {**request.context.parameters(), "words": words, "milliseconds": settings.graph_boost_timeout_ms}
    try:
        async with db.tenant(request.context.who) as session:
            await session.query(queries.STATEMENT_TIMEOUT, params)
            (row,) = await session.query(queries.BOOST_NOTES, params)
    except (DBAPIError, Unavailable) as problem:
        # The boost is optional: recall continues without it.
        late = isinstance(problem, DBAPIError) and isinstance(problem.orig, psycopg.errors.QueryCanceled)
        if not late:
            log.warning("boost_failed", error=type(problem).__name__)
        return frozenset(), True
    return frozenset(str(note) for note in row["notes"]), row["timed_out"]


class Rerankers:
    """The rerankers of this process, built at their first use and kept."""

    def __init__(self, settings: Settings | None = None, *, build: Build | None = None) -> None:
        providers = None if settings is None else provider_settings(settings)
        self._build: Build = build or (
            lambda name: None if providers is None else build_reranker(parse_model(name), providers)
        )
        self._cache: OrderedDict[str, Reranker | None] = OrderedDict()

    def of(self, name: str) -> Reranker | None:
        """Return the reranker named PROVIDER/MODEL, or None when the provider has none."""
        if name not in self._cache:
            self._cache[name] = self._build(name)
        self._cache.move_to_end(name)
        if len(self._cache) > CACHE_SIZE:
            self._cache.popitem(last=False)
        return self._cache[name]

    async def aclose(self) -> None:
        """Close all connections."""
        for reranker in self._cache.values():
            if reranker is not None:
                await reranker.aclose()


async def rerank(
    db: Database,
    request: CheckedRequest,
    pool: list[ScoredCandidate],
    texts: Sequence[str],
    *,
    settings: PipelineSettings,
    rerankers: RerankersByName,
) -> tuple[list[ScoredCandidate], bool]:
    """Return the pool with its first candidates in the reranker's order; the pool as it was and False when it fails.

    The reordered candidates share out the scores that these positions had before.
    """
    head, tail = pool[: settings.reranker_top_n], pool[settings.reranker_top_n :]
    try:
        async with stepped_aside(), asyncio.timeout(settings.reranker_timeout_ms / 1000):
            reranker = rerankers.of(settings.reranker_model)
            if reranker is None or not head:
                return pool, False
            # Before redaction, so that an invisible character within a secret does not hide it from the patterns.
            shown = [visible(text) for text in (request.query, *texts[: len(head)])]
            sent = await redacted(db, request.context.who.tenant_id, shown)
            # A reranker may be a language model, which reads what is stored as a part of its prompt.
            scores = await reranker.rerank(sent[0], [inline(text) for text in sent[1:]])
    except (TimeoutError, ProviderError, RedactionSlow, ValueError) as problem:
        log.warning("rerank_failed", model=settings.reranker_model, error=type(problem).__name__)
        return pool, False
    order = sorted(range(len(head)), key=lambda index: (-scores[index], index))
    positions = sorted((one.score for one in head), reverse=True)
    ranked = [
        msgspec.structs.replace(head[index], score=score - position * SCORE_STEP)
        for position, (index, score) in enumerate(zip(order, positions, strict=True))
    ]
    return [*ranked, *tail], True
