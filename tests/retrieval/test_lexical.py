"""Terms and BM25, against numbers computed by hand."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.retrieval.lexical import TermStatistics, bm25, inverse_frequencies, parse_terms, weigh_terms
from app.retrieval.threads import Thread


def scores(*values: float) -> np.ndarray:
    return np.asarray(values, dtype=np.float64)


def row(*places: int) -> Thread:
    thread = Thread(len(places))
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
    assert parse_terms(printed) == expected


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
    assert parse_terms(printed) == terms


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


def test_terms_weigh_the_same_in_every_kind() -> None:
    notes = TermStatistics(terms=["boat", "sail"], documents=[3, 1], total=10, average=5.0, hits=["n1"])
    facts = TermStatistics(terms=["boat"], documents=[1], total=4, average=3.0, hits=["f1"])
    weighed = weigh_terms({"note": notes, "fact": facts})
    # boat: 4 of 14 units, sail: 1 of 14.
    assert weighed["note"].idf == inverse_frequencies([4, 1], 14)
    assert weighed["fact"].idf == inverse_frequencies([4], 14)
    assert (weighed["note"].total, weighed["note"].average, weighed["note"].hits) == (10, 5.0, ["n1"])
    assert weigh_terms({}) == {}


def test_a_rare_term_weighs_more() -> None:
    # ln(1 + (10 - 1 + .5) / 1.5) and ln(1 + (10 - 9 + .5) / 9.5)
    assert inverse_frequencies([1, 9], 10) == pytest.approx([1.9924301, 0.1466034])
