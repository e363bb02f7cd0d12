"""How things are measured: rounds interleaved, so that a noisy neighbour hits all alike; medians."""

import asyncio
import statistics
import time
from collections.abc import Awaitable, Callable
from dataclasses import asdict, dataclass
from typing import Literal


@dataclass(frozen=True, kw_only=True)
class Figure:
    """A measured value, the floor it is held against, and what it has to reach."""

    name: str
    value: float
    unit: str
    floor: float | None = None
    target: float | None = None
    kind: Literal["ratio at most", "ratio at least", "at least", "at most"] = "at least"

    @property
    def ratio(self) -> float | None:
        """Value over floor."""
        return None if self.floor is None else self.value / self.floor

    @property
    def holds(self) -> bool:
        """Whether the target is met."""
        if self.target is None:
            return True
        measured = self.ratio if self.kind.startswith("ratio") else self.value
        assert measured is not None
        return measured <= self.target if self.kind.endswith("at most") else measured >= self.target

    @property
    def target_text(self) -> str:
        """The target in short."""
        if self.target is None:
            return ""
        sign = "<=" if self.kind.endswith("at most") else ">="
        return f"{sign} {self.target:g}{'x' if self.kind.startswith('ratio') else ''}"

    def as_dict(self) -> dict[str, object]:
        """For the JSON."""
        return {**asdict(self), "ratio": self.ratio, "holds": self.holds}


async def interleaved(
    actions: dict[str, Callable[[], Awaitable[object]]], *, rounds: int, repeats: int
) -> dict[str, float]:
    """Median microseconds a call, each action in turn within every round; the first round warms up."""
    times: dict[str, list[float]] = {name: [] for name in actions}
    for number in range(rounds + 1):
        for name, action in actions.items():
            started = time.perf_counter()
            for _ in range(repeats):
                await action()
            if number:
                times[name].append((time.perf_counter() - started) / repeats * 1e6)
        await asyncio.sleep(0)
    return {name: statistics.median(values) for name, values in times.items()}
