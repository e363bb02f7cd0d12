"""Embedders over HTTP: Ollama, servers with OpenAI's API, and Voyage."""

from collections.abc import Sequence
from typing import Any, Protocol

import msgspec
import numpy as np

from app.providers.base import Matrix, UnusableResponse
from app.providers.http import JsonClient
from app.providers.vectors import check_dimensions, checked_matrix

# Dimensions of well-known models, unless they are asked to shorten their vectors.
NATIVE_DIMENSIONS = {
    "nomic-embed-text": 768,
    "mxbai-embed-large": 1024,
    "all-minilm": 384,
    "bge-m3": 1024,
    "text-embedding-3-small": 1536,
    "text-embedding-3-large": 3072,
    "text-embedding-ada-002": 1536,
    "voyage-3-lite": 512,
    "voyage-3": 1024,
    "voyage-3-large": 1024,
    "voyage-3.5": 1024,
    "voyage-3.5-lite": 1024,
}
# The prefixes that a model expects before queries and documents; without them quality suffers.
PREFIXES = {
    "nomic-embed-text": ("search_query: ", "search_document: "),
    "mxbai-embed-large": ("Represent this sentence for searching relevant passages: ", ""),
}
# Some providers reject a whole batch for one empty text.
EMPTY_TEXT_PLACEHOLDER = "."


class _Api(Protocol):
    """The embedding API of one kind of provider."""

    name: str
    max_batch: int

    async def embed(
        self, http: JsonClient, *, model: str, texts: list[str], query: bool, shorten_to: int | None
    ) -> list[list[float]]: ...


class RemoteEmbedder:
    """An embedding model behind the API of its provider."""

    def __init__(self, http: JsonClient, api: _Api, *, model: str, dimensions: int | None = None) -> None:
        self._http = http
        self._api = api
        self.name = api.name
        self.model = model
        self.max_batch = api.max_batch
        family = model.partition(":")[0]
        native = NATIVE_DIMENSIONS.get(family)
        self.dimensions = dimensions or native
        # A known model is asked to shorten its vectors; for others the number is only checked, because many servers
        # reject the parameter.
        self._shorten_to = dimensions if native is not None and dimensions != native else None
        self._prefixes = next((pair for name, pair in PREFIXES.items() if family.startswith(name)), ("", ""))
        if self.dimensions is not None:
            check_dimensions(self.dimensions, expected=None, who=self._who)

    async def embed(self, texts: Sequence[str], *, query: bool = False) -> Matrix:
        parts = [
            await self._embed_batch(texts[start : start + self.max_batch], query=query)
            for start in range(0, len(texts), self.max_batch)
        ]
        return np.concatenate(parts) if parts else np.empty((0, self.dimensions or 0), dtype=np.float32)

    async def warm(self) -> None:
        await self.embed(["warm"], query=True)

    async def aclose(self) -> None:
        await self._http.aclose()

    @property
    def _who(self) -> str:
        return f"{self.name}/{self.model}"

    async def _embed_batch(self, texts: Sequence[str], *, query: bool) -> Matrix:
        prefix = self._prefixes[0 if query else 1]
        sent = [prefix + (text if text.strip() else EMPTY_TEXT_PLACEHOLDER) for text in texts]
        vectors = await self._api.embed(
            self._http, model=self.model, texts=sent, query=query, shorten_to=self._shorten_to
        )
        matrix = checked_matrix(vectors, count=len(texts), dimensions=self.dimensions, who=self._who)
        # Fixed by the first response: vectors of different lengths cannot be compared.
        self.dimensions = matrix.shape[1]
        return matrix


class _EmbedResponse(msgspec.Struct):
    embeddings: list[list[float]]


class Ollama:
    """POST /api/embed, which returns vectors in the order of the texts."""

    name = "ollama"
    max_batch = 32

    async def embed(
        self, http: JsonClient, *, model: str, texts: list[str], query: bool, shorten_to: int | None
    ) -> list[list[float]]:
        body: dict[str, Any] = {"model": model, "input": texts}
        if shorten_to is not None:
            body["dimensions"] = shorten_to
        return (await http.post("/api/embed", body, _EmbedResponse, interactive=query)).embeddings


class _Item(msgspec.Struct):
    index: int
    embedding: list[float]


class _ListResponse(msgspec.Struct):
    data: list[_Item]


class OpenAI:
    """POST /embeddings of OpenAI and compatible servers, which return vectors with their index."""

    name = "openai"
    max_batch = 128

    async def embed(
        self, http: JsonClient, *, model: str, texts: list[str], query: bool, shorten_to: int | None
    ) -> list[list[float]]:
        body: dict[str, Any] = {"model": model, "input": texts, "encoding_format": "float"}
        if shorten_to is not None:
            body["dimensions"] = shorten_to
        return _in_order(await http.post("/embeddings", body, _ListResponse, interactive=query), len(texts), self.name)


class Voyage:
    """POST /embeddings of Voyage, which distinguishes queries from documents."""

    name = "voyage"
    max_batch = 128

    async def embed(
        self, http: JsonClient, *, model: str, texts: list[str], query: bool, shorten_to: int | None
    ) -> list[list[float]]:
        body: dict[str, Any] = {"model": model, "input": texts, "input_type": "query" if query else "document"}
        if shorten_to is not None:
            body["output_dimension"] = shorten_to
        return _in_order(await http.post("/embeddings", body, _ListResponse, interactive=query), len(texts), self.name)


def _in_order(response: _ListResponse, count: int, who: str) -> list[list[float]]:
    found = {item.index: item.embedding for item in response.data}
    if len(response.data) != count or found.keys() != set(range(count)):
        raise UnusableResponse(f"{who} returned {len(response.data)} vectors for {count} texts, or wrong indexes.")
    return [found[index] for index in range(count)]
