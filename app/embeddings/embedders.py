"""The embedders of one process, each behind its circuit breaker."""

import asyncio
import random
import time
from collections.abc import Callable, Sequence
from typing import cast

import structlog

from app.config import Settings
from app.embeddings.models import ModelRow, provider_settings
from app.providers.base import (
    DIMENSIONALITY_MISMATCH,
    Embedder,
    InputRefused,
    Matrix,
    ProviderDown,
    ProviderError,
    ProviderMisconfigured,
    UnusableResponse,
)
from app.providers.breaker import Breaker, BreakerPolicy, State
from app.providers.build import ModelSpec, Provider, build_embedder
from app.telemetry.metrics import EMBEDDING_BREAKER, EMBEDDING_FAILURES, EMBEDDING_SECONDS

log: structlog.stdlib.BoundLogger = structlog.get_logger()

# Minutes: half, 2, 5, 15, 30, and then 60 again and again.
BACKOFF_SECONDS = (30.0, 120.0, 300.0, 900.0, 1800.0, 3600.0)
# What every provider can embed, and how soon one that is there has done it.
HARMLESS = "Is anybody there?"
HARMLESS_SECONDS = 5.0
TOO_MANY_REQUESTS = 429
REASONS: dict[type[ProviderError], str] = {
    ProviderDown: "down",
    ProviderMisconfigured: "misconfigured",
    InputRefused: "refused",
    UnusableResponse: "unusable",
}
STATES: dict[State, int] = {"closed": 0, "half_open": 1, "open": 2}

Build = Callable[[ModelRow], Embedder]


def backoff(attempt: int) -> float:
    """Seconds until the next attempt, with a fifth of jitter so that failures do not march in step."""
    base = BACKOFF_SECONDS[min(attempt, len(BACKOFF_SECONDS)) - 1]
    return base * random.uniform(0.8, 1.2)  # noqa: S311


class GuardedEmbedder:
    """One model's embedder: counts how calls end, and says how long its provider is left alone."""

    def __init__(
        self,
        model: ModelRow,
        build: Build,
        policy: BreakerPolicy,
        *,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.model = model
        self._build = build
        self._policy = policy
        self._clock = clock
        self._breaker = Breaker(policy, clock=clock)
        self._embedder: Embedder | None = None
        self._failures = 0
        self._rests_until = 0.0
        self._unwelcome_until = 0.0

    @property
    def failing(self) -> bool:
        """Whether its last answer was none."""
        return self._failures > 0

    @property
    def state(self) -> State:
        return self._breaker.state

    @property
    def rest(self) -> float:
        """Seconds until it may be asked again; 0 when it may be now."""
        return max(0.0, self._rests_until - self._clock(), self._breaker.seconds_until_probe)

    def permit(self, wanted: int) -> int:
        """How many texts may be tried now: all, a few to see whether it is back, or none."""
        return 0 if self._rests_until > self._clock() else self._breaker.permit(wanted)

    async def embed(self, texts: Sequence[str], *, query: bool = False) -> Matrix:
        """One vector for each text, or a ProviderError, which is counted."""
        started = time.perf_counter()
        try:
            vectors = await self._ask(texts, query=query)
        except ProviderError as problem:
            if await self._fails_on_these(problem, query=query):
                refused = InputRefused(f"{self.model.name} answers, but not for this input: {problem.message}")
                self._report(refused, len(texts))
                raise refused from problem
            self._report(problem, len(texts))
            raise
        EMBEDDING_SECONDS.labels(self.model.name).observe(time.perf_counter() - started)
        self._report(None, len(texts))
        return vectors

    async def embed_query(self, text: str, *, seconds: float) -> list[float] | None:
        """The vector of what is looked for; None when the provider is away or slow, and recall does without it."""
        # A failure or two keep nobody from asking, but a provider that says when it wants to be asked again does.
        if self._unwelcome_until > self._clock() or not self._breaker.permit(1):
            return None
        try:
            async with asyncio.timeout(seconds):
                vectors = await self.embed([text], query=True)
        except TimeoutError:
            self._report(ProviderDown(f"{self.model.name} did not answer within {seconds:g} s."), 1)
            return None
        except ProviderError:
            return None
        return vectors[0].tolist()

    async def aclose(self) -> None:
        if self._embedder is not None:
            await self._embedder.aclose()

    async def _ask(self, texts: Sequence[str], *, query: bool) -> Matrix:
        # Built at its first use: one that lacks its key must not keep the others from starting.
        if self._embedder is None:
            self._embedder = self._build(self.model)
        try:
            vectors = await self._embedder.embed(texts, query=query)
        except (ProviderError, ImportError):
            raise
        except Exception as problem:
            # What nobody thought of is an answer nobody can use, and no reason to give up a job or a request.
            raise UnusableResponse(f"{self.model.name} failed ({type(problem).__name__}).") from problem
        if vectors.shape[1] != self.model.dimensions:
            raise ProviderMisconfigured(
                f"{self.model.name} makes vectors of {vectors.shape[1]} dimensions where {self.model.dimensions} are "
                "stored; add it as another version.",
                code=DIMENSIONALITY_MISMATCH,
            )
        return vectors

    async def _fails_on_these(self, problem: ProviderError, *, query: bool) -> bool:
        """Whether a provider that seems to be down is there after all: some fail on a text as if they were away, and
        one such text must not be tried again and again while all others wait."""
        if not isinstance(problem, ProviderDown):
            return False
        # Somebody waits for a query, and no text of it has arrived.
        if query and problem.unreachable:
            return False
        # One that says it is asked too much, or when it wants to be asked again, is busy: not to be asked anything now.
        if problem.retry_after or problem.details.get("status") == TOO_MANY_REQUESTS:
            return False
        try:
            async with asyncio.timeout(HARMLESS_SECONDS):
                await self._ask([HARMLESS], query=False)
        except (TimeoutError, ProviderError):
            return False
        return True

    def _report(self, problem: ProviderError | None, items: int) -> None:
        if problem is None:
            self._breaker.succeeded(items)
        else:
            self._breaker.failed(problem, items)
            reason = REASONS.get(type(problem), "other")
            EMBEDDING_FAILURES.labels(self.model.name, reason).inc()
            log.warning("embedding_failed", model=self.model.name, reason=reason, error=problem.message, items=items)
        if isinstance(problem, ProviderDown | ProviderMisconfigured):
            self._failures += 1
            # Never past the next probe: what waits is worked off as soon as the provider is back.
            pause = min(backoff(self._failures), self._policy.probe_seconds)
            if isinstance(problem, ProviderDown):
                # Unless it says itself how long it wants to be left alone.
                stated = min(problem.retry_after or 0.0, BACKOFF_SECONDS[-1])
                self._unwelcome_until = self._clock() + stated
                pause = max(pause, stated)
            self._rests_until = self._clock() + pause
        else:
            self._failures = 0
            self._rests_until = self._unwelcome_until = 0.0
        EMBEDDING_BREAKER.labels(self.model.name).set(STATES[self._breaker.state])


class Embedders:
    """The embedders of this process, built at their first use and kept."""

    def __init__(self, settings: Settings, *, build: Build | None = None) -> None:
        self._settings = provider_settings(settings)
        self._build = build or self._from_settings
        self._policy = BreakerPolicy(
            failure_rate=settings.embed_failure_rate_breaker,
            min_attempts=settings.embed_breaker_min_attempts,
            probe_seconds=settings.embed_breaker_half_open_seconds,
        )
        self._kept: dict[ModelRow, GuardedEmbedder] = {}

    def of(self, model: ModelRow) -> GuardedEmbedder:
        """The embedder of a registered model."""
        # Whether it is active says nothing about how it is asked.
        key = ModelRow(
            model_id=model.model_id,
            provider=model.provider,
            model=model.model,
            version=model.version,
            dimensions=model.dimensions,
            active=False,
            created_at=model.created_at,
        )
        if key not in self._kept:
            self._kept[key] = GuardedEmbedder(key, self._build, self._policy)
        return self._kept[key]

    async def aclose(self) -> None:
        """Lets go of threads and connections."""
        for guarded in self._kept.values():
            await guarded.aclose()

    def _from_settings(self, model: ModelRow) -> Embedder:
        spec = ModelSpec(provider=cast("Provider", model.provider), model=model.model, dimensions=model.dimensions)
        embedder = build_embedder(spec, self._settings)
        if embedder is None:
            raise ProviderMisconfigured(f"{model.name} embeds nothing.")
        return embedder
