"""Candidates: rows with named fields, notes in overlapping windows, and one ranking over all kinds."""

from datetime import UTC, datetime

import msgspec
import numpy as np
import pytest

from app.retrieval.candidates import (
    CandidateSet,
    FactCandidates,
    FactRow,
    NoteCandidates,
    NoteLink,
    NoteRow,
    RankingContext,
    Window,
)
from app.retrieval.lexical import WeightedTerms
from app.retrieval.ranking import Fusion, Ranker

NOW = datetime(2026, 1, 1, tzinfo=UTC)
TERMS = WeightedTerms(terms=["boat", "sail"], idf=[1.0, 2.0], total=10, average=5.0, hits=[])
WEIGHTS = {"lexical": 0.4, "vector": 0.4, "graph": 0.2}


def make_ranker(*, fusion: Fusion = "weighted_sum", use_vector: bool = True, use_trust: bool = False) -> Ranker:
    context = RankingContext(now=NOW, use_trust=use_trust)
    return Ranker(weights=WEIGHTS, fusion=fusion, use_vector=use_vector, context=context)


RANKER = make_ranker()


def note(name: str, terms: str = "", cosine: float | None = 0.5, *, threaded: bool = True) -> NoteRow:
    return NoteRow(name, 5, 4 if threaded else None, terms, cosine)


def fact(name: str, cosine: float | None = 0.5, **changes: object) -> FactRow:
    row = FactRow(
        fact_id=name,
        lexical=0.0,
        cosine=cosine,
        graph=None,
        hops=0,
        confidence=0.9,
        trust=1.0,
        created_at=NOW.timestamp(),
        accesses=0,
        contradicted=False,
        preferred=True,
        derivation_depth=0,
        quarantined=False,
    )
    return msgspec.structs.replace(row, **changes)


def test_what_stands_in_two_windows_is_one_candidate_with_the_cosine_of_either() -> None:
    far = note("c", cosine=None)
    found = NoteCandidates(
        TERMS,
        [[note("a", "'boat':1A"), note("b"), far], [note("b"), note("c", "", 0.7), note("d", "'sail':2A,3A")]],
    )
    whole = NoteCandidates(TERMS, [[note("a", "'boat':1A"), note("b"), note("c", "", 0.7), note("d", "'sail':2A,3A")]])
    assert found.ids == whole.ids == ["a", "b", "c", "d"]
    np.testing.assert_allclose(found.lexical, whole.lexical)
    np.testing.assert_allclose(found.cosine, whole.cosine)


def test_notes_that_are_added_score_as_if_they_had_been_found_at_first() -> None:
    first, second = [note("a", "'boat':1A"), note("b", cosine=None)], [note("b", "", 0.2), note("c", "'sail':1A")]
    added = NoteCandidates(TERMS, [first])
    added.add([second])
    together = NoteCandidates(TERMS, [first, second])
    assert added.ids == together.ids
    np.testing.assert_allclose(added.lexical, together.lexical)
    np.testing.assert_allclose(added.cosine, together.cosine)


def test_the_head_of_the_order_is_the_order_cut_short_and_all_are_counted() -> None:
    notes = NoteCandidates(TERMS, [[note(f"n{i}", f"'boat':{i + 1}A", i / 10, threaded=False)] for i in range(6)])
    facts = FactCandidates([fact(f"f{i}", i / 10) for i in range(6)])
    whole, count = RANKER.rank([notes, facts])
    head, same = RANKER.rank([notes, facts], limit=4)
    assert count == same == len(whole)
    assert head == whole[:4]
    assert [one.score for one in whole] == sorted((one.score for one in whole), reverse=True)
    assert {one.kind for one in whole} == {"note", "fact"}


def test_the_best_notes_are_the_first_of_the_order() -> None:
    notes = NoteCandidates(TERMS, [[note(f"n{i}", "'boat':1A", i / 10, threaded=False)] for i in range(6)])
    ranked, _ = RANKER.rank([notes])
    assert RANKER.best_notes(notes, 3) == [one.id for one in ranked[:3]] == ["n5", "n4", "n3"]


def test_rows_are_decoded_by_name_from_json_arrays() -> None:
    (found,) = msgspec.json.decode('[["n1", 7, null, "\'boat\':1A", 0.25]]', type=list[NoteRow])
    assert (found.note_id, found.length, found.content_terms, found.terms, found.cosine) == (
        "n1", 7, None, "'boat':1A", 0.25,
    )  # fmt: skip
    text = '["f1", 1.5, null, 0.5, 2, 0.9, 0.8, 1767225600.0, 3, true, false, 1, true]'
    row = msgspec.json.decode(text, type=FactRow)
    assert msgspec.structs.asdict(row) == {
        "fact_id": "f1",
        "lexical": 1.5,
        "cosine": None,
        "graph": 0.5,
        "hops": 2,
        "confidence": 0.9,
        "trust": 0.8,
        "created_at": 1767225600.0,
        "accesses": 3,
        "contradicted": True,
        "preferred": False,
        "derivation_depth": 1,
        "quarantined": True,
    }
    link = msgspec.json.decode('["n1", "n2", 4.5]', type=NoteLink)
    assert (link.source_id, link.note_id, link.strength) == ("n1", "n2", 4.5)


def test_terms_of_a_note_that_the_query_lacks_do_not_count() -> None:
    windows: list[Window] = [[note("a", "'boat':1A 'tea':2A,3A")], [note("b", "'boat':1A")]]
    notes = NoteCandidates(TERMS, windows)
    assert notes.lexical[0] == notes.lexical[1] > 0


def test_a_linked_note_is_pulled_towards_its_source() -> None:
    def candidates() -> NoteCandidates:
        return NoteCandidates(
            TERMS,
            [
                [note("a", "'boat':1A 'sail':2A", 0.9, threaded=False)],
                [note("b", "", 0.1, threaded=False)],
                [note("c", "", 0.1, threaded=False)],
            ],
        )

    alone, linked = candidates(), candidates()
    linked.link(["a"], [NoteLink("a", "b", 2.0), NoteLink("a", "gone", 9.0), NoteLink("c", "c", 9.0)])
    before = {one.id: one for one in RANKER.rank([alone])[0]}
    after = {one.id: one for one in RANKER.rank([linked])[0]}
    assert after["b"].score > before["b"].score
    assert after["b"].raw_score == before["b"].raw_score
    assert after["a"] == before["a"]
    assert after["c"] == before["c"]


def test_facts_are_weighed_by_salience_and_trust() -> None:
    facts = FactCandidates([fact("sure", trust=0.5), fact("doubtful", contradicted=True, accesses=3, hops=2)])
    ranked, _ = make_ranker(use_trust=True).rank([facts])
    by_id = {one.id: one for one in ranked}
    assert by_id["sure"].trust == pytest.approx(0.75)
    assert by_id["sure"].salience == pytest.approx(0.9 * 0.5)
    assert by_id["doubtful"].trust == 1.0
    assert by_id["doubtful"].salience == pytest.approx(0.9 * 0.7)
    assert by_id["doubtful"].hops == 2
    for one in ranked:
        assert one.score == pytest.approx(one.raw_score * one.salience * one.trust)


def test_without_a_vector_the_channel_is_left_out_and_cosines_are_none() -> None:
    facts = FactCandidates([fact("f", cosine=None, lexical=2.0, graph=1.0)])
    (only,), count = make_ranker(use_vector=False).rank([facts])
    assert count == 1
    assert set(only.channels) == {"lexical", "graph"}
    assert only.cosine is None
    assert (only.lexical_raw, only.graph_raw) == (2.0, 1.0)


def test_with_rrf_a_rank_is_one_among_the_candidates_of_all_kinds() -> None:
    notes = NoteCandidates(TERMS, [[note("n", "'boat':1A", 0.9, threaded=False)]])
    facts = FactCandidates([fact("f", 0.8, confidence=1.0)])
    ranked, _ = make_ranker(fusion="rrf").rank([notes, facts])
    assert [one.id for one in ranked] == ["n", "f"]
    assert ranked[1].raw_score == pytest.approx(0.4 * 61 / 62)


def test_candidates_without_a_score_are_left_out_unless_they_are_selected() -> None:
    nothing = [fact("f", cosine=None)]
    without_vector = make_ranker(use_vector=False)
    assert without_vector.rank([FactCandidates(nothing)]) == ([], 0)
    (kept,), count = without_vector.rank([FactCandidates(nothing, keep_unmatched=True)])
    assert (kept.id, kept.score, count) == ("f", 0.0, 1)
    empty: list[CandidateSet] = [NoteCandidates(TERMS, []), FactCandidates([])]
    assert RANKER.rank(empty) == ([], 0)
    assert RANKER.best_notes(NoteCandidates(TERMS, []), 3) == []


def test_facts_are_filtered_by_preference_and_by_id() -> None:
    rows = [fact("a"), fact("b", preferred=False), fact("c", preferred=False)]
    facts = FactCandidates(rows, keep_unmatched=True)
    assert facts.preferred().ids == ["a"]
    assert facts.preferred(besides=frozenset({"c"})).ids == ["a", "c"]
    assert facts.preferred().keep_unmatched
    assert facts.among(["c", "a", "unknown"]).ids == ["a", "c"]


def test_a_long_note_is_marked_as_embedded_in_part() -> None:
    long = NoteRow("long", 401, None, "", 0.5)
    short = NoteRow("short", 400, None, "", 0.5)
    assert NoteCandidates(TERMS, [[long], [short]]).partial.tolist() == [True, False]
