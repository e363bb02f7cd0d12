"""Rerankers over HTTP: Voyage, and servers with Cohere's API (Jina, vLLM, llama.cpp)."""

import math
from collections.abc import Sequence

import msgspec

from app.providers.base import UnusableResponse
from app.providers.http import JsonClient

MAX_BATCH = 1000


class _Scored(msgspec.Struct):
    index: int
    relevance_score: float


class _RerankResponse(msgspec.Struct):
    """The scores, which Voyage calls data and Cohere results."""

    data: list[_Scored] = []
    results: list[_Scored] = []


class RemoteReranker:
    """POST /rerank; each text is scored independently, so batches may be split."""

    def __init__(self, http: JsonClient, *, model: str) -> None:
        self._http = http
        self.name = http.name
        self.model = model

    async def rerank(self, query: str, texts: Sequence[str]) -> list[float]:
        scores: list[float] = []
        for start in range(0, len(texts), MAX_BATCH):
            scores += await self._rerank_batch(query, texts[start : start + MAX_BATCH])
        return scores

    async def aclose(self) -> None:
        await self._http.aclose()

    async def _rerank_batch(self, query: str, texts: Sequence[str]) -> list[float]:
        body = {"model": self.model, "query": query, "documents": list(texts)}
        response = await self._http.post("/rerank", body, _RerankResponse)
        scored = response.data or response.results
        found = {item.index: item.relevance_score for item in scored}
        if len(scored) != len(texts) or found.keys() != set(range(len(texts))):
            raise UnusableResponse(f"{self.name}/{self.model} returned {len(scored)} scores for {len(texts)} texts.")
        if not all(math.isfinite(score) for score in found.values()):
            raise UnusableResponse(f"{self.name}/{self.model} returned a score that is not finite.")
        return [found[index] for index in range(len(texts))]
