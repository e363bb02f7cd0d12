"""What recall works with: vectors of queries, counts of accesses, cards."""

from collections.abc import Iterable
from typing import Any, Protocol

import msgspec

from app.access import Principal, require_project
from app.cards.schemas import CardRead
from app.providers.base import Reranker
from app.recall.access_counts import AccessCounts
from app.recall.schemas import EmbeddingRead


class QueryVector(msgspec.Struct, frozen=True, kw_only=True):
    """A query as a vector, and what made it."""

    model_id: int
    model: EmbeddingRead
    vector: list[float]

    @property
    def text(self) -> str:
        """As PostgreSQL reads it."""
        return "[" + ",".join(f"{number:.8g}" for number in self.vector) + "]"


class QueryVectors(Protocol):
    """Makes vectors of queries; None while that cannot be done."""

    async def embed(self, tenant_id: str, query: str) -> QueryVector | None: ...

    async def expected(self) -> bool:
        """Whether it is out of order that there is none."""
        ...


class RerankersByName(Protocol):
    """Knows the rerankers that projects name."""

    def of(self, name: str) -> Reranker | None: ...


class Means(msgspec.Struct, frozen=True, kw_only=True):
    """What recall works with."""

    vectors: QueryVectors
    accesses: AccessCounts
    denied: frozenset[str]
    rerankers: RerankersByName


class Cards(msgspec.Struct, frozen=True, kw_only=True):
    """What the cards contribute to an answer."""

    card: CardRead | None = None
    stale: bool = False
    timed_out: bool = False
    divergent: frozenset[str] = frozenset()
    judged: bool = False
    """Whether the trust in sources counted."""


def place(who: Principal) -> dict[str, Any]:
    """Where a statement looks."""
    return {"tenant": who.tenant_id, "project": require_project(who)}


def listed(ids: Iterable[str]) -> str:
    """Ids as PostgreSQL reads an array of them: the driver asks of every item whether it needs quotes, ids never do."""
    return f"{{{','.join(ids)}}}"
