"""How good an order is, given what belongs in it; each between 0 and 1."""

import math
from collections.abc import Collection, Sequence


def recall_at(found: Sequence[str], gold: Collection[str], depth: int) -> float:
    """The share of what belongs there that stands among the first."""
    return len(set(found[:depth]) & set(gold)) / len(set(gold))


def reciprocal_rank(found: Sequence[str], gold: Collection[str]) -> float:
    """One over the place of the first that belongs there; 0 when none does."""
    return next((1 / place for place, one in enumerate(found, start=1) if one in gold), 0.0)


def ndcg_at(found: Sequence[str], gold: Collection[str], depth: int) -> float:
    """Discounted gain, beside that of the best order there is; everything that belongs there is worth the same."""
    wanted = set(gold)
    gain = sum(1 / math.log2(place + 1) for place, one in enumerate(found[:depth], start=1) if one in wanted)
    best = sum(1 / math.log2(place + 1) for place in range(1, min(depth, len(wanted)) + 1))
    return gain / best
