"""What may be done to an order once it is made: notes about the entities of the query are lifted, and a reranker has a
look at the head. Neither ever takes anything away, and both have their time."""

import asyncio
import re
from collections import OrderedDict
from collections.abc import Callable, Sequence

import msgspec
import psycopg
import structlog
from sqlalchemy.exc import DBAPIError

from app.access import Principal
from app.config import Settings
from app.db.database import Database
from app.embeddings.models import provider_settings
from app.embeddings.redactions import RedactionSlow, redacted
from app.errors import Unavailable
from app.providers.base import ProviderError, Reranker
from app.providers.build import build_reranker, parse_model
from app.recall import queries
from app.recall.dependencies import RerankersByName, place
from app.recall.request import Asked
from app.recall.schemas import BoostRead
from app.recall.scoring import Scored
from app.tenancy.settings import PipelineSettings

log: structlog.stdlib.BoundLogger = structlog.get_logger()

WORD = re.compile(r"[^\W_]{2,}")
MAX_WORDS = 32
KEPT = 16
HAIR = 1e-9

Build = Callable[[str], Reranker | None]


async def boost(
    db: Database, who: Principal, asked: Asked, settings: PipelineSettings, ranked: list[Scored]
) -> tuple[list[Scored], BoostRead]:
    """Lifts notes about the entities that the query names: s = (1 - w) * s + w; those that were not found join."""
    words = sorted(set(WORD.findall(asked.query.lower())))[:MAX_WORDS]
    notes, timed_out = await _linked_notes(db, who, asked, settings, words)
    weight = settings.graph_boost_weight
    known = {one.id for one in ranked if one.kind == "note"}
    lifted = [
        msgspec.structs.replace(one, score=(1 - weight) * one.score + weight)
        if one.kind == "note" and one.id in notes
        else one
        for one in ranked
    ]
    if weight > 0:
        lifted += [_found(note, weight) for note in sorted(notes - known)]
    return sorted(lifted, key=lambda one: (-one.score, one.id)), BoostRead(notes=len(notes), timed_out=timed_out)


def _found(note: str, score: float) -> Scored:
    """A note that no other way led to."""
    return Scored(kind="note", id=note, score=score, channels={}, lexical_raw=0.0, cosine=None, raw_score=0.0)


async def _linked_notes(
    db: Database, who: Principal, asked: Asked, settings: PipelineSettings, words: list[str]
) -> tuple[frozenset[str], bool]:
    if not words:
        return frozenset(), False
    params = {**place(who), "words": words, "scope": asked.scope, "milliseconds": settings.graph_boost_timeout_ms}
    try:
        async with db.tenant(who) as session:
            await session.query(queries.STATEMENT_TIMEOUT, params)
            (row,) = await session.query(queries.BOOST_NOTES, params)
    except (DBAPIError, Unavailable) as problem:
        # Late, or whatever else: recall goes on without it.
        late = isinstance(problem, DBAPIError) and isinstance(problem.orig, psycopg.errors.QueryCanceled)
        if not late:
            log.warning("boost_failed", error=type(problem).__name__)
        return frozenset(), True
    return frozenset(str(note) for note in row["notes"]), row["timed_out"]


class Rerankers:
    """The rerankers of this process, built when they are first asked."""

    def __init__(self, settings: Settings | None = None, *, build: Build | None = None) -> None:
        providers = None if settings is None else provider_settings(settings)
        self._build: Build = build or (
            lambda name: None if providers is None else build_reranker(parse_model(name), providers)
        )
        self._kept: OrderedDict[str, Reranker | None] = OrderedDict()

    def of(self, name: str) -> Reranker | None:
        """The reranker a project names, as PROVIDER/MODEL."""
        if name not in self._kept:
            self._kept[name] = self._build(name)
        self._kept.move_to_end(name)
        if len(self._kept) > KEPT:
            self._kept.popitem(last=False)
        return self._kept[name]

    async def aclose(self) -> None:
        """Lets go of connections."""
        for reranker in self._kept.values():
            if reranker is not None:
                await reranker.aclose()


async def rerank(
    db: Database,
    who: Principal,
    query: str,
    pool: list[Scored],
    texts: Sequence[str],
    *,
    settings: PipelineSettings,
    rerankers: RerankersByName,
) -> tuple[list[Scored], bool]:
    """The head in the order the reranker gives it, with the scores that were at those places; false when it failed."""
    head, tail = pool[: settings.reranker_top_n], pool[settings.reranker_top_n :]
    try:
        async with asyncio.timeout(settings.reranker_timeout_ms / 1000):
            reranker = rerankers.of(settings.reranker_model)
            if reranker is None or not head:
                return pool, False
            sent = await redacted(db, who.tenant_id, [query, *texts[: len(head)]])
            scores = await reranker.rerank(sent[0], sent[1:])
    except (TimeoutError, ProviderError, RedactionSlow, ValueError) as problem:
        log.warning("rerank_failed", model=settings.reranker_model, error=type(problem).__name__)
        return pool, False
    order = sorted(range(len(head)), key=lambda index: (-scores[index], index))
    # A hair apart, so that equal scores keep the order too.
    places = [score - place * HAIR for place, score in enumerate(sorted((one.score for one in head), reverse=True))]
    ranked = [msgspec.structs.replace(head[index], score=score) for index, score in zip(order, places, strict=True)]
    return [*ranked, *tail], True
