"""A hybrid logical clock: later writes of this process compare as later even when the wall clock goes back."""

import time

COUNTER_END = 1000


class HybridClock:
    """Returns stamps such as 1767225600000.000; the counter grows within a millisecond."""

    def __init__(self) -> None:
        self._milliseconds = 0
        self._counter = 0

    def stamp(self, now: float | None = None) -> str:
        """Return the next stamp."""
        wall = int((time.time() if now is None else now) * 1000)
        if wall > self._milliseconds:
            self._milliseconds, self._counter = wall, 0
        else:
            self._counter += 1
            if self._counter == COUNTER_END:
                self._milliseconds, self._counter = self._milliseconds + 1, 0
        return f"{self._milliseconds:013d}.{self._counter:03d}"
