"""Salience: how much a fact matters regardless of the query, by age, confidence, use, contradiction and trust."""

import math

RECENCY_PER_DAY = 0.01
DERIVED = 0.9
CONTRADICTED = 0.7
QUARANTINED = 0.2


def recency(age_days: float) -> float:
    """Return a weight that falls by about one percent a day."""
    return math.exp(-RECENCY_PER_DAY * max(age_days, 0.0))


def access_weight(count: int, highest: int) -> float:
    """Return 0.5 for facts never recalled up to 1 for the one recalled most; 1 when no fact was recalled yet."""
    return 1.0 if highest <= 0 else 0.5 + 0.5 * math.log1p(count) / math.log1p(highest)


def confidence_weight(confidence: float, derivation_depth: int) -> float:
    """Return the confidence, lowered by a tenth for every derivation step."""
    return confidence * DERIVED**derivation_depth


def salience(
    *,
    age_days: float,
    confidence: float,
    derivation_depth: int,
    accesses: int,
    most_accesses: int,
    contradicted: bool,
    quarantined: bool = False,
) -> float:
    """Return the product of all signals."""
    return (
        recency(age_days)
        * confidence_weight(confidence, derivation_depth)
        * access_weight(accesses, most_accesses)
        * (CONTRADICTED if contradicted else 1.0)
        * (QUARANTINED if quarantined else 1.0)
    )


def trust_multiplier(trust: float, *, use_trust: bool) -> float:
    """Return 0.5 for no trust up to 1 for full trust; always 1 in a project that does not score its sources."""
    return 0.5 + 0.5 * trust if use_trust else 1.0
