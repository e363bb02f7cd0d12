"""What a provider can do, and the tree of ways in which it fails.

ProviderError                   502  something about a provider; catch this to go on without it
├── ProviderDown                503  refused, timed out, 5xx or 429: affects everybody, try later
├── ProviderMisconfigured       502  key, address, model or dimensions are wrong: an operator must act
├── InputRefused                422  it will not take this input: trying again can't help, split the batch
└── AnswerUnusable              502  it answered, but not what was asked: wrong count, not finite, too large

They are errors of the product like any other, so one that nobody handles still makes an honest answer. Their messages
name the provider, the model and the status, never a text or a key: a provider's own words may quote both.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, Protocol, TypeAlias

import numpy as np
from numpy.typing import NDArray

from app.errors import AppError

# Below this, cosine similarity of texts is mostly noise.
MIN_DIMENSIONS = 64
DIMENSIONS_BELOW_FLOOR = "embed_dimensions_below_floor"
DIMENSIONALITY_MISMATCH = "embed_dimensionality_mismatch"

Matrix: TypeAlias = NDArray[np.float32]
"""One row of length one for each text."""


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
        """Whether not even a connection was made: nobody is there, whatever is asked."""

    @property
    def headers(self) -> dict[str, str]:
        return {"retry-after": str(max(1, math.ceil(self.retry_after or 1)))}


class ProviderMisconfigured(ProviderError):
    default_code = "provider_misconfigured"


class InputRefused(ProviderError):
    status = 422
    default_code = "provider_refused_input"


class AnswerUnusable(ProviderError):
    default_code = "provider_answer_unusable"


class Embedder(Protocol):
    """Turns texts into vectors."""

    @property
    def name(self) -> str: ...

    @property
    def model(self) -> str: ...

    @property
    def dimensions(self) -> int | None:
        """Length of a vector; None until the first answer of a model that is not known beforehand."""
        ...

    @property
    def max_batch(self) -> int:
        """How many texts one call takes without being split inside."""
        ...

    async def embed(self, texts: Sequence[str], *, query: bool = False) -> Matrix:
        """One unit vector for each text, in order; `query` for what is looked for, not stored."""
        ...

    async def warm(self) -> None:
        """Makes ready what the first call would wait for, and finds a wrong setting before it matters."""
        ...

    async def aclose(self) -> None: ...


@dataclass(frozen=True, kw_only=True)
class Message:
    """One turn of what a completer reads."""

    role: Literal["system", "user", "assistant"]
    content: str


@dataclass(frozen=True, kw_only=True)
class Usage:
    """Tokens a completion has cost."""

    input_tokens: int = 0
    output_tokens: int = 0


@dataclass(frozen=True, kw_only=True)
class Completion:
    """What a completer wrote; `truncated` when it ran into max_tokens."""

    text: str
    usage: Usage
    truncated: bool = False


class Completer(Protocol):
    """Writes text (an LLM)."""

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
        """The answer to the messages; with a schema the text should be JSON of it, and still needs validation."""
        ...

    async def available(self) -> bool:
        """Whether its provider answers at this moment."""
        ...

    async def aclose(self) -> None: ...


class Reranker(Protocol):
    """Scores texts against a query, better than vectors do."""

    @property
    def name(self) -> str: ...

    @property
    def model(self) -> str: ...

    async def rerank(self, query: str, texts: Sequence[str]) -> list[float]:
        """One score for each text, in order; higher is better, and only comparable within one call."""
        ...

    async def aclose(self) -> None: ...
