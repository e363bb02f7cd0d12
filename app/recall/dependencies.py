"""What the handlers of recall are given."""

import msgspec

from app.cards.service import MAX_AGE_SECONDS
from app.embeddings.embedders import Embedders
from app.erasure.dependencies import hold_denied
from app.recall.access_counts import AccessCounts
from app.recall.query_vectors import ModelVectors, QueryVectors
from app.recall.rerank import Rerankers, RerankersByName
from app.web.dependencies import Provided, ServiceContext


class RecallDependencies(msgspec.Struct, frozen=True, kw_only=True):
    """What recall needs beside the database."""

    vectors: QueryVectors
    access_counts: AccessCounts
    hold_denied: frozenset[str]
    rerankers: RerankersByName
    card_max_age: float = MAX_AGE_SECONDS


def provide(context: ServiceContext) -> Provided:
    """Provide the embedder of queries, the access counts and the rerankers."""
    vectors = ModelVectors(context.db, Embedders(context.settings))
    access_counts = AccessCounts(context.db)
    rerankers = Rerankers(context.settings)
    dependencies = RecallDependencies(
        vectors=vectors,
        access_counts=access_counts,
        hold_denied=hold_denied(context.settings),
        rerankers=rerankers,
        card_max_age=context.settings.card_max_age_seconds,
    )
    return Provided(
        values={"recall_dependencies": dependencies},
        background=(access_counts.run,),
        close=(access_counts.flush, vectors.aclose, rerankers.aclose),
    )
