"""Protocols of providers, and the tree of their errors.

ProviderError                   502  any failure of a provider; catch this to continue without it
├── ProviderDown                503  refused, timed out, 5xx or 429: affects all requests, retry later
├── ProviderMisconfigured       502  key, address, model or dimensions are wrong: an operator must act
├── InputRefused                422  it rejects this input: retrying cannot help, split the batch
└── UnusableResponse            502  it responded with something else: wrong count, not finite, too large

They are AppErrors, so that an unhandled one becomes a proper response. Their messages name the provider, the model and
the status, never a text or a key, which a provider's own message may quote.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, Protocol, TypeAlias

import numpy as np
from numpy.typing import NDArray

from app.errors import AppError

# With fewer dimensions, cosine similarity of texts is mostly noise.
MIN_DIMENSIONS = 64
DIMENSIONS_BELOW_FLOOR = "embed_dimensions_below_floor"
DIMENSIONALITY_MISMATCH = "embed_dimensionality_mismatch"

Matrix: TypeAlias = NDArray[np.float32]
"""One row of unit length for each text."""


class ProviderError(AppError):
    status = 502
    default_code: ClassVar[str] = "provider_error"


class ProviderDown(ProviderError):
    status = 503
    default_code = "provider_down"

    def __init__(
        self,
        message: str,
        *,
        retry_after: float | None = None,
        unreachable: bool = False,
        details: dict[str, Any] | None = None,
    ) -> None:
        super().__init__(message, details=details)
        self.retry_after = retry_after
        self.unreachable = unreachable
        """Whether no connection could be made."""

    @property
    def headers(self) -> dict[str, str]:
        return {"retry-after": str(max(1, math.ceil(self.retry_after or 1)))}


class ProviderMisconfigured(ProviderError):
    default_code = "provider_misconfigured"


class InputRefused(ProviderError):
    status = 422
    default_code = "provider_refused_input"


class UnusableResponse(ProviderError):
    default_code = "provider_answer_unusable"


class Embedder(Protocol):
    """Turns texts into vectors."""

    @property
    def name(self) -> str: ...

    @property
    def model(self) -> str: ...

    @property
    def dimensions(self) -> int | None:
        """Length of a vector; None until the first response of an unknown model."""
        ...

    @property
    def max_batch(self) -> int:
        """How many texts one call takes without being split internally."""
        ...

    async def embed(self, texts: Sequence[str], *, query: bool = False) -> Matrix:
        """Return one unit vector for each text, in order; `query` marks texts to search with, not to store."""
        ...

    async def warm(self) -> None:
        """Prepare what the first call would wait for, and raise on a wrong setting."""
        ...

    async def aclose(self) -> None: ...


@dataclass(frozen=True, kw_only=True)
class Message:
    """One message of a prompt."""

    role: Literal["system", "user", "assistant"]
    content: str


@dataclass(frozen=True, kw_only=True)
class Usage:
    """Tokens used by a completion."""

    input_tokens: int = 0
    output_tokens: int = 0


@dataclass(frozen=True, kw_only=True)
class Completion:
    """The text of a completion; `truncated` when it reached max_tokens."""

    text: str
    usage: Usage
    truncated: bool = False


class Completer(Protocol):
    """Completes messages with a language model."""

    @property
    def name(self) -> str: ...

    @property
    def model(self) -> str: ...

    async def complete(
        self,
        messages: Sequence[Message],
        *,
        max_tokens: int,
        temperature: float | None = 0,
        json_schema: Mapping[str, Any] | None = None,
        timeout_seconds: float | None = None,
    ) -> Completion:
        """Return the completion; with a schema its text should be matching JSON, which still needs validation."""
        ...

    async def available(self) -> bool:
        """Return whether the provider responds now."""
        ...

    async def aclose(self) -> None: ...


class Reranker(Protocol):
    """Scores texts against a query."""

    @property
    def name(self) -> str: ...

    @property
    def model(self) -> str: ...

    async def rerank(self, query: str, texts: Sequence[str]) -> list[float]:
        """Return one score for each text, in order; higher is better, comparable only within one call."""
        ...

    async def aclose(self) -> None: ...
