"""Candidates: notes in windows that overlap, and an order of which only the head is put together."""

from datetime import UTC, datetime

import numpy as np

from app.recall.candidates import FactCandidates, FactRow, NoteCandidates, NoteRow, Words
from app.recall.scoring import Scorer

NOW = datetime(2026, 1, 1, tzinfo=UTC)
WORDS = Words(terms=["boat", "sail"], idf=[1.0, 2.0], total=10, average=5.0, hits=[])
SCORER = Scorer(
    weights={"lexical": 0.4, "vector": 0.4, "graph": 0.2}, fusion="weighted_sum", vector=True, judged=False, now=NOW
)


def note(name: str, terms: str = "", cosine: float | None = 0.5, *, threaded: bool = True) -> NoteRow:
    return (name, 5, 4 if threaded else None, terms, cosine)


def fact(name: str, cosine: float) -> FactRow:
    return (name, 0.0, cosine, None, 0, 0.9, 1.0, NOW.timestamp(), 0, False, True, 0, False)


def test_what_stands_in_two_windows_is_one_candidate_with_the_cosine_of_either() -> None:
    far = note("c", cosine=None)
    found = NoteCandidates(
        WORDS,
        [[note("a", "'boat':1A"), note("b"), far], [note("b"), note("c", "", 0.7), note("d", "'sail':2A,3A")]],
    )
    whole = NoteCandidates(WORDS, [[note("a", "'boat':1A"), note("b"), note("c", "", 0.7), note("d", "'sail':2A,3A")]])
    assert found.ids == whole.ids == ["a", "b", "c", "d"]
    np.testing.assert_allclose(found.lexical, whole.lexical)
    np.testing.assert_allclose(found.cosine, whole.cosine)


def test_notes_that_are_added_score_as_if_they_had_been_found_at_first() -> None:
    first, second = [note("a", "'boat':1A"), note("b", cosine=None)], [note("b", "", 0.2), note("c", "'sail':1A")]
    added = NoteCandidates(WORDS, [first])
    added.add([second])
    together = NoteCandidates(WORDS, [first, second])
    assert added.ids == together.ids
    np.testing.assert_allclose(added.lexical, together.lexical)
    np.testing.assert_allclose(added.cosine, together.cosine)


def test_the_head_of_the_order_is_the_order_cut_short_and_all_are_counted() -> None:
    notes = NoteCandidates(WORDS, [[note(f"n{i}", f"'boat':{i + 1}A", i / 10, threaded=False)] for i in range(6)])
    facts = FactCandidates([fact(f"f{i}", i / 10) for i in range(6)])
    whole, count = SCORER.rank(notes, facts, sources=[], links=[])
    head, same = SCORER.rank(notes, facts, sources=[], links=[], most=4)
    assert count == same == len(whole)
    assert head == whole[:4]
    assert [one.score for one in whole] == sorted((one.score for one in whole), reverse=True)
    assert {one.kind for one in whole} == {"note", "fact"}


def test_the_best_notes_are_the_first_of_the_order() -> None:
    notes = NoteCandidates(WORDS, [[note(f"n{i}", "'boat':1A", i / 10, threaded=False)] for i in range(6)])
    ranked, _ = SCORER.rank(notes, None, sources=[], links=[])
    assert SCORER.best_notes(notes, 3) == [one.id for one in ranked[:3]] == ["n5", "n4", "n3"]
