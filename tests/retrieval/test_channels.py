"""Channels: what each of them asks for, and how rows become candidates."""

import asyncio
import struct
from datetime import UTC, datetime
from typing import Any

import msgspec
import numpy as np
import pytest

from app.retrieval import queries
from app.retrieval.candidates import NoteCandidates
from app.retrieval.channels import (
    CARD_LIMIT,
    CHANNEL_LIMIT,
    GRAPH_LIMIT,
    MAX_CHANNEL_LIMIT,
    CandidateQuery,
    Channels,
    NearestFacts,
    channel_limit,
    format_ids,
)
from app.retrieval.lexical import WeightedTerms
from app.retrieval.vectors import decode_halfvecs, format_vector, stack_vectors

TERMS = WeightedTerms(terms=["boat"], idf=[1.5], total=10, average=5.0, hits=["h1", "h2"])
QUERY = CandidateQuery(tenant_id="acme", project_id="default", model_id=1, dimensions=2, vector="[1,0]")
FACT = ["f1", 1.5, None, 0.5, 2, 0.9, 0.8, 1767225600.0, 3, False, True, 1, False]
OTHER = ["f2", *FACT[1:]]
PAST = datetime(2026, 1, 1, tzinfo=UTC)


class Reads:
    """Returns prepared rows and keeps what was asked for."""

    def __init__(self, **row: Any) -> None:
        self.row = row
        self.asked: list[tuple[str, dict[str, Any]]] = []

    async def __call__(self, statement: str, params: dict[str, Any]) -> list[dict[str, Any]]:
        self.asked.append((statement, params))
        return [self.row]

    @property
    def params(self) -> dict[str, Any]:
        ((_, params),) = self.asked
        return params


@pytest.mark.parametrize(
    ("results", "expected"),
    [(1, CHANNEL_LIMIT), (CHANNEL_LIMIT + 1, CHANNEL_LIMIT + 1), (MAX_CHANNEL_LIMIT + 1, MAX_CHANNEL_LIMIT)],
)
def test_a_channel_looks_for_more_where_more_results_are_asked_for(results: int, expected: int) -> None:
    assert channel_limit(results) == expected
    assert CandidateQuery(tenant_id="t", project_id="p", max_results=results).channel_limit == expected


def test_notes_are_found_by_words_and_meaning() -> None:
    reads = Reads(found=msgspec.json.encode([[["a", 5, 4, "'boat':1A", 0.5], ["b", 5, 4, "", None]]]))
    notes = asyncio.run(Channels(reads, QUERY).find_notes(TERMS))
    assert notes.ids == ["a", "b"]
    assert (reads.params["near"], reads.params["wanted"]) == (CHANNEL_LIMIT, "{h1,h2}")
    assert (reads.params["tenant"], reads.params["project"]) == ("acme", "default")


def test_given_notes_are_only_scored() -> None:
    reads = Reads(found=b"[]")
    notes = asyncio.run(Channels(reads, QUERY).find_notes(TERMS, among=["n1"]))
    assert notes.ids == []
    assert (reads.params["near"], reads.params["wanted"]) == (0, "{n1}")


def test_linked_notes_join_the_candidates() -> None:
    notes = NoteCandidates(TERMS, [])
    reads = Reads(found=msgspec.json.encode({"links": [["a", "b", 2.0]], "found": [[["a", 5, None, "", 0.5]]]}))
    asyncio.run(Channels(reads, QUERY).link_notes(notes, sources=["a"]))
    assert notes.ids == ["a"]
    assert (reads.params["sources"], reads.params["seen"]) == ("{a}", "{}")


def test_links_between_known_notes_add_none() -> None:
    notes = NoteCandidates(TERMS, [])
    asyncio.run(Channels(Reads(found=b'{"links": [], "found": null}'), QUERY).link_notes(notes, sources=["a"]))
    assert notes.ids == []


def test_without_sources_nothing_is_read() -> None:
    reads = Reads()
    asyncio.run(Channels(reads, QUERY).link_notes(NoteCandidates(TERMS, []), sources=[]))
    assert reads.asked == []


@pytest.mark.parametrize(
    "query",
    [
        CandidateQuery(tenant_id="t", project_id="p"),
        CandidateQuery(tenant_id="t", project_id="p", vector="[1]", entity_id="e"),
    ],
    ids=["no vector", "an entity selects the facts"],
)
def test_nearest_facts_need_a_vector_and_no_entity(query: CandidateQuery) -> None:
    reads = Reads()
    assert asyncio.run(Channels(reads, query).find_nearest_facts()) == NearestFacts([], [])
    assert reads.asked == []


@pytest.mark.parametrize(("as_of", "cards"), [(None, CARD_LIMIT), (PAST, 0)])
def test_cards_are_only_near_in_the_present(as_of: datetime | None, cards: int) -> None:
    reads = Reads(facts=["f1"], cards=[])
    query = CandidateQuery(tenant_id="t", project_id="p", vector="[1]", as_of=as_of, predicate_ids=["p1"])
    assert asyncio.run(Channels(reads, query).find_nearest_facts()) == NearestFacts(["f1"], [])
    assert (reads.params["cards"], reads.params["relations"]) == (cards, ["p1"])


@pytest.mark.parametrize(
    ("results", "limit"), [(50, GRAPH_LIMIT), (100, 200), (MAX_CHANNEL_LIMIT * 2, 2 * MAX_CHANNEL_LIMIT)]
)
def test_facts_are_found_in_every_channel(results: int, limit: int) -> None:
    reads = Reads(found=msgspec.json.encode([FACT]))
    query = CandidateQuery(tenant_id="t", project_id="p", max_results=results)
    facts = asyncio.run(Channels(reads, query).find_facts(TERMS, nearest=NearestFacts(["f9"], ["c9"]), notes=["n9"]))
    assert facts.ids == ["f1"]
    assert not facts.keep_unmatched
    asked = reads.params
    assert (asked["lexical"], asked["near"], asked["cards"], asked["notes"]) == ("{h1,h2}", "{f9}", "{c9}", "{n9}")
    assert asked["graph_limit"] == limit


def test_facts_about_an_entity_are_kept_whatever_their_score() -> None:
    query = CandidateQuery(tenant_id="t", project_id="p", entity_id="e")
    found = Channels(Reads(found=msgspec.json.encode([FACT])), query).find_facts(
        TERMS, nearest=NearestFacts([], []), notes=[]
    )
    assert asyncio.run(found).keep_unmatched


def test_given_facts_are_filtered_without_looking_for_others() -> None:
    reads = Reads(found=msgspec.json.encode([FACT, OTHER]))
    query = CandidateQuery(tenant_id="t", project_id="p", vector="[1]", model_id=1, entity_id="e", min_confidence=0.4)
    assert asyncio.run(Channels(reads, query).filter_facts(["f2"])).ids == ["f2"]
    asked = reads.params
    assert (asked["vector"], asked["model"], asked["entity"], asked["depth"]) == (None, None, None, 0)
    assert (asked["lexical"], asked["min_confidence"]) == ("{f2}", 0.4)
    nothing = Reads()
    assert asyncio.run(Channels(nothing, query).filter_facts([])).ids == []
    assert nothing.asked == []


def halfvec(*numbers: float) -> bytes:
    return struct.pack(">HH", len(numbers), 0) + np.asarray(numbers, dtype=">f2").tobytes()


def test_vectors_are_read_by_id() -> None:
    reads = Reads(ids=["a", "b"], vectors=halfvec(1.0, 0.5) + halfvec(0.25, -1.0))
    found = asyncio.run(Channels(reads, QUERY).read_vectors(["a", "b", "c"]))
    assert {key: vector.tolist() for key, vector in found.items()} == {"a": [1.0, 0.5], "b": [0.25, -1.0]}
    assert reads.asked[0][0] == queries.VECTORS
    assert reads.params["ids"] == "{a,b,c}"
    stacked = stack_vectors(found, ["b", "c", "a"])
    assert stacked is not None
    assert stacked.tolist() == [[0.25, -1.0], [0.0, 0.0], [1.0, 0.5]]


def test_no_vectors_are_none() -> None:
    assert decode_halfvecs(None, None) == {}
    assert decode_halfvecs([], b"") == {}
    assert stack_vectors({}, ["a"]) is None


def test_ids_and_vectors_are_written_as_postgresql_reads_them() -> None:
    assert format_ids([]) == "{}"
    assert format_ids(["a", "b"]) == "{a,b}"
    assert format_vector([1.0, -0.5, 1 / 3]) == "[1,-0.5,0.33333333]"
