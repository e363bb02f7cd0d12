"""Query vectors: embed queries with the active model; recall works without a vector when that fails."""

from collections import OrderedDict
from contextlib import nullcontext
from typing import Protocol

import msgspec
import structlog

from app.admission import stepped_aside
from app.db.database import Database
from app.embeddings.embedders import Embedders
from app.embeddings.models import ActiveModel, ModelRow
from app.embeddings.redactions import RedactionSlow, redacted
from app.embeddings.texts import REDACTED_CHARACTERS, readable
from app.recall.schemas import EmbeddingRead
from app.retrieval.vectors import format_vector

# Remote providers have to be fast; the local model may take longer once, while it is loaded.
REMOTE_TIMEOUT_SECONDS = 2.0
LOCAL_TIMEOUT_SECONDS = 30.0
CACHE_SIZE = 512

log: structlog.stdlib.BoundLogger = structlog.get_logger()


class QueryVector(msgspec.Struct, frozen=True, kw_only=True):
    """The vector of a query and the model that made it."""

    model_id: int
    model: EmbeddingRead
    vector: list[float]

    @property
    def text(self) -> str:
        """The vector in the text form that PostgreSQL reads."""
        return format_vector(self.vector)


class QueryVectors(Protocol):
    """Embeds queries."""

    async def embed(self, tenant_id: str, query: str) -> QueryVector | None:
        """Return the vector of a query, or None when there is none."""
        ...

    async def expected(self) -> bool:
        """Return whether there is an active model, so that a missing vector is a failure."""
        ...


class ModelVectors:
    """Embeds queries with the active model, read again every few seconds so that a switch reaches every process."""

    def __init__(self, db: Database, embedders: Embedders) -> None:
        self._db = db
        self._embedders = embedders
        self._active = ActiveModel()
        self._cache: OrderedDict[tuple[str, ModelRow, str], QueryVector] = OrderedDict()

    async def aclose(self) -> None:
        """Close the providers."""
        await self._embedders.aclose()

    async def expected(self) -> bool:
        """Return whether there is an active model: an operator may have chosen none."""
        return await self._active(self._db) is not None

    async def embed(self, tenant_id: str, query: str) -> QueryVector | None:
        """Return the vector of a query, or None when there is no model or it does not answer in time."""
        if (model := await self._active(self._db)) is None:
            return None
        # Cached by tenant, so that response times reveal nothing about the queries of other tenants.
        key = (tenant_id, model, query)
        if (cached := self._cache.get(key)) is not None:
            self._cache.move_to_end(key)
            return cached
        timeout = LOCAL_TIMEOUT_SECONDS
        text: str | None = query
        if model.provider != "local":
            # The query is sent to another service, so secrets in it are redacted first.
            timeout = REMOTE_TIMEOUT_SECONDS
            text = await self._redact(tenant_id, query)
        if text is None:
            return None
        # The local model takes processor time; a remote one only time.
        async with stepped_aside() if model.provider != "local" else nullcontext():
            vector = await self._embedders.of(model).embed_query(text, seconds=timeout)
        if vector is None:
            return None
        made = QueryVector(model_id=model.model_id, model=_present(model), vector=vector)
        self._cache[key] = made
        if len(self._cache) > CACHE_SIZE:
            self._cache.popitem(last=False)
        return made

    async def _redact(self, tenant_id: str, query: str) -> str | None:
        try:
            (text,) = await redacted(self._db, tenant_id, [query], characters=REDACTED_CHARACTERS)
        except RedactionSlow as problem:
            log.warning("query_redaction_slow", tenant_id=tenant_id, error=problem.message)
            return None
        return readable(text)


def _present(model: ModelRow) -> EmbeddingRead:
    return EmbeddingRead(model=f"{model.provider}/{model.model}", version=model.version, dimensions=model.dimensions)
