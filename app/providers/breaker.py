"""The circuit breaker: stops calls of a provider that fails too often, and probes it from time to time.

closed ──(over 40% of 30 or more attempts of 5 minutes failed, or 5 calls in a row found it down)──> open
open ──(2 minutes later)──> half open: one probe of at most 3 items
half open ──(success)──> closed          half open ──(failure)──> open
"""

import threading
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from app.providers.base import InputRefused, ProviderDown, ProviderError

State = Literal["closed", "open", "half_open"]


@dataclass(frozen=True, kw_only=True)
class BreakerPolicy:
    """When a breaker opens, and when it probes."""

    window_seconds: float = 300.0
    failure_rate: float = 0.4
    min_attempts: int = 30
    probe_seconds: float = 120.0
    probe_items: int = 3
    # Without it, opening for an unreachable provider would take min_attempts jobs, each of which waits for a timeout
    # and uses up one of its attempts.
    consecutive_downs: int = 5


class Breaker:
    """Counts outcomes of attempts and permits new ones; safe to share between threads and tasks of a process."""

    def __init__(self, policy: BreakerPolicy | None = None, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._policy = policy or BreakerPolicy()
        self._clock = clock
        self._lock = threading.Lock()
        self._state: State = "closed"
        self._probed_at = 0.0
        self._downs = 0
        self._counts = _RollingCounts(self._policy.window_seconds)

    @property
    def state(self) -> State:
        """The state, for metrics and logs; use permit() to decide whether to call."""
        return self._state

    @property
    def seconds_until_probe(self) -> float:
        """Seconds until the next probe; 0 when closed."""
        with self._lock:
            return 0.0 if self._state == "closed" else self._until_probe()

    def permit(self, requested: int) -> int:
        """Return how many of the requested items may be tried now; the caller must report their outcome."""
        with self._lock:
            if self._state == "closed" or requested <= 0:
                return max(0, requested)
            # By time, not by reports: a probe whose process was stopped never reports.
            if self._until_probe() > 0:
                return 0
            self._state = "half_open"
            self._probed_at = self._clock()
            return min(requested, self._policy.probe_items)

    def succeeded(self, items: int = 1) -> None:
        """Report attempts that the provider served."""
        with self._lock:
            if self._state == "half_open":
                self._close()
            elif self._state == "closed":
                self._downs = 0
                self._counts.add(self._clock(), answered=items, failed=0)

    def failed(self, problem: ProviderError, items: int = 1) -> None:
        """Report one failed call and its items; rejected input counts as success, since the provider works."""
        if isinstance(problem, InputRefused):
            self.succeeded(items)
            return
        with self._lock:
            if self._state == "half_open":
                self._open()
            elif self._state == "closed":
                self._downs = self._downs + 1 if isinstance(problem, ProviderDown) else 0
                self._counts.add(self._clock(), answered=0, failed=items)
                if self._downs >= self._policy.consecutive_downs or self._failure_rate_exceeded():
                    self._open()

    def _failure_rate_exceeded(self) -> bool:
        attempts, failed = self._counts.totals(self._clock())
        return attempts >= self._policy.min_attempts and failed > self._policy.failure_rate * attempts

    def _until_probe(self) -> float:
        return max(0.0, self._probed_at + self._policy.probe_seconds - self._clock())

    def _open(self) -> None:
        self._state = "open"
        self._probed_at = self._clock()

    def _close(self) -> None:
        self._state = "closed"
        self._downs = 0
        self._counts = _RollingCounts(self._policy.window_seconds)


class _RollingCounts:
    """Attempts of the last window, counted in slices so that memory does not grow with traffic."""

    SLICES = 60

    def __init__(self, window_seconds: float) -> None:
        self._slice_seconds = window_seconds / self.SLICES
        self._slices: deque[tuple[int, int, int]] = deque()
        self._answered = 0
        self._failed = 0

    def add(self, now: float, *, answered: int, failed: int) -> None:
        self._drop_old(now)
        number = int(now // self._slice_seconds)
        if self._slices and self._slices[-1][0] == number:
            _, before, before_failed = self._slices.pop()
            self._slices.append((number, before + answered, before_failed + failed))
        else:
            self._slices.append((number, answered, failed))
        self._answered += answered
        self._failed += failed

    def totals(self, now: float) -> tuple[int, int]:
        """Return the attempts and how many of them failed."""
        self._drop_old(now)
        return self._answered + self._failed, self._failed

    def _drop_old(self, now: float) -> None:
        oldest = int(now // self._slice_seconds) - self.SLICES
        while self._slices and self._slices[0][0] <= oldest:
            _, answered, failed = self._slices.popleft()
            self._answered -= answered
            self._failed -= failed
