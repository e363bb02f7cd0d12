"""What the handlers of recall are given."""

from app.embeddings.embedders import Embedders
from app.erasure.dependencies import hold_denied
from app.recall.access_counts import AccessCounts
from app.recall.dependencies import Means
from app.recall.query_vectors import ModelVectors
from app.recall.rerank import Rerankers
from app.web.dependencies import Provided, ServiceContext


def provide(context: ServiceContext) -> Provided:
    """Provide the vectors of queries, the counts of accesses and the rerankers."""
    vectors = ModelVectors(context.db, Embedders(context.settings))
    accesses = AccessCounts(context.db)
    rerankers = Rerankers(context.settings)
    denied = hold_denied(context.settings)
    return Provided(
        values={"recall_means": Means(vectors=vectors, accesses=accesses, denied=denied, rerankers=rerankers)},
        background=(accesses.run,),
        close=(accesses.flush, vectors.aclose, rerankers.aclose),
    )
