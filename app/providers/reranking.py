"""Rerankers behind HTTP: Voyage, and the many that answer as Cohere does (Jina, vLLM, llama.cpp)."""

import math
from collections.abc import Sequence

import msgspec

from app.providers.base import AnswerUnusable
from app.providers.http import JsonClient

MAX_BATCH = 1000


class _Scored(msgspec.Struct):
    index: int
    relevance_score: float


class _Answer(msgspec.Struct):
    """Voyage says data, Cohere says results."""

    data: list[_Scored] = []
    results: list[_Scored] = []


class RemoteReranker:
    """POST /rerank; each text is scored for itself, so batches may be split."""

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
        answer = await self._http.post("/rerank", body, _Answer)
        scored = answer.data or answer.results
        found = {item.index: item.relevance_score for item in scored}
        if len(scored) != len(texts) or found.keys() != set(range(len(texts))):
            raise AnswerUnusable(f"{self.name}/{self.model} answered {len(scored)} scores for {len(texts)} texts.")
        if not all(math.isfinite(score) for score in found.values()):
            raise AnswerUnusable(f"{self.name}/{self.model} answered a score that is not finite.")
        return [found[index] for index in range(len(texts))]
