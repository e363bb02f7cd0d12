"""Notes in their threads, against numbers computed by hand."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.retrieval.threads import Thread, penalise_low_content, pull_linked, smooth_cosines


def scores(*values: float) -> np.ndarray:
    return np.asarray(values, dtype=np.float64)


def row(*places: int, count: int | None = None) -> Thread:
    thread = Thread(len(places) if count is None else count)
    thread.link(places)
    return thread


def test_neighbours_count_less_with_each_step() -> None:
    thread = row(0, 1, 2, 3)
    summed = thread.sum(scores(1, 10, 100, 1000), before=0.5, after=0.1, reach=2)
    assert summed.tolist() == pytest.approx(
        [1 + 0.1 * 10 + 0.01 * 100, 10 + 0.5 * 1 + 0.1 * 100 + 0.01 * 1000, 100 + 5 + 0.25 + 100, 1000 + 50 + 2.5]
    )


def test_what_stands_in_no_thread_has_no_neighbours() -> None:
    thread = row(1, 2, count=4)
    assert thread.sum(scores(1, 1, 1, 1), before=0.5, after=0.5, reach=3).tolist() == [1, 1.5, 1.5, 1]


def test_the_cosine_of_a_turn_is_read_with_those_around_it() -> None:
    found = smooth_cosines(scores(0.5, 0.9, math.nan, 0.1), row(0, 1, 2, 3))
    # Neighbours .4 and .16. The first: .5 + .4 * .9, weights 1 + .4, squares 1 + .16; the gap is passed over.
    first = (0.5 + 0.36) / math.sqrt(1.16 + 0.3 * (1.4**2 - 1.16))
    # The second: itself, .4 of the first, and .16 of the last.
    second = (0.9 + 0.2 + 0.016) / math.sqrt(1.1856 + 0.3 * (1.56**2 - 1.1856))
    last = (0.1 + 0.16 * 0.9) / math.sqrt(1.0256 + 0.3 * (1.16**2 - 1.0256))
    assert found[[0, 1, 3]].tolist() == pytest.approx([first, second, last])
    assert math.isnan(found[2])


def test_a_note_outside_of_threads_keeps_its_cosine() -> None:
    assert smooth_cosines(scores(0.5, -0.2), Thread(2)).tolist() == pytest.approx([0.5, -0.2])


def test_who_only_asks_loses_up_to_a_fifth_of_the_best() -> None:
    found = penalise_low_content(scores(1.0, 0.5, 0.1), scores(math.inf, 6.0, 0.0))
    # .5 - .2 * e^-1, and .1 - .2 is nothing
    assert found.tolist() == pytest.approx([1.0, 0.5 - 0.2 * 0.36787944, 0.0])


def test_what_shares_names_with_a_hit_is_pulled_towards_it() -> None:
    found = pull_linked(scores(1.0, 0.2, 0.6, 0.4), 0, scores(0.0, 4.0, 2.0, 0.0))
    # .2 + .4 * 1 * .8, .6 + .4 * .5 * .4
    assert found.tolist() == pytest.approx([1.0, 0.52, 0.68, 0.4])
    alone = scores(1.0, 0.2)
    assert pull_linked(alone, 0, scores(3.0, 0.0)).tolist() == [1.0, 0.2], "nobody is linked to themselves"


@given(st.integers(1, 12), st.data())
def test_nothing_is_pulled_above_the_hit_nor_loses(count: int, data: st.DataObject) -> None:
    values = scores(*data.draw(st.lists(st.floats(0, 1), min_size=count, max_size=count)))
    strengths = scores(*data.draw(st.lists(st.floats(0, 50), min_size=count, max_size=count)))
    source = data.draw(st.integers(0, count - 1))
    found = pull_linked(values, source, strengths)
    assert (found >= values).all()
    assert (found <= np.maximum(values, values[source]) + 1e-12).all()
    assert found[source] == values[source]
