"""Normalisation and fusion: make the scores of different channels comparable and add them up. Version 1."""

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

Scores = NDArray[np.float64]
Mask = NDArray[np.bool_]

NORMALIZATION_VERSION = "max:v1"
# Cosines of unrelated texts are close to zero; without the offset a near miss would count for much less.
COSINE_OFFSET = 0.15


def by_maximum(scores: Scores) -> Scores:
    """Divide by the best score; return zeros when no score is positive."""
    best = scores.max(initial=0.0)
    return np.maximum(scores, 0.0) / best if best > 0 else np.zeros_like(scores)


def normalise_cosines(cosines: Scores, fallback: Scores, partial: Mask | None = None) -> Scores:
    """Scale cosines to 0..1; a missing one (NaN) counts as the worst known, or as `fallback` where that is more.

    `partial` marks units whose vector covers only their beginning: `fallback` can raise their score too, so a unit is
    not ranked lower because its vector is missing or incomplete.
    """
    missing = np.isnan(cosines)
    known = cosines[~missing]
    if not known.size:
        return fallback
    scores = by_maximum(np.where(missing, known.min(), cosines) + COSINE_OFFSET)
    return np.where(missing if partial is None else missing | partial, np.maximum(scores, fallback), scores)


def fuse(channels: Mapping[str, Scores], weights: Mapping[str, float]) -> Scores:
    """Return the weighted sum of normalised channels; the weight of an unavailable channel goes to the others."""
    share = sum(weights[name] for name in channels)
    total = np.zeros_like(next(iter(channels.values())))
    for name, scores in channels.items():
        total = total + weights[name] * scores
    return total / share if 0 < share < sum(weights.values()) else total


def fuse_ranks(channels: Mapping[str, Scores], weights: Mapping[str, float], *, k: int = 60) -> Scores:
    """Return the weighted reciprocal rank fusion, scaled so that the first rank of a channel counts 1."""
    total = np.zeros_like(next(iter(channels.values())))
    for name, scores in channels.items():
        order = np.argsort(-scores, kind="stable")
        ranks = np.empty(len(order), dtype=np.float64)
        ranks[order] = np.arange(1, len(order) + 1)
        total = total + weights[name] * np.where(scores > 0, (k + 1) / (k + ranks), 0.0)
    return total
