"""Each signal of salience, against numbers worked out by hand (RECALL 20.3.3, 20.6.3)."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.retrieval.salience import access_weight, confidence_weight, recency, salience, trust_multiplier


@pytest.mark.parametrize(
    ("days", "expected"),
    [(0, 1.0), (1, 0.9900498337), (30, 0.7408182207), (69.31471806, 0.5), (365, 0.0259911288), (-3, 1.0)],
)
def test_20_3_3_recency_is_e_to_a_hundredth_of_the_days(days: float, expected: float) -> None:
    assert recency(days) == pytest.approx(expected, rel=1e-8)


@pytest.mark.parametrize(
    ("count", "most", "expected"),
    # .5 + .5 * ln(1 + n) / ln(1 + max); ln 2 / ln 8 is a third, ln 4 / ln 8 two thirds.
    [(0, 7, 0.5), (1, 7, 2 / 3), (3, 7, 5 / 6), (7, 7, 1.0), (0, 0, 1.0), (1, 1, 1.0)],
)
def test_20_3_3_access_counts_from_a_half_to_one(count: int, most: int, expected: float) -> None:
    assert access_weight(count, most) == pytest.approx(expected)


@pytest.mark.parametrize(
    ("confidence", "derived", "expected"), [(0.8, 0, 0.8), (0.8, 1, 0.72), (0.8, 2, 0.648), (1.0, 5, 0.59049)]
)
def test_20_6_3_every_conclusion_costs_a_tenth_of_the_confidence(
    confidence: float, derived: int, expected: float
) -> None:
    assert confidence_weight(confidence, derived) == pytest.approx(expected)


def weigh(**changes: float | bool) -> float:
    plain = {
        "age_days": 0.0,
        "confidence": 1.0,
        "derivation_depth": 0,
        "accesses": 0,
        "most_accesses": 0,
        "contradicted": False,
        "quarantined": False,
    }
    return salience(**{**plain, **changes})  # type: ignore[arg-type]


def test_20_3_3_salience_is_the_product_of_its_signals() -> None:
    assert weigh() == 1.0
    assert weigh(contradicted=True) == pytest.approx(0.7)
    assert weigh(quarantined=True) == pytest.approx(0.2)
    assert weigh(confidence=0.5) == pytest.approx(0.5)
    # e^-.1 * (.9 * .9^2) * (.5 + .5 * ln 4 / ln 8) * .7 * .2
    expected = 0.9048374180 * 0.729 * 0.8333333333 * 0.7 * 0.2
    assert weigh(
        age_days=10,
        confidence=0.9,
        derivation_depth=2,
        accesses=3,
        most_accesses=7,
        contradicted=True,
        quarantined=True,
    ) == pytest.approx(expected)


@pytest.mark.parametrize(("trust", "expected"), [(0.0, 0.5), (0.255, 0.6275), (0.525, 0.7625), (1.0, 1.0)])
def test_20_3_3_trust_multiplies_by_a_half_to_one_and_not_at_all_where_nobody_judges(
    trust: float, expected: float
) -> None:
    assert trust_multiplier(trust, use_trust=True) == pytest.approx(expected)
    assert trust_multiplier(trust, use_trust=False) == 1.0


@given(
    st.floats(0, 4000),
    st.floats(0, 1),
    st.integers(0, 5),
    st.integers(0, 10_000),
    st.integers(0, 10_000),
    st.booleans(),
)
def test_salience_lies_between_0_and_1_and_falls_with_age_doubt_and_derivation(
    age: float, confidence: float, derived: int, accesses: int, more: int, contradicted: bool
) -> None:
    most = accesses + more

    def of(**changes: float) -> float:
        return weigh(
            **{  # type: ignore[arg-type]
                "age_days": age,
                "confidence": confidence,
                "derivation_depth": derived,
                "accesses": accesses,
                "most_accesses": most,
                "contradicted": contradicted,
                **changes,
            }
        )

    here = of()
    assert 0 <= here <= 1
    assert of(age_days=age + 1) <= here
    assert of(derivation_depth=derived + 1) <= here
    assert of(confidence=confidence / 2) <= here
    assert of(contradicted=True) <= here
    assert of(accesses=most) >= here
    assert math.isclose(of(age_days=age + 30), here * recency(30), rel_tol=1e-9, abs_tol=1e-300)
