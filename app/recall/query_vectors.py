"""Queries as vectors, made by the model that is active; recall goes on without them while that cannot be done."""

from collections import OrderedDict

import structlog

from app.db.database import Database
from app.embeddings.embedders import Embedders
from app.embeddings.models import ActiveModel, ModelRow
from app.embeddings.redactions import RedactionSlow, redacted
from app.embeddings.texts import REDACTED_CHARACTERS, readable
from app.recall.dependencies import QueryVector
from app.recall.schemas import EmbeddingRead

# Nobody waits longer for a vector; the local model alone is waited for while it is loaded, once.
PATIENCE_SECONDS = 2.0
LOADING_SECONDS = 30.0
REMEMBERED = 512

log: structlog.stdlib.BoundLogger = structlog.get_logger()


class ModelVectors:
    """Vectors of queries by the active model, which is read anew every few seconds: a switch reaches every process."""

    def __init__(self, db: Database, embedders: Embedders) -> None:
        self._db = db
        self._embedders = embedders
        self._active = ActiveModel()
        self._known: OrderedDict[tuple[str, ModelRow, str], QueryVector] = OrderedDict()

    async def aclose(self) -> None:
        """Gives up what the providers hold."""
        await self._embedders.aclose()

    async def expected(self) -> bool:
        """Whether there is a model that should make vectors: an operator may have chosen none."""
        return await self._active(self._db) is not None

    async def embed(self, tenant_id: str, query: str) -> QueryVector | None:
        """The query's vector, or None when no provider makes one in time."""
        if (model := await self._active(self._db)) is None:
            return None
        # By tenant: what others asked must not show, not even in the time it takes.
        key = (tenant_id, model, query)
        if (known := self._known.get(key)) is not None:
            self._known.move_to_end(key)
            return known
        patience = LOADING_SECONDS
        sent = query
        if model.provider != "local":
            # It leaves the house.
            patience = PATIENCE_SECONDS
            try:
                (words,) = await redacted(self._db, tenant_id, [query], characters=REDACTED_CHARACTERS)
            except RedactionSlow as problem:
                log.warning("query_redaction_slow", tenant_id=tenant_id, error=problem.message)
                return None
            sent = readable(words)
        vector = await self._embedders.of(model).embed_query(sent, seconds=patience)
        if vector is None:
            return None
        made = QueryVector(
            model_id=model.model_id,
            model=EmbeddingRead(
                model=f"{model.provider}/{model.model}", version=model.version, dimensions=model.dimensions
            ),
            vector=vector,
        )
        self._known[key] = made
        if len(self._known) > REMEMBERED:
            self._known.popitem(last=False)
        return made
