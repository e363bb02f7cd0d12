"""What fits into a budget, against numbers worked out by hand (RECALL 20.3.4)."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.retrieval.packing import pack, token_cost


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", 40),
        ("a", 41),
        ("abcd", 41),
        ("abcde", 42),
        ("é", 41),  # 2 bytes
        ("ééé", 42),  # 6 bytes
        ("日本語", 43),  # 9 bytes
        ("👩🏽‍🚀", 44),  # 15 bytes
        ("x" * 400, 140),
    ],
)
def test_20_3_4_a_result_costs_40_tokens_and_a_quarter_of_its_bytes(text: str, expected: int) -> None:
    assert token_cost(text) == expected


# Cosines: first and second .8, first and third 0, second and third .6.
VECTORS = np.asarray([[1.0, 0.0], [0.8, 0.6], [0.0, 1.0]], dtype=np.float32)


def test_20_3_4_mmr_takes_what_is_good_and_unlike_what_was_taken() -> None:
    # The first by its score. Then with lambda .5: second .5 * .9 - .5 * .8 = .05, third .5 * .6 - .5 * 0 = .3.
    chosen, used = pack([1.0, 0.9, 0.6], [50, 50, 50], budget=1000, limit=10, vectors=VECTORS, diversity=0.5)
    assert (chosen, used) == ([0, 2, 1], 150)
    # With .9: second .9 * .9 - .1 * .8 = .73, third .9 * .6 = .54.
    assert pack([1.0, 0.9, 0.6], [50, 50, 50], budget=1000, limit=10, vectors=VECTORS, diversity=0.9)[0] == [0, 1, 2]


def test_20_3_4_alike_is_the_most_alike_of_all_that_were_taken() -> None:
    vectors = np.asarray([[1.0, 0.0], [0.0, 1.0], [0.6, 0.8], [0.9, 0.4358899]], dtype=np.float32)
    # After the first (lambda .5): .49, .5 * .5 - .5 * .6 = -.05 and .5 * .66 - .5 * .9 = -.12: the second is taken.
    # The third is as like the second as .8: .25 - .4 = -.15; the fourth is still most like the first: -.12.
    chosen, _ = pack([1.0, 0.98, 0.5, 0.66], [1] * 4, budget=100, limit=10, vectors=vectors, diversity=0.5)
    assert chosen == [0, 1, 3, 2]


def test_20_3_4_with_lambda_0_only_unlikeness_counts_after_the_first() -> None:
    chosen, _ = pack([0.3, 0.2, 0.1], [1, 1, 1], budget=100, limit=10, vectors=VECTORS, diversity=0.0)
    assert chosen == [0, 2, 1]


def test_20_3_4_lambda_1_is_the_order_of_scores() -> None:
    assert pack([0.5, 0.9, 0.7], [1, 1, 1], budget=100, limit=10, vectors=VECTORS, diversity=1.0)[0] == [1, 2, 0]


def test_20_3_4_what_does_not_fit_is_passed_over_and_keeps_nobody_out() -> None:
    assert pack([0.9, 0.8, 0.7], [50, 60, 41], budget=100, limit=10) == ([0, 2], 91)
    assert pack([0.9, 0.8], [50, 50], budget=100, limit=10) == ([0, 1], 100)
    assert pack([0.9, 0.8], [50, 51], budget=100, limit=10) == ([0], 50)
    assert pack([0.9, 0.8], [500, 41], budget=100, limit=1) == ([1], 41)


@pytest.mark.parametrize("budget", [0, 1, 40])
def test_20_3_4_an_empty_budget_takes_nothing_and_is_no_error(budget: int) -> None:
    assert pack([0.9], [41], budget=budget, limit=10) == ([], 0)


def test_no_more_than_asked_for_and_none_of_none() -> None:
    assert pack([0.9, 0.8, 0.7], [1, 1, 1], budget=100, limit=2) == ([0, 1], 2)
    assert pack([], [], budget=100, limit=5) == ([], 0)
    assert pack([], [], budget=100, limit=5, vectors=np.zeros((0, 2), dtype=np.float32), diversity=0.5) == ([], 0)


def test_ties_go_to_the_first_and_what_has_no_vector_is_like_nothing() -> None:
    assert pack([0.5, 0.5, 0.5], [1, 1, 1], budget=100, limit=3)[0] == [0, 1, 2]
    vectors = np.asarray([[1.0, 0.0], [1.0, 0.0], [0.0, 0.0]], dtype=np.float32)
    # The second says what the first said: .5 * .9 - .5; the third is like nothing: .5 * .1.
    assert pack([1.0, 0.9, 0.1], [1, 1, 1], budget=100, limit=3, vectors=vectors, diversity=0.5)[0] == [0, 2, 1]


@st.composite
def pools(draw: st.DrawFn) -> dict[str, object]:
    count = draw(st.integers(0, 12))
    angles = [draw(st.floats(0, 2 * math.pi)) for _ in range(count)]
    return {
        "scores": sorted((draw(st.floats(0, 1)) for _ in range(count)), reverse=True),
        "costs": [draw(st.integers(40, 200)) for _ in range(count)],
        "budget": draw(st.integers(0, 1500)),
        "limit": draw(st.integers(1, 15)),
        "diversity": draw(st.floats(0, 1)),
        "vectors": np.asarray([[math.cos(a), math.sin(a)] for a in angles], dtype=np.float32).reshape(count, 2),
    }


@given(pools())
def test_20_3_4_never_over_budget_never_twice_and_always_the_same(pool: dict[str, object]) -> None:
    chosen, used = pack(**pool)  # type: ignore[arg-type]
    costs, budget, limit = pool["costs"], pool["budget"], pool["limit"]
    assert isinstance(costs, list)
    assert used == sum(costs[index] for index in chosen) <= budget  # type: ignore[operator]
    assert len(set(chosen)) == len(chosen) <= limit  # type: ignore[operator]
    assert (chosen, used) == pack(**pool)  # type: ignore[arg-type]
    if len(chosen) < min(limit, len(costs)):  # type: ignore[call-overload]
        left = [cost for index, cost in enumerate(costs) if index not in chosen]
        assert used + min(left) > budget  # type: ignore[operator]


@given(pools())
def test_20_3_4_each_step_takes_what_the_formula_says(pool: dict[str, object]) -> None:
    chosen, _ = pack(**pool)  # type: ignore[arg-type]
    scores, vectors, part = pool["scores"], pool["vectors"], pool["diversity"]
    assert isinstance(scores, list)
    assert isinstance(vectors, np.ndarray)
    assert isinstance(part, float)

    def gain(index: int, taken: list[int]) -> float:
        alike = max((float(vectors[index] @ vectors[other]) for other in taken), default=0.0)
        return part * scores[index] - (1 - part) * alike

    costs, budget = pool["costs"], pool["budget"]
    assert isinstance(costs, list)
    assert isinstance(budget, int)
    used = 0
    for step, index in enumerate(chosen):
        fits = [other for other in set(range(len(scores))) - set(chosen[:step]) if used + costs[other] <= budget]
        assert gain(index, chosen[:step]) >= max(gain(other, chosen[:step]) for other in fits) - 1e-6
        used += costs[index]
