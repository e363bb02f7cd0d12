"""Scores made comparable and summed, against numbers worked out by hand (RECALL 20.3.3)."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from app.retrieval.normalisation import by_maximum, fuse, fuse_ranks, normalise_cosines

numbers = st.floats(min_value=-1e6, max_value=1e6, allow_nan=False, width=32)
columns = arrays(np.float64, st.integers(0, 20), elements=numbers)
cosines = arrays(np.float64, st.integers(1, 20), elements=st.floats(-1, 1, width=32))


def scores(*values: float) -> np.ndarray:
    return np.asarray(values, dtype=np.float64)


def test_20_3_3_scores_are_divided_by_the_best() -> None:
    assert by_maximum(scores(2.0, 8.0, 0.0, 4.0)).tolist() == [0.25, 1.0, 0.0, 0.5]


def test_20_3_3_one_alone_counts_1_and_not_nothing_by_nothing() -> None:
    assert by_maximum(scores(0.003)).tolist() == [1.0]
    assert normalise_cosines(scores(-0.05), scores(0)).tolist() == [1.0]


@pytest.mark.parametrize("values", [[], [0.0], [0.0, 0.0], [-1.0, -2.0]])
def test_where_nothing_is_above_zero_nothing_counts(values: list[float]) -> None:
    assert by_maximum(scores(*values)).tolist() == [0.0] * len(values)


def test_cosines_are_lifted_by_15_hundredths_before_they_are_divided() -> None:
    # (.60 + .15, .15 + .15, -.15 + .15, -.5 + .15) / .75
    assert normalise_cosines(scores(0.6, 0.15, -0.15, -0.5), scores(1, 1, 1, 1)).tolist() == pytest.approx(
        [1.0, 0.4, 0.0, 0.0]
    )


def test_a_cosine_that_is_not_known_counts_as_the_worst_that_is() -> None:
    # (.45 + .15, .15 + .15, the same) / .6
    assert normalise_cosines(scores(0.45, 0.15, math.nan), scores(0, 0, 0.2)).tolist() == pytest.approx([1.0, 0.5, 0.5])
    assert normalise_cosines(scores(0.45, 0.15, math.nan), scores(1, 1, 0.9)).tolist() == pytest.approx([1.0, 0.5, 0.9])
    assert normalise_cosines(scores(math.nan, math.nan), scores(0.7, 0.0)).tolist() == [0.7, 0.0]


def test_a_cosine_that_tells_of_a_part_alone_counts_as_much_as_the_words_do() -> None:
    partly = np.asarray([False, True, True])
    made = normalise_cosines(scores(0.45, 0.15, 0.3), scores(0.0, 0.8, 0.1), partly)
    assert made.tolist() == pytest.approx([1.0, 0.8, 0.75])


def test_20_3_3_raw_score_is_the_weighted_sum() -> None:
    channels = {"lexical": scores(1.0, 0.5), "vector": scores(0.2, 1.0), "graph": scores(0.0, 0.4)}
    weights = {"lexical": 0.3, "vector": 0.5, "graph": 0.2}
    # .3 * 1 + .5 * .2 + .2 * 0 and .3 * .5 + .5 * 1 + .2 * .4
    assert fuse(channels, weights).tolist() == pytest.approx([0.4, 0.73])


def test_a_channel_that_is_out_of_order_leaves_its_weight_to_the_others() -> None:
    channels = {"lexical": scores(1.0, 0.5), "graph": scores(0.0, 0.4)}
    weights = {"lexical": 0.3, "vector": 0.5, "graph": 0.2}
    # (.3 * 1) / .5 and (.3 * .5 + .2 * .4) / .5
    assert fuse(channels, weights).tolist() == pytest.approx([0.6, 0.46])
    assert fuse(channels, {"lexical": 0.0, "vector": 1.0, "graph": 0.0}).tolist() == [0.0, 0.0]


def test_reciprocal_ranks_count_61_by_60_and_the_rank() -> None:
    channels = {"lexical": scores(5.0, 9.0, 0.0), "vector": scores(0.9, 0.1, 0.5)}
    weights = {"lexical": 0.4, "vector": 0.6}
    # Second and first; first and third; not found and second.
    assert fuse_ranks(channels, weights).tolist() == pytest.approx(
        [0.4 * 61 / 62 + 0.6 * 61 / 61, 0.4 * 61 / 61 + 0.6 * 61 / 63, 0.6 * 61 / 62]
    )


@given(columns)
def test_normalised_scores_lie_between_0_and_1_and_keep_their_order(values: np.ndarray) -> None:
    made = by_maximum(values)
    assert made.shape == values.shape
    assert ((made >= 0) & (made <= 1)).all()
    assert not (values > 0).any() or made.max() == 1
    for i in range(len(values)):
        assert ((values >= values[i]) <= (made >= made[i])).all()


@given(cosines, st.data())
def test_normalised_cosines_lie_between_0_and_1_whatever_is_missing(values: np.ndarray, data: st.DataObject) -> None:
    missing = data.draw(arrays(np.bool_, len(values)))
    made = normalise_cosines(np.where(missing, np.nan, values), np.zeros_like(values))
    assert ((made >= 0) & (made <= 1)).all()
    if not missing.all():
        worst = made[~missing].min()
        assert (made[missing] == worst).all()


@given(st.integers(1, 8), st.data())
def test_a_fused_score_lies_between_0_and_1_and_better_channels_never_hurt(count: int, data: st.DataObject) -> None:
    share = arrays(np.float64, count, elements=st.floats(0, 1, width=32))
    first, second = data.draw(share), data.draw(share)
    part = data.draw(st.floats(0, 1, width=32))
    weights = {"lexical": part, "vector": 1.0 - part}
    low = fuse({"lexical": np.minimum(first, second), "vector": second}, weights)
    high = fuse({"lexical": np.maximum(first, second), "vector": second}, weights)
    assert (low <= high + 1e-12).all()
    assert (high <= 1 + 1e-9).all()
    ranks = fuse_ranks({"lexical": first, "vector": second}, weights)
    assert ((ranks >= 0) & (ranks <= 1 + 1e-9)).all()
