"""Scores of different channels made comparable, and summed. Version 1 of the formulas."""

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

Scores = NDArray[np.float64]

NORMALIZATION_VERSION = "max:v1"
# Cosines of unrelated texts lie around zero: without it those a little behind the best would count for much less.
COSINE_OFFSET = 0.15


def by_maximum(scores: Scores) -> Scores:
    """Divided by the best; nothing above zero, nothing at all."""
    best = scores.max(initial=0.0)
    return np.maximum(scores, 0.0) / best if best > 0 else np.zeros_like(scores)


def of_cosines(cosines: Scores, otherwise: Scores, partly: NDArray[np.bool_] | None = None) -> Scores:
    """Cosines between 0 and 1, the best 1. An unknown one (NaN) counts as the worst that is known, or as what is known
    otherwise of the unit where that is more: what was written a moment ago is no worse for having no vector yet. The
    same of those that tell of their units only `partly`."""
    unknown = np.isnan(cosines)
    known = cosines[~unknown]
    if not known.size:
        return otherwise
    scores = by_maximum(np.where(unknown, known.min(), cosines) + COSINE_OFFSET)
    return np.where(unknown if partly is None else unknown | partly, np.maximum(scores, otherwise), scores)


def fuse(channels: Mapping[str, Scores], weights: Mapping[str, float]) -> Scores:
    """The weighted sum of normalised channels; a channel that is out of order leaves its weight to the others."""
    share = sum(weights[name] for name in channels)
    total = np.zeros_like(next(iter(channels.values())))
    for name, scores in channels.items():
        total = total + weights[name] * scores
    return total / share if 0 < share < sum(weights.values()) else total


def fuse_ranks(channels: Mapping[str, Scores], weights: Mapping[str, float], *, k: int = 60) -> Scores:
    """Reciprocal rank fusion, for who asks for it: the best of every channel counts 1/(k+1), whatever its score."""
    total = np.zeros_like(next(iter(channels.values())))
    for name, scores in channels.items():
        order = np.argsort(-scores, kind="stable")
        ranks = np.empty(len(order), dtype=np.float64)
        ranks[order] = np.arange(1, len(order) + 1)
        total = total + weights[name] * np.where(scores > 0, (k + 1) / (k + ranks), 0.0)
    return total
