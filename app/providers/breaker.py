"""The circuit breaker: when a provider fails too often, it is left alone, and asked carefully now and then.

closed ──(over 40% of 30 or more attempts of 5 minutes failed, or 5 failures in a row found nobody there)──> open
open ──(2 minutes later)──> half open: one probe of at most 3 items
half open ──(it worked)──> closed          half open ──(it did not)──> open
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
    """When to open, and when to ask again."""

    window_seconds: float = 300.0
    failure_rate: float = 0.4
    min_attempts: int = 30
    probe_seconds: float = 120.0
    probe_items: int = 3
    # A provider that nobody can reach would need 30 jobs to be found out, each of them waiting for a time-out and
    # each losing one of its attempts. Five in a row with not one answer between them say enough.
    downs_in_a_row: int = 5


class Breaker:
    """Counts how attempts end and says how many may be made now; may be shared by threads and tasks of a process."""

    def __init__(self, policy: BreakerPolicy | None = None, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._policy = policy or BreakerPolicy()
        self._clock = clock
        self._lock = threading.Lock()
        self._state: State = "closed"
        self._asked_at = 0.0
        self._downs = 0
        self._counts = _RollingCounts(self._policy.window_seconds)

    @property
    def state(self) -> State:
        """For metrics and logs; to ask whether to go on, use permit()."""
        return self._state

    @property
    def seconds_until_probe(self) -> float:
        """How long a worker may sleep; 0 when it need not."""
        with self._lock:
            return 0.0 if self._state == "closed" else self._until_probe()

    def permit(self, wanted: int) -> int:
        """How many of the wanted items may be tried now; whoever is given some must report how they ended."""
        with self._lock:
            if self._state == "closed" or wanted <= 0:
                return max(0, wanted)
            # A prober that never reports, because its process was stopped, must not keep the breaker open for ever.
            if self._until_probe() > 0:
                return 0
            self._state = "half_open"
            self._asked_at = self._clock()
            return min(wanted, self._policy.probe_items)

    def succeeded(self, items: int = 1) -> None:
        """Reports attempts that the provider answered."""
        with self._lock:
            if self._state == "half_open":
                self._close()
            elif self._state == "closed":
                self._downs = 0
                self._counts.add(self._clock(), answered=items, failed=0)

    def failed(self, problem: ProviderError, items: int = 1) -> None:
        """Reports one failed call and the items in it; refused input counts as answered: the provider is well."""
        if isinstance(problem, InputRefused):
            self.succeeded(items)
            return
        with self._lock:
            if self._state == "half_open":
                self._open()
            elif self._state == "closed":
                self._downs = self._downs + 1 if isinstance(problem, ProviderDown) else 0
                self._counts.add(self._clock(), answered=0, failed=items)
                if self._downs >= self._policy.downs_in_a_row or self._fails_too_often():
                    self._open()

    def _fails_too_often(self) -> bool:
        attempts, failed = self._counts.totals(self._clock())
        return attempts >= self._policy.min_attempts and failed > self._policy.failure_rate * attempts

    def _until_probe(self) -> float:
        return max(0.0, self._asked_at + self._policy.probe_seconds - self._clock())

    def _open(self) -> None:
        self._state = "open"
        self._asked_at = self._clock()

    def _close(self) -> None:
        self._state = "closed"
        self._downs = 0
        self._counts = _RollingCounts(self._policy.window_seconds)


class _RollingCounts:
    """Attempts of the last while, in slices, so that memory does not grow with traffic."""

    SLICES = 60

    def __init__(self, window_seconds: float) -> None:
        self._slice_seconds = window_seconds / self.SLICES
        self._slices: deque[tuple[int, int, int]] = deque()
        self._answered = 0
        self._failed = 0

    def add(self, now: float, *, answered: int, failed: int) -> None:
        self._forget(now)
        number = int(now // self._slice_seconds)
        if self._slices and self._slices[-1][0] == number:
            _, before, before_failed = self._slices.pop()
            self._slices.append((number, before + answered, before_failed + failed))
        else:
            self._slices.append((number, answered, failed))
        self._answered += answered
        self._failed += failed

    def totals(self, now: float) -> tuple[int, int]:
        """Attempts, and how many of them failed."""
        self._forget(now)
        return self._answered + self._failed, self._failed

    def _forget(self, now: float) -> None:
        oldest = int(now // self._slice_seconds) - self.SLICES
        while self._slices and self._slices[0][0] <= oldest:
            _, answered, failed = self._slices.popleft()
            self._answered -= answered
            self._failed -= failed
