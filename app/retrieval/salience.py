"""How much a fact matters beside how well it fits: age, confidence, use, contradiction, trust."""

import math

RECENCY_PER_DAY = 0.01
DERIVED = 0.9
CONTRADICTED = 0.7
QUARANTINED = 0.2


def recency(age_days: float) -> float:
    """Falls by about a hundredth a day."""
    return math.exp(-RECENCY_PER_DAY * max(age_days, 0.0))


def access_weight(count: int, most: int) -> float:
    """Between a half for what nobody asked for and 1 for what was asked for most; 1 while nothing was."""
    return 1.0 if most <= 0 else 0.5 + 0.5 * math.log1p(count) / math.log1p(most)


def confidence_weight(confidence: float, derived: int) -> float:
    """Confidence, less for every conclusion on the way to a fact."""
    return confidence * DERIVED**derived


def salience(
    *,
    age_days: float,
    confidence: float,
    derived: int,
    accesses: int,
    most_accesses: int,
    contradicted: bool,
    quarantined: bool = False,
) -> float:
    """The product of all signals."""
    return (
        recency(age_days)
        * confidence_weight(confidence, derived)
        * access_weight(accesses, most_accesses)
        * (CONTRADICTED if contradicted else 1.0)
        * (QUARANTINED if quarantined else 1.0)
    )


def trust_multiplier(trust: float, *, judged: bool) -> float:
    """Half for no trust at all, 1 for full trust; where a project does not judge its sources, 1."""
    return 0.5 + 0.5 * trust if judged else 1.0
