"""Packing: choose what fits into a token budget, the best first, with MMR against repetition."""

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

TOKENS_FOR_FRAME = 40
BYTES_PER_TOKEN = 4


def count_tokens(text: str) -> int:
    """Return the estimated number of tokens of a text."""
    return math.ceil(len(text.encode()) / BYTES_PER_TOKEN)


def token_cost(text: str) -> int:
    """Return how many tokens a result takes: its frame and its text."""
    return TOKENS_FOR_FRAME + count_tokens(text)


def pack(
    scores: Sequence[float],
    costs: Sequence[int],
    *,
    budget: int,
    limit: int,
    vectors: NDArray[np.float32] | None = None,
    diversity: float = 1.0,
) -> tuple[list[int], int]:
    """Return the indexes of the chosen candidates, in the order of choice, and the tokens they use.

    `diversity` is the lambda of MMR: 1 chooses by score alone. A row of zeros in `vectors` is similar to nothing.
    """
    relevance = np.asarray(scores, dtype=np.float64)
    similarity = np.zeros(len(scores))
    chosen: list[int] = []
    used = 0
    available = np.ones(len(scores), dtype=np.bool_)
    least = min(costs, default=0)
    # Stops as soon as not even the shortest candidate fits.
    while len(chosen) < limit and used + least <= budget and available.any():
        gain = diversity * relevance - (1 - diversity) * similarity
        best = int(np.argmax(np.where(available, gain, -np.inf)))
        available[best] = False
        if used + costs[best] > budget:
            # A later, shorter candidate may still fit.
            continue
        chosen.append(best)
        used += costs[best]
        if vectors is not None and diversity < 1.0:
            similar = (vectors @ vectors[best]).astype(np.float64)
            similarity = similar if len(chosen) == 1 else np.maximum(similarity, similar)
    return chosen, used
