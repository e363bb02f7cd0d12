"""Notes in their threads: the neighbours of a note count towards its scores, the nearer the more."""

from collections.abc import Sequence
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from app.retrieval.normalisation import Scores

Indexes = NDArray[np.intp]
NONE = -1

# Weight of a neighbour one step away; two steps away its square, and so on.
VECTOR_DECAY, VECTOR_REACH = 0.4, 2
# Assumed cosine between neighbours. Fetching their vectors to compute it gives the same ranking.
NEIGHBOUR_COSINE = 0.3
# Share of the best score that a turn without content loses, and over how many content terms that loss fades.
LOW_CONTENT_PENALTY, CONTENT_TERMS = 0.2, 6.0


class Thread:
    """Which candidates follow each other in a thread, by their indexes in a list of candidates."""

    def __init__(self, count: int) -> None:
        self.before: Indexes = np.full(count, NONE, dtype=np.intp)
        self.after: Indexes = np.full(count, NONE, dtype=np.intp)

    def link(self, indexes: Sequence[int]) -> None:
        """Link candidates that follow each other."""
        for first, second in pairwise(indexes):
            self.after[first] = second
            self.before[second] = first

    def sum(self, values: Scores, *, before: float, after: float, reach: int) -> Scores:
        """Add to each value those of its neighbours, weighted by `before` or `after` to the power of the distance."""
        total = values.copy()
        for steps, weight in ((self.before, before), (self.after, after)):
            neighbour = steps
            for distance in range(1, reach + 1):
                exists = neighbour != NONE
                if not exists.any():
                    break
                mask = exists if values.ndim == 1 else exists[:, None]
                total = total + np.where(mask, weight**distance * values[neighbour], 0.0)
                neighbour = np.where(exists, steps[neighbour], NONE)
        return total


def smooth_cosines(cosines: Scores, thread: Thread) -> Scores:
    """Return the cosine of each note read together with its neighbours; NaN where a note has no vector."""
    known = (~np.isnan(cosines)).astype(np.float64)

    def sum_around(values: Scores, decay: float) -> Scores:
        return thread.sum(values, before=decay, after=decay, reach=VECTOR_REACH)

    total = sum_around(np.where(np.isnan(cosines), 0.0, cosines), VECTOR_DECAY)
    weight, square = sum_around(known, VECTOR_DECAY), sum_around(known, VECTOR_DECAY**2)
    length = np.sqrt(square + NEIGHBOUR_COSINE * (weight**2 - square))
    return np.where(known > 0, total / np.where(length > 0, length, 1.0), np.nan)


def penalise_low_content(scores: Scores, content_terms: Scores) -> Scores:
    """Lower the scores of turns with few content terms (infinity: not a turn): a mere question holds no answer."""
    best = scores.max(initial=0.0)
    return np.maximum(scores - LOW_CONTENT_PENALTY * best * np.exp(-content_terms / CONTENT_TERMS), 0.0)


def pull_linked(scores: Scores, source: int, strengths: Scores, *, share: float = 0.4) -> Scores:
    """Raise candidates that share rare names with the candidate at `source` towards its score, never above it."""
    linked = strengths.copy()
    linked[source] = 0.0
    best = linked.max(initial=0.0)
    if best <= 0:
        return scores
    return scores + share * (linked / best) * np.maximum(scores[source] - scores, 0.0)
