"""Channels: find candidates by their words, by their meaning and along the graph, one read for each."""

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from datetime import datetime
from typing import Any

import msgspec

from app.retrieval import queries
from app.retrieval.candidates import FactCandidates, FactRow, NoteCandidates, NoteLink, Window
from app.retrieval.lexical import NEIGHBOUR_REACH, WeightedTerms
from app.retrieval.vectors import Vector, decode_halfvecs

Read = Callable[[str, dict[str, Any]], Awaitable[list[dict[str, Any]]]]
"""Runs a statement with its parameters in the scope of the caller and returns its rows."""

MAX_CHANNEL_LIMIT = 200
# Notes bring their neighbours along and a vector search is expensive; 100 or 200 candidates find the same unless many
# results are asked for, and take 1.2 and 1.6 times as long (app/docs/recall.md, "Candidates").
CHANNEL_LIMIT = 50
GRAPH_LIMIT = 150
CARD_LIMIT = 3
LINK_LIMIT = 30
LINK_REACH = 1


class NearestFacts(msgspec.Struct, frozen=True):
    """The ids of the facts and cards nearest to a vector, the nearest first."""

    facts: list[str]
    cards: list[str]


class LinkedNotes(msgspec.Struct, frozen=True):
    """Notes that share rare names with the best ones, and those of them that are new."""

    links: list[NoteLink]
    found: list[Window] | None


_decode_windows = msgspec.json.Decoder(list[Window]).decode
_decode_links = msgspec.json.Decoder(LinkedNotes).decode
_decode_facts = msgspec.json.Decoder(list[FactRow]).decode


def channel_limit(results: int) -> int:
    """Return how many candidates each channel looks for when so many results are asked for."""
    return min(max(CHANNEL_LIMIT, results), MAX_CHANNEL_LIMIT)


def format_ids(ids: Iterable[str]) -> str:
    """Return ids as the text form of a PostgreSQL array; faster than the driver, since ids need no quotes."""
    return f"{{{','.join(ids)}}}"


class SharedQuery(msgspec.Struct, frozen=True, kw_only=True):
    """What to look for among the notes and facts that other projects share."""

    entity: str | None = None
    """Only facts about an entity of this name, in its normal form; and no notes."""
    predicate: str | None = None
    """Only facts with this predicate, as resolve_predicates takes it."""


class CandidateQuery(msgspec.Struct, frozen=True, kw_only=True):
    """What the channels look for."""

    tenant_id: str
    project_id: str
    model_id: int | None = None
    dimensions: int | None = None
    vector: str | None = None
    """The query's vector in text form."""
    scope: str | None = None
    valid_at: datetime | None = None
    as_of: datetime | None = None
    entity_id: str | None = None
    """Only what is about this entity."""
    predicate_ids: list[str] | None = None
    min_confidence: float = 0.0
    min_trust: float = 0.0
    include_contradicted: bool = True
    depth: int = 1
    """How many edges to follow from what was found."""
    max_results: int = 50
    shared: SharedQuery | None = None
    """Also what other projects share; None where the caller may not read that."""

    @property
    def channel_limit(self) -> int:
        """How many candidates each channel looks for."""
        return channel_limit(self.max_results)

    @property
    def is_present(self) -> bool:
        """Whether it asks for the present, not for a past time."""
        return self.as_of is None and self.valid_at is None

    def parameters(self) -> dict[str, Any]:
        """Return the parameters that all channels share."""
        return {
            "tenant": self.tenant_id,
            "project": self.project_id,
            "model": self.model_id,
            "dimensions": self.dimensions,
            "vector": self.vector,
            "scope": self.scope,
            "valid_at": self.valid_at,
            "as_of": self.as_of,
        }

    def fact_parameters(self) -> dict[str, Any]:
        """Return the parameters of the channels of facts."""
        return {
            **self.parameters(),
            "relations": self.predicate_ids,
            "min_confidence": self.min_confidence,
            "min_trust": self.min_trust,
            "contradicted": self.include_contradicted,
        }


class Channels:
    """The channels of one query, read in the scope of its caller."""

    def __init__(self, read: Read, query: CandidateQuery) -> None:
        self._read = read
        self._query = query

    async def find_notes(self, terms: WeightedTerms, *, among: list[str] | None = None) -> NoteCandidates:
        """Return the notes found by words and meaning; or only the notes in `among`."""
        params = {
            **self._query.parameters(),
            "terms": terms.terms,
            "near": self._query.channel_limit if among is None else 0,
            "wanted": format_ids(terms.hits if among is None else among),
            "reach": NEIGHBOUR_REACH,
        }
        if self._query.shared is None or among is not None:
            (row,) = await self._read(queries.FIND_NOTES, params)
            return NoteCandidates(terms, _decode_windows(row["found"]))
        (row,), shared = await asyncio.gather(
            self._read(queries.FIND_NOTES, params), self._read(queries.FIND_SHARED_NOTES, self._shared(terms))
        )
        # Their threads are not read: each is ranked like a note outside of threads.
        alone = [
            [msgspec.structs.replace(note, content_terms=None) for note in window]
            for window in _decode_windows(shared[0]["found"])
        ]
        return NoteCandidates(terms, _decode_windows(row["found"]) + alone)

    async def link_notes(self, notes: NoteCandidates, *, sources: list[str]) -> None:
        """Add notes that share rare names with these sources, and link them."""
        if not sources:
            return
        params = {
            **self._query.parameters(),
            "sources": format_ids(sources),
            "terms": notes.terms.terms,
            "total": notes.terms.total,
            "average": notes.terms.average,
            "seen": format_ids(notes.rows),
            "links": LINK_LIMIT,
            "reach": LINK_REACH,
        }
        (row,) = await self._read(queries.FIND_LINKED_NOTES, params)
        linked = _decode_links(row["found"])
        if linked.found is not None:
            notes.add(linked.found)
        notes.link(sources, linked.links)

    async def find_nearest_facts(self) -> NearestFacts:
        """Return the nearest facts and cards; none without a vector, or when an entity already selects the facts."""
        query = self._query
        if query.vector is None or query.entity_id is not None:
            return NearestFacts([], [])
        # Cards describe the present only.
        cards = CARD_LIMIT if query.is_present else 0
        params = {**query.fact_parameters(), "near": query.channel_limit, "cards": cards}
        (row,) = await self._read(queries.FIND_NEAREST_FACTS, params)
        return NearestFacts(**row)

    async def find_facts(self, terms: WeightedTerms, *, nearest: NearestFacts, notes: list[str]) -> FactCandidates:
        """Return the facts found by words, by meaning and along the graph, also from the entities of these notes."""
        query = self._query
        params = {
            **query.fact_parameters(),
            "terms": terms.terms,
            "idf": terms.idf,
            "average": terms.average,
            "lexical": format_ids(terms.hits),
            "near": format_ids(nearest.facts),
            "cards": format_ids(nearest.cards),
            "graph_limit": min(max(GRAPH_LIMIT, 2 * query.max_results), 2 * MAX_CHANNEL_LIMIT),
            "entity": query.entity_id,
            "depth": query.depth,
            "notes": format_ids(notes),
        }
        reads = [self._read(queries.FIND_FACTS, params)]
        if query.shared is not None:
            reads.append(self._read(queries.FIND_SHARED_FACTS, self._shared(terms)))
        found = [row for (row,) in await asyncio.gather(*reads) for row in _decode_facts(row["found"])]
        return FactCandidates(found, keep_unmatched=query.entity_id is not None)

    def _shared(self, terms: WeightedTerms) -> dict[str, Any]:
        query, shared = self._query, self._query.shared or SharedQuery()
        return {
            **query.fact_parameters(),
            "terms": terms.terms,
            "idf": terms.idf,
            "average": terms.average,
            "entity": shared.entity,
            "predicate": shared.predicate,
            "limit": query.channel_limit,
        }

    async def filter_facts(self, ids: list[str]) -> FactCandidates:
        """Return those of these facts that pass the filters of the query, whatever entity they are about."""
        if not ids:
            return FactCandidates([])
        query = msgspec.structs.replace(self._query, model_id=None, vector=None, entity_id=None, depth=0, shared=None)
        terms = WeightedTerms(terms=[], idf=[], total=0, average=1.0, hits=ids)
        found = await Channels(self._read, query).find_facts(terms, nearest=NearestFacts([], []), notes=[])
        return found.among(ids)

    async def read_vectors(self, ids: Iterable[str]) -> dict[str, Vector]:
        """Return the vectors of these notes and facts, by id."""
        params = {**self._query.parameters(), "ids": format_ids(ids)}
        (row,) = await self._read(queries.VECTORS, params)
        return decode_halfvecs(row["ids"], row["vectors"])
