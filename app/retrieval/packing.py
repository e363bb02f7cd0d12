"""What fits into a budget of tokens: the best first, and with MMR none that says what another said already."""

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

TOKENS_FOR_FRAME = 40
BYTES_PER_TOKEN = 4


def token_cost(text: str) -> int:
    """What a result costs: its frame and its words."""
    return TOKENS_FOR_FRAME + math.ceil(len(text.encode()) / BYTES_PER_TOKEN)


def pack(
    scores: Sequence[float],
    costs: Sequence[int],
    *,
    budget: int,
    most: int,
    vectors: NDArray[np.float32] | None = None,
    diversity: float = 1.0,
) -> tuple[list[int], int]:
    """Which candidates (in order of score) are taken, in the order they are taken, and the tokens they use. `diversity`
    is lambda: 1 takes them as they come. A candidate without a vector (a row of zeros) is like none other."""
    order = list(range(len(scores)))
    worth = np.asarray(scores, dtype=np.float64)
    alike = np.zeros(len(order))
    chosen: list[int] = []
    used = 0
    left = np.ones(len(order), dtype=np.bool_)
    least = min(costs, default=0)
    # Once not even the shortest fits, none of those that are left does.
    while len(chosen) < most and used + least <= budget and left.any():
        gain = diversity * worth - (1 - diversity) * alike
        best = int(np.argmax(np.where(left, gain, -np.inf)))
        left[best] = False
        if used + costs[best] > budget:
            # One that is too long must not keep out those that fit.
            continue
        chosen.append(best)
        used += costs[best]
        if vectors is not None and diversity < 1.0:
            similar = (vectors @ vectors[best]).astype(np.float64)
            alike = similar if len(chosen) == 1 else np.maximum(alike, similar)
    return chosen, used
