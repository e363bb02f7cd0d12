"""Candidates: what the channels find, with named fields and a score in every channel."""

import math
from collections.abc import Iterable
from datetime import datetime
from typing import Literal, Protocol

import msgspec
import numpy as np

from app.retrieval import lexical, threads
from app.retrieval.lexical import WeightedTerms
from app.retrieval.normalisation import Mask, Scores
from app.retrieval.salience import salience, trust_multiplier

Kind = Literal["fact", "note"]

SECONDS_PER_DAY = 86_400.0
# A vector covers about this many terms of a note: models read only the beginning of a long text.
EMBEDDED_TERMS = 400
NOT_A_TURN = math.inf


class NoteRow(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """A note as SQL returns it, a JSON array in this order."""

    note_id: str
    length: int
    """In terms."""
    content_terms: int | None
    """How many terms carry content; None for a note outside of threads."""
    terms: str
    """The query's terms in it, as a tsvector in text form."""
    cosine: float | None


Window = list[NoteRow]
"""A found note among its neighbours in thread order; the farthest of them come without a cosine."""


class FactRow(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """A fact as SQL returns it, a JSON array in this order."""

    fact_id: str
    lexical: float
    cosine: float | None
    graph: float | None
    hops: int
    confidence: float
    trust: float
    created_at: float
    """In seconds since 1970."""
    accesses: int
    contradicted: bool
    preferred: bool
    """Whether no better fact contradicts it."""
    derivation_depth: int
    quarantined: bool


class NoteLink(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """A note that shares rare names with one of the best notes."""

    source_id: str
    note_id: str
    strength: float


class RankingContext(msgspec.Struct, frozen=True, kw_only=True):
    """What adjusts scores regardless of the query."""

    now: datetime
    use_trust: bool


class Adjusted(msgspec.Struct, frozen=True, kw_only=True):
    """The scores of a set of candidates: fused, and final."""

    raw: list[float]
    final: list[float]
    salience: list[float] | None = None
    trust: list[float] | None = None


class CandidateSet(Protocol):
    """Candidates of one kind, with an entry for each of them in every list."""

    kind: Kind
    lexical: Scores
    cosine: Scores
    """NaN where there is no vector."""
    graph: Scores
    partial: Mask
    """Whether the vector covers only the beginning."""
    hops: list[int] | None
    keep_unmatched: bool
    """Whether a candidate without any score is still a result."""

    @property
    def ids(self) -> list[str]: ...

    def adjust(self, fused: Scores, context: RankingContext) -> Adjusted:
        """Return the final scores, from the fused ones."""
        ...


def _cosines(values: Iterable[float | None]) -> Scores:
    return np.asarray([math.nan if value is None else value for value in values], dtype=np.float64)


class NoteCandidates:
    """Notes scored together with their neighbours; notes found later can be added."""

    kind: Kind = "note"
    hops: list[int] | None = None
    keep_unmatched = False

    def __init__(self, terms: WeightedTerms, found: list[Window]) -> None:
        self.terms = terms
        self.rows: dict[str, NoteRow] = {}
        self._windows: list[Window] = []
        self._counts = np.zeros((0, len(terms.terms)))
        self._sources: list[str] = []
        self._links: list[NoteLink] = []
        self.add(found)

    @property
    def ids(self) -> list[str]:
        """The ids of all notes, in the order of all scores."""
        return list(self.rows)

    def add(self, found: list[Window]) -> None:
        """Add notes and compute all scores again."""
        new: list[NoteRow] = []
        for window in found:
            for row in window:
                known = self.rows.get(row.note_id)
                if known is None:
                    new.append(row)
                if known is None or known.cosine is None:
                    self.rows[row.note_id] = row
        self._windows += found
        self._counts = np.concatenate([self._counts, self._count_terms(new)])
        self._score()

    def link(self, sources: list[str], links: list[NoteLink]) -> None:
        """Let notes that share rare names with these sources gain part of their scores."""
        self._sources, self._links = sources, links

    def adjust(self, fused: Scores, context: RankingContext) -> Adjusted:
        """Penalise turns without content, then pull linked notes towards their sources."""
        raw = final = self.penalise(fused)
        index_of = {note: index for index, note in enumerate(self.rows)}
        for source in self._sources:
            strengths = np.zeros(len(index_of))
            for link in self._links:
                if link.source_id == source and link.note_id in index_of:
                    strengths[index_of[link.note_id]] = link.strength
            final = np.maximum(final, threads.pull_linked(raw, index_of[source], strengths))
        return Adjusted(raw=raw.tolist(), final=final.tolist())

    def penalise(self, fused: Scores) -> Scores:
        """Lower the scores of turns with little content."""
        return threads.penalise_low_content(fused, self._content_terms)

    def _count_terms(self, rows: list[NoteRow]) -> Scores:
        columns = {term: index for index, term in enumerate(self.terms.terms)}
        counts = np.zeros((len(rows), len(columns)))
        for index, row in enumerate(rows):
            # Most rows are neighbours of a hit and contain none of the terms.
            if row.terms:
                for term, count in lexical.parse_terms(row.terms).items():
                    if term in columns:
                        counts[index, columns[term]] = count
        return counts

    def _score(self) -> None:
        rows = list(self.rows.values())
        index_of = {note: index for index, note in enumerate(self.rows)}
        thread = threads.Thread(len(rows))
        for window in self._windows:
            thread.link([index_of[row.note_id] for row in window])
        idf = np.asarray(self.terms.idf, dtype=np.float64)
        lengths = np.asarray([row.length for row in rows], dtype=np.float64)
        threaded = np.asarray([row.content_terms is not None for row in rows], dtype=np.bool_)
        self._content_terms: Scores = np.asarray(
            [NOT_A_TURN if row.content_terms is None else row.content_terms for row in rows], dtype=np.float64
        )
        self.lexical = lexical.bm25(self._counts, lengths, idf, self.terms.average, thread, threaded)
        self.cosine = threads.smooth_cosines(_cosines(row.cosine for row in rows), thread)
        self.graph: Scores = np.zeros(len(rows))
        self.partial: Mask = lengths > EMBEDDED_TERMS


class FactCandidates:
    """Facts with the scores of the channels and what salience needs."""

    kind: Kind = "fact"

    def __init__(self, rows: list[FactRow], *, keep_unmatched: bool = False) -> None:
        self.rows = rows
        self.ids = [row.fact_id for row in rows]
        self.keep_unmatched = keep_unmatched
        self.hops: list[int] | None = [row.hops for row in rows]
        self.lexical: Scores = np.asarray([row.lexical for row in rows], dtype=np.float64)
        self.cosine = _cosines(row.cosine for row in rows)
        self.graph: Scores = np.asarray([row.graph or 0.0 for row in rows], dtype=np.float64)
        self.partial: Mask = np.zeros(len(rows), dtype=np.bool_)

    def preferred(self, *, besides: frozenset[str] = frozenset()) -> "FactCandidates":
        """Return the facts that no better fact contradicts, and those in `besides`."""
        rows = [row for row in self.rows if row.preferred or row.fact_id in besides]
        return FactCandidates(rows, keep_unmatched=self.keep_unmatched)

    def among(self, ids: Iterable[str]) -> "FactCandidates":
        """Return the facts with these ids."""
        wanted = set(ids)
        return FactCandidates([row for row in self.rows if row.fact_id in wanted], keep_unmatched=self.keep_unmatched)

    def adjust(self, fused: Scores, context: RankingContext) -> Adjusted:
        """Multiply by salience and by the trust in the source."""
        now = context.now.timestamp()
        most_accesses = max((row.accesses for row in self.rows), default=0)
        weights = [
            salience(
                age_days=(now - row.created_at) / SECONDS_PER_DAY,
                confidence=row.confidence,
                derivation_depth=row.derivation_depth,
                accesses=row.accesses,
                most_accesses=most_accesses,
                contradicted=row.contradicted,
                quarantined=row.quarantined,
            )
            for row in self.rows
        ]
        trust = [trust_multiplier(row.trust, use_trust=context.use_trust) for row in self.rows]
        raw: list[float] = fused.tolist()
        final = [score * weight * multiplier for score, weight, multiplier in zip(raw, weights, trust, strict=True)]
        return Adjusted(raw=raw, final=final, salience=weights, trust=trust)
