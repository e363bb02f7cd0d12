"""A note in its context, against numbers worked out by hand."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.retrieval.threads import Thread, bm25, cosine, discount_silence, pull, read_terms


def scores(*values: float) -> np.ndarray:
    return np.asarray(values, dtype=np.float64)


def row(*places: int, count: int | None = None) -> Thread:
    thread = Thread(len(places) if count is None else count)
    thread.link(places)
    return thread


@pytest.mark.parametrize(
    ("printed", "expected"),
    [
        ("", {}),
        ("'tea':3A", {"tea": 1}),
        ("'green':2A 'tea':3A,7A,12A", {"green": 1, "tea": 3}),
        ("'o''clock':1A,4A 'tea':2A", {"o'clock": 2, "tea": 1}),
        ("'''':1A", {"'": 1}),
        ("'a'':2A b':1A,2A", {"a':2A b": 2}),
        ("'naïve':1A 'été':16383A", {"naïve": 1, "été": 1}),
        ("'a b':1A 'c:d':2A,3A", {"a b": 1, "c:d": 2}),
    ],
)
def test_terms_are_read_as_postgresql_prints_them(printed: str, expected: dict[str, int]) -> None:
    assert read_terms(printed) == expected


@given(
    st.dictionaries(
        st.text(st.characters(exclude_characters="\\\0", exclude_categories=["Cs"]), min_size=1, max_size=8),
        st.integers(1, 5),
        max_size=6,
    )
)
def test_terms_are_read_whatever_stands_in_them(terms: dict[str, int]) -> None:
    printed = " ".join(
        "'{}':{}".format(term.replace("'", "''"), ",".join(f"{place}A" for place in range(1, count + 1)))
        for term, count in terms.items()
    )
    assert read_terms(printed) == terms


def test_neighbours_count_less_with_each_step() -> None:
    thread = row(0, 1, 2, 3)
    summed = thread.sum(scores(1, 10, 100, 1000), before=0.5, after=0.1, reach=2)
    assert summed.tolist() == pytest.approx(
        [1 + 0.1 * 10 + 0.01 * 100, 10 + 0.5 * 1 + 0.1 * 100 + 0.01 * 1000, 100 + 5 + 0.25 + 100, 1000 + 50 + 2.5]
    )


def test_what_stands_in_no_thread_has_no_neighbours() -> None:
    thread = row(1, 2, count=4)
    assert thread.sum(scores(1, 1, 1, 1), before=0.5, after=0.5, reach=3).tolist() == [1, 1.5, 1.5, 1]


def test_bm25_of_notes_alone() -> None:
    counts = np.asarray([[1.0, 0.0], [2.0, 1.0], [0.0, 0.0]])
    found = bm25(counts, scores(4, 8, 5), scores(1.0, 2.0), 5.0, Thread(3), np.zeros(3, dtype=np.bool_))
    # k1 .9, b .6: norms .9 * (.4 + .6 * 4 / 5) = .792 and .9 * (.4 + .6 * 8 / 5) = 1.224
    first = 1.0 * 1 * 1.9 / (1 + 0.792)
    second = 1.0 * 2 * 1.9 / (2 + 1.224) + 2.0 * 1 * 1.9 / (1 + 1.224)
    assert found.tolist() == pytest.approx([first, second, 0.0])


def test_bm25_over_a_window_of_three_turns() -> None:
    counts = np.asarray([[1.0], [0.0], [2.0]])
    found = bm25(counts, scores(6, 4, 10), scores(1.5), 5.0, row(0, 1, 2), np.ones(3, dtype=np.bool_))
    # A neighbour before counts .6, .36, .216, one after .5, .25, .125; a whole window is 1 + 1.176 + .875 = 3.051.
    usual = 5.0 * 3.051
    first = (1 + 0.25 * 2, 6 + 0.5 * 4 + 0.25 * 10)
    second = (0.6 * 1 + 0.5 * 2, 4 + 0.6 * 6 + 0.5 * 10)
    third = (2 + 0.36 * 1, 10 + 0.6 * 4 + 0.36 * 6)
    expected = [1.5 * tf * 1.9 / (tf + 0.9 * (0.4 + 0.6 * length / usual)) for tf, length in (first, second, third)]
    assert found.tolist() == pytest.approx(expected)
    assert found[1] > 0, "the one in the middle says nothing of it, but those around it do"


def test_the_cosine_of_a_turn_is_read_with_those_around_it() -> None:
    found = cosine(scores(0.5, 0.9, math.nan, 0.1), row(0, 1, 2, 3))
    # Neighbours .4 and .16. The first: .5 + .4 * .9, weights 1 + .4, squares 1 + .16; the gap is passed over.
    first = (0.5 + 0.36) / math.sqrt(1.16 + 0.3 * (1.4**2 - 1.16))
    # The second: itself, .4 of the first, and .16 of the last.
    second = (0.9 + 0.2 + 0.016) / math.sqrt(1.1856 + 0.3 * (1.56**2 - 1.1856))
    last = (0.1 + 0.16 * 0.9) / math.sqrt(1.0256 + 0.3 * (1.16**2 - 1.0256))
    assert found[[0, 1, 3]].tolist() == pytest.approx([first, second, last])
    assert math.isnan(found[2])


def test_a_note_outside_of_threads_keeps_its_cosine() -> None:
    assert cosine(scores(0.5, -0.2), Thread(2)).tolist() == pytest.approx([0.5, -0.2])


def test_who_only_asks_loses_up_to_a_fifth_of_the_best() -> None:
    found = discount_silence(scores(1.0, 0.5, 0.1), scores(math.inf, 6.0, 0.0))
    # .5 - .2 * e^-1, and .1 - .2 is nothing
    assert found.tolist() == pytest.approx([1.0, 0.5 - 0.2 * 0.36787944, 0.0])


def test_what_shares_names_with_a_hit_is_pulled_towards_it() -> None:
    found = pull(scores(1.0, 0.2, 0.6, 0.4), 0, scores(0.0, 4.0, 2.0, 0.0))
    # .2 + .4 * 1 * .8, .6 + .4 * .5 * .4
    assert found.tolist() == pytest.approx([1.0, 0.52, 0.68, 0.4])
    alone = scores(1.0, 0.2)
    assert pull(alone, 0, scores(3.0, 0.0)).tolist() == [1.0, 0.2], "nobody is linked to themselves"


@given(st.integers(1, 12), st.data())
def test_nothing_is_pulled_above_the_hit_nor_loses(count: int, data: st.DataObject) -> None:
    values = scores(*data.draw(st.lists(st.floats(0, 1), min_size=count, max_size=count)))
    strengths = scores(*data.draw(st.lists(st.floats(0, 50), min_size=count, max_size=count)))
    source = data.draw(st.integers(0, count - 1))
    found = pull(values, source, strengths)
    assert (found >= values).all()
    assert (found <= np.maximum(values, values[source]) + 1e-12).all()
    assert found[source] == values[source]


@given(st.integers(1, 10), st.data())
def test_bm25_is_never_negative_and_grows_with_what_is_found(count: int, data: st.DataObject) -> None:
    lengths = scores(*data.draw(st.lists(st.integers(1, 60), min_size=count, max_size=count)))
    counts = scores(*data.draw(st.lists(st.integers(0, 5), min_size=count, max_size=count)))[:, None]
    threaded = data.draw(st.booleans())
    thread = row(*range(count)) if threaded else Thread(count)
    marks = np.full(count, threaded, dtype=np.bool_)
    low = bm25(counts, lengths, scores(1.2), 10.0, thread, marks)
    high = bm25(counts + 1, lengths, scores(1.2), 10.0, thread, marks)
    assert (low >= 0).all()
    assert (high > low).all()
    assert (high < 1.2 * 1.9).all(), "a term counts no more than its weight and k1 allow"
