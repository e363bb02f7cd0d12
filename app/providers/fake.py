"""Deterministic providers for tests, without network or model, that fail on demand."""

import hashlib
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from app.providers.base import Completion, Matrix, Message, ProviderError, Usage
from app.providers.vectors import check_dimensions, unit_rows


class FakeEmbedder:
    """Hashes words into dimensions, so that texts that share words are similar; set `problem` to make it fail."""

    name = "fake"

    def __init__(self, dimensions: int = 64, *, model: str = "words", max_batch: int = 16) -> None:
        check_dimensions(dimensions, expected=None, who=f"{self.name}/{model}")
        self.dimensions = dimensions
        self.model = model
        self.max_batch = max_batch
        self.problem: ProviderError | None = None
        self.refuses: Callable[[str], ProviderError | None] = lambda text: None
        self.calls: list[tuple[str, ...]] = []
        self.closed = False

    async def embed(self, texts: Sequence[str], *, query: bool = False) -> Matrix:
        self.calls.append(tuple(texts))
        if self.problem is not None:
            raise self.problem
        for text in texts:
            refusal = self.refuses(text)
            if refusal is not None:
                raise refusal
        rows = np.zeros((len(texts), self.dimensions), dtype=np.float32)
        for row, text in zip(rows, texts, strict=True):
            for word in _words(text):
                digest = hashlib.blake2b(word.encode(), digest_size=8).digest()
                row[int.from_bytes(digest[:7]) % self.dimensions] += 1 if digest[7] % 2 else -1
        return unit_rows(rows) if len(texts) else rows

    async def warm(self) -> None:
        await self.embed(["warm"], query=True)

    async def aclose(self) -> None:
        self.closed = True


class FakeCompleter:
    """Completes with `answer`, a text or a function of the messages; set `problem` to make it fail."""

    name = "fake"

    def __init__(self, answer: Callable[[Sequence[Message]], str] | str, *, model: str = "script") -> None:
        self._answer = answer
        self.model = model
        self.problem: ProviderError | None = None
        self.calls: list[tuple[Message, ...]] = []
        self.closed = False

    async def complete(
        self,
        messages: Sequence[Message],
        *,
        max_tokens: int,
        temperature: float | None = 0,
        json_schema: Mapping[str, Any] | None = None,
        timeout_seconds: float | None = None,
    ) -> Completion:
        self.calls.append(tuple(messages))
        if self.problem is not None:
            raise self.problem
        text = self._answer if isinstance(self._answer, str) else self._answer(messages)
        words = text.split(" ")
        usage = Usage(
            input_tokens=sum(len(message.content.split(" ")) for message in messages),
            output_tokens=min(len(words), max_tokens),
        )
        return Completion(text=" ".join(words[:max_tokens]), usage=usage, truncated=len(words) > max_tokens)

    async def available(self) -> bool:
        """Return whether it would answer now."""
        return self.problem is None

    async def aclose(self) -> None:
        self.closed = True


class FakeReranker:
    """Scores by the share of the query's words that a text contains; set `problem` to make it fail."""

    name = "fake"

    def __init__(self, *, model: str = "words") -> None:
        self.model = model
        self.problem: ProviderError | None = None
        self.closed = False

    async def rerank(self, query: str, texts: Sequence[str]) -> list[float]:
        if self.problem is not None:
            raise self.problem
        words = set(_words(query))
        return [len(words & set(_words(text))) / max(1, len(words)) for text in texts]

    async def aclose(self) -> None:
        self.closed = True


def _words(text: str) -> list[str]:
    return re.findall(r"\w+", text.casefold())
