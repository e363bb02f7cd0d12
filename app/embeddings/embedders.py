"""The embedders of one process, each with a circuit breaker."""

import asyncio
import random
import time
from collections.abc import Awaitable, Callable, Sequence
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

# Half a minute, 2, 5, 15, 30 minutes, then an hour each time.
BACKOFF_SECONDS = (30.0, 120.0, 300.0, 900.0, 1800.0, 3600.0)
# A text that every provider can embed, and how long a provider that is available takes for it at most.
PROBE_TEXT = "Is anybody there?"
PROBE_TIMEOUT_SECONDS = 5.0
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
    """Return the seconds until the next attempt, with 20% jitter so that failures don't repeat at the same time."""
    base = BACKOFF_SECONDS[min(attempt, len(BACKOFF_SECONDS)) - 1]
    return base * random.uniform(0.8, 1.2)  # noqa: S311


class Pace:
    """Spaces calls evenly, so that there are at most so many a second; 0 is no limit."""

    def __init__(
        self,
        rate: float,
        *,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self._rate = rate
        self._clock = clock
        self._sleep = sleep
        self._next = 0.0

    async def wait(self) -> None:
        """Wait until the next call may start."""
        if self._rate <= 0:
            return
        now = self._clock()
        # Reserved before waiting: others who ask meanwhile come after.
        start = max(now, self._next)
        self._next = start + 1 / self._rate
        if start > now:
            await self._sleep(start - now)


class GuardedEmbedder:
    """The embedder of one model; counts failures and decides when its provider may be called again."""

    def __init__(
        self,
        model: ModelRow,
        build: Build,
        policy: BreakerPolicy,
        *,
        pace: Pace | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.model = model
        self._pace = pace or Pace(0)
        self._build = build
        self._policy = policy
        self._clock = clock
        self._breaker = Breaker(policy, clock=clock)
        self._embedder: Embedder | None = None
        self._failures = 0
        self._paused_until = 0.0
        self._retry_after_until = 0.0

    @property
    def failing(self) -> bool:
        """Whether its last call failed."""
        return self._failures > 0

    @property
    def state(self) -> State:
        """The state of the circuit breaker."""
        return self._breaker.state

    @property
    def pause_seconds(self) -> float:
        """Seconds until it may be called again; 0 when it may be called now."""
        return max(0.0, self._paused_until - self._clock(), self._breaker.seconds_until_probe)

    def permit(self, wanted: int) -> int:
        """Return how many texts may be tried now: all, a few as a probe, or none."""
        return 0 if self._paused_until > self._clock() else self._breaker.permit(wanted)

    async def embed(self, texts: Sequence[str], *, query: bool = False) -> Matrix:
        """Return one vector for each text, or raise ProviderError and count the failure.

        All but queries wait for their turn where the rate of calls is limited.
        """
        if not query:
            await self._pace.wait()
        started = time.perf_counter()
        try:
            vectors = await self._call(texts, query=query)
        except ProviderError as problem:
            if await self._is_input_at_fault(problem, query=query):
                refused = InputRefused(f"{self.model.name} works, but refuses this input: {problem.message}")
                self._report(refused, len(texts))
                raise refused from problem
            self._report(problem, len(texts))
            raise
        EMBEDDING_SECONDS.labels(self.model.name).observe(time.perf_counter() - started)
        self._report(None, len(texts))
        return vectors

    async def embed_query(self, text: str, *, seconds: float) -> list[float] | None:
        """Return the vector of a query, or None when the provider is unavailable or slow."""
        # A pause after a failure does not apply to queries, but a Retry-After of the provider does.
        if self._retry_after_until > self._clock() or not self._breaker.permit(1):
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
        """Close the provider's connections."""
        if self._embedder is not None:
            await self._embedder.aclose()

    async def _call(self, texts: Sequence[str], *, query: bool) -> Matrix:
        # Built at its first use: a model without its API key must not prevent the others from starting.
        if self._embedder is None:
            self._embedder = self._build(self.model)
        try:
            vectors = await self._embedder.embed(texts, query=query)
        except (ProviderError, ImportError):
            raise
        except Exception as problem:
            # An unexpected failure of a provider must not fail a whole job or request.
            raise UnusableResponse(f"{self.model.name} failed ({type(problem).__name__}).") from problem
        if vectors.shape[1] != self.model.dimensions:
            raise ProviderMisconfigured(
                f"{self.model.name} makes vectors of {vectors.shape[1]} dimensions where {self.model.dimensions} are "
                "stored; add it as another version.",
                code=DIMENSIONALITY_MISMATCH,
            )
        return vectors

    async def _is_input_at_fault(self, problem: ProviderError, *, query: bool) -> bool:
        """Return whether the provider works for other texts: some fail on one text as if they were down.

        Such a text must not be retried while all others wait.
        """
        if not isinstance(problem, ProviderDown):
            return False
        # A caller waits for a query, and an unreachable provider has not even seen the text.
        if query and problem.unreachable:
            return False
        # A provider that limits its rate is busy: a probe would only add to its load.
        if problem.retry_after or problem.details.get("status") == TOO_MANY_REQUESTS:
            return False
        try:
            async with asyncio.timeout(PROBE_TIMEOUT_SECONDS):
                await self._call([PROBE_TEXT], query=False)
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
            # Never past the next probe, so that the queue is processed as soon as the provider is back.
            pause = min(backoff(self._failures), self._policy.probe_seconds)
            if isinstance(problem, ProviderDown):
                # A Retry-After of the provider may be longer.
                stated = min(problem.retry_after or 0.0, BACKOFF_SECONDS[-1])
                self._retry_after_until = self._clock() + stated
                pause = max(pause, stated)
            self._paused_until = self._clock() + pause
        else:
            self._failures = 0
            self._paused_until = self._retry_after_until = 0.0
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
        self._calls_per_second = settings.embedding_qps
        self._kept: dict[ModelRow, GuardedEmbedder] = {}

    def of(self, model: ModelRow) -> GuardedEmbedder:
        """Return the embedder of a registered model."""
        # Activating a model must not build it again.
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
            self._kept[key] = GuardedEmbedder(key, self._build, self._policy, pace=Pace(self._calls_per_second))
        return self._kept[key]

    async def aclose(self) -> None:
        """Close threads and connections."""
        for guarded in self._kept.values():
            await guarded.aclose()

    def _from_settings(self, model: ModelRow) -> Embedder:
        spec = ModelSpec(provider=cast("Provider", model.provider), model=model.model, dimensions=model.dimensions)
        embedder = build_embedder(spec, self._settings)
        if embedder is None:
            raise ProviderMisconfigured(f"{model.name} embeds nothing.")
        return embedder
