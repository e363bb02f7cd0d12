"""What the channels find, with every candidate's score in every channel."""

import asyncio
import math
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any

import msgspec
import numpy as np

from app.access import Principal, require_project
from app.db.database import Database
from app.facts.as_of import look_back
from app.recall import queries
from app.recall.dependencies import listed, place
from app.recall.request import Asked
from app.retrieval import normalisation, threads
from app.retrieval.normalisation import Scores
from app.tenancy.settings import PipelineSettings, read_settings

# As many from each channel at the most. Notes bring their neighbours along, and vectors are dear: fewer of them find
# the same, unless many are wanted.
LIMIT = 200
FEW = 50
WALKED = 150
CARDS = 3
LINKED = 30
LINKED_REACH = 1
HOP_SOURCES = 2
# How many terms of a note its vector can tell of: models read its beginning (see embedding/texts.py).
WHOLE = 400
NOT_THREADED = math.inf

# Its id, length, what it tells (None outside of threads), terms and cosine.
NoteRow = tuple[str, int, int | None, str, float | None]
# A note that was found among its neighbours, in the order of their thread. They are told again in every window they
# stand in; the farthest without their cosine.
Window = list[NoteRow]
# Its id, BM25, cosine, graph score, hops, confidence, trust, when made, accesses, contradicted, preferred, derived, in
# quarantine.
FactRow = tuple[str, float, float | None, float | None, int, float, float, float, int, bool, bool, int, bool]
Link = tuple[str, str, float]


class WordsFound(msgspec.Struct, frozen=True):
    """A query's terms, how many units of a kind have each, and those that are best by them."""

    terms: list[str]
    documents: list[int]
    total: int
    average: float
    hits: list[str]


class Words(msgspec.Struct, frozen=True):
    """A query's terms with what they weigh, and the units of a kind that are best by them."""

    terms: list[str]
    idf: list[float]
    total: int
    average: float
    hits: list[str]


class NearFacts(msgspec.Struct, frozen=True):
    """Facts and cards by meaning, the nearest first."""

    facts: list[str]
    cards: list[str]


class LinksFound(msgspec.Struct, frozen=True):
    """Notes that share rare names with the best ones."""

    links: list[Link]
    found: list[Window] | None


_words = msgspec.json.Decoder(WordsFound)
_windows = msgspec.json.Decoder(list[Window])
_links = msgspec.json.Decoder(LinksFound)
_facts = msgspec.json.Decoder(list[FactRow])


def few(results: int) -> int:
    """How many to look for where they are dear to find: more where more are wanted."""
    return min(max(FEW, results), LIMIT)


class Sought(msgspec.Struct, frozen=True, kw_only=True):
    """What is looked for, as the channels ask for it."""

    model_id: int | None = None
    dimensions: int | None = None
    vector: str | None = None
    scope: str | None = None
    valid_at: datetime | None = None
    as_of: datetime | None = None
    entity: str | None = None
    relations: list[str] | None = None
    min_confidence: float = 0.0
    min_trust: float = 0.0
    contradicted: bool = True
    depth: int = 1
    results: int = 50

    @property
    def few(self) -> int:
        """How many of those that are dear to find."""
        return few(self.results)

    def parameters(self, who: Principal) -> dict[str, Any]:
        """For the statements of recall."""
        return {
            "tenant": who.tenant_id,
            "project": require_project(who),
            "model": self.model_id,
            "dimensions": self.dimensions,
            "vector": self.vector,
            "scope": self.scope,
            "valid_at": self.valid_at,
            "as_of": self.as_of,
            "reach": threads.LEXICAL_REACH,
        }

    def fact_parameters(self, who: Principal) -> dict[str, Any]:
        """The same with what facts are held against."""
        return {
            **self.parameters(who),
            "relations": self.relations,
            "min_confidence": self.min_confidence,
            "min_trust": self.min_trust,
            "contradicted": self.contradicted,
        }


class NoteCandidates:
    """Notes with their scores; those that are found later are added."""

    def __init__(self, words: Words, found: list[Window]) -> None:
        self.words = words
        self.rows: dict[str, NoteRow] = {}
        self._windows: list[Window] = []
        self._counts = np.zeros((0, len(words.terms)))
        self.add(found)

    @property
    def ids(self) -> list[str]:
        """In the order of all scores."""
        return list(self.rows)

    def add(self, found: list[Window]) -> None:
        """More notes, found by another way."""
        more: list[NoteRow] = []
        for window in found:
            for row in window:
                if (known := self.rows.get(row[0])) is None:
                    more.append(row)
                if known is None or known[4] is None:
                    self.rows[row[0]] = row
        self._windows += found
        self._counts = np.concatenate([self._counts, self._count(more)])
        self._score()

    def _count(self, rows: list[NoteRow]) -> Scores:
        """How often each of the query's terms stands in each of these."""
        terms = {term: index for index, term in enumerate(self.words.terms)}
        counts = np.zeros((len(rows), len(terms)))
        for index, row in enumerate(rows):
            # Most stand beside a hit and have none.
            if row[3]:
                for term, count in threads.read_terms(row[3]).items():
                    if term in terms:
                        counts[index, terms[term]] = count
        return counts

    def _score(self) -> None:
        rows = list(self.rows.values())
        places = {note: index for index, note in enumerate(self.rows)}
        thread = threads.Thread(len(rows))
        for window in self._windows:
            thread.link([places[row[0]] for row in window])
        idf = np.asarray(self.words.idf, dtype=np.float64)
        lengths = np.asarray([row[1] for row in rows], dtype=np.float64)
        threaded = np.asarray([row[2] is not None for row in rows], dtype=np.bool_)
        cosines = np.asarray([math.nan if row[4] is None else row[4] for row in rows], dtype=np.float64)
        self.telling = np.asarray([NOT_THREADED if row[2] is None else row[2] for row in rows], dtype=np.float64)
        self.lexical = threads.bm25(self._counts, lengths, idf, self.words.average, thread, threaded)
        self.cosine = threads.cosine(cosines, thread)


class FactCandidates:
    """Facts with their scores and what salience asks."""

    def __init__(self, rows: list[FactRow]) -> None:
        self.rows = rows
        self.ids = [row[0] for row in rows]
        self.lexical: Scores = np.asarray([row[1] for row in rows], dtype=np.float64)
        self.cosine: Scores = np.asarray([math.nan if row[2] is None else row[2] for row in rows], dtype=np.float64)
        self.graph: Scores = np.asarray([row[3] or 0.0 for row in rows], dtype=np.float64)

    def preferred(self, besides: frozenset[str]) -> "FactCandidates":
        """Without those that a better one contradicts, unless they are among these."""
        return FactCandidates([row for row in self.rows if row[10] or row[0] in besides])


class Decided(msgspec.Struct, frozen=True, kw_only=True):
    """What a project decides about recall."""

    judged: bool
    """Whether the trust in sources counts."""
    pipeline: PipelineSettings
    told_at: datetime
    """The database's clock when it was asked, which is the one that history goes by; and ours."""
    heard_at: float

    def now(self) -> datetime:
        """The database's time, as far as we know; rather a little early than late."""
        return self.told_at + timedelta(seconds=time.monotonic() - self.heard_at)


async def find_words(
    db: Database, who: Principal, asked: Asked, kinds: Sequence[str], *, limits: Mapping[str, int]
) -> tuple[dict[str, Words], Decided]:
    """The query's terms for each kind with the best units by them; and what the project decides."""
    here = {
        **place(who),
        "query": asked.query,
        "valid_at": asked.valid_at,
        "as_of": asked.as_of,
        "scope": asked.scope,
        "min_confidence": asked.ask.min_confidence,
        "min_trust": asked.min_trust,
        "contradicted": asked.ask.include_contradicted,
    }
    answers = await asyncio.gather(
        *(look_back(db, who, queries.RECALL_WORDS, {**here, "kind": kind, "limit": limits[kind]}) for kind in kinds)
    )
    rows = [row for (row,) in answers]
    found = _weigh({kind: _words.decode(row["found"]) for kind, row in zip(kinds, rows, strict=True)})
    decided = Decided(
        judged=any(row["judged"] for row in rows),
        pipeline=read_settings({"pipeline": rows[0]["pipeline"] or {}}),
        told_at=max(row["told_at"] for row in rows),
        heard_at=time.monotonic(),
    )
    return found, decided


def _weigh(found: dict[str, WordsFound]) -> dict[str, Words]:
    """What the terms weigh among the units of all kinds together: a word that few facts have says no more than one that
    few notes have, and their scores are compared."""
    total = sum(one.total for one in found.values())
    counts: Counter[str] = Counter()
    for one in found.values():
        counts.update(dict(zip(one.terms, one.documents, strict=True)))
    return {
        kind: Words(
            terms=one.terms,
            idf=threads.inverse_frequencies([counts[term] for term in one.terms], total),
            total=one.total,
            average=one.average,
            hits=one.hits,
        )
        for kind, one in found.items()
    }


async def find_notes(
    db: Database, who: Principal, sought: Sought, *, words: Words, wanted: list[str] | None
) -> NoteCandidates:
    """The notes the channels find; or only `wanted`, where they are given."""
    params = {
        **sought.parameters(who),
        "terms": words.terms,
        "near": sought.few if wanted is None else 0,
        "wanted": listed(words.hits if wanted is None else wanted),
    }
    (row,) = await look_back(db, who, queries.RECALL_NOTES, params)
    return NoteCandidates(words, _windows.decode(row["found"]))


async def find_linked(
    db: Database, who: Principal, sought: Sought, *, notes: NoteCandidates, sources: list[str]
) -> list[Link]:
    """Which notes share rare names with the sources; those that are new join the candidates."""
    if not sources:
        return []
    params = {
        **sought.parameters(who),
        "sources": listed(sources),
        "terms": notes.words.terms,
        "total": notes.words.total,
        "average": notes.words.average,
        "seen": listed(notes.rows),
        "links": LINKED,
        "reach": LINKED_REACH,
    }
    (row,) = await look_back(db, who, queries.RECALL_LINKED, params)
    answer = _links.decode(row["found"])
    if answer.found is not None:
        notes.add(answer.found)
    return answer.links


async def find_near_facts(db: Database, who: Principal, sought: Sought) -> NearFacts:
    """The facts and cards that are nearest by meaning; none without a vector, or where an entity says which."""
    if sought.vector is None or sought.entity is not None:
        return NearFacts([], [])
    # Cards tell of the present alone.
    cards = CARDS if sought.as_of is None and sought.valid_at is None else 0
    params = {**sought.fact_parameters(who), "near": sought.few, "cards": cards}
    (row,) = await look_back(db, who, queries.NEAR_FACTS, params)
    return NearFacts(**row)


async def find_facts(
    db: Database, who: Principal, sought: Sought, *, words: Words, near: NearFacts, notes: list[str]
) -> FactCandidates:
    """The facts the channels find, also from what these notes speak of."""
    params = {
        **sought.fact_parameters(who),
        "terms": words.terms,
        "idf": words.idf,
        "average": words.average,
        "lexical": listed(words.hits),
        "near": listed(near.facts),
        "cards": listed(near.cards),
        "walked": min(max(WALKED, 2 * sought.results), 2 * LIMIT),
        "entity": sought.entity,
        "depth": sought.depth,
        "notes": listed(notes),
    }
    (row,) = await look_back(db, who, queries.RECALL_FACTS, params)
    return FactCandidates(_facts.decode(row["found"]))


async def find_believed(db: Database, who: Principal, sought: Sought, *, ids: list[str]) -> FactCandidates:
    """Those of these facts that hold against all that is asked of facts, whoever they are about."""
    if not ids:
        return FactCandidates([])
    plain = msgspec.structs.replace(sought, model_id=None, vector=None, entity=None, depth=0)
    words = Words(terms=[], idf=[], total=0, average=1.0, hits=ids)
    found = await find_facts(db, who, plain, words=words, near=NearFacts([], []), notes=[])
    wanted = set(ids)
    return FactCandidates([row for row in found.rows if row[0] in wanted])


def normalise(
    notes: NoteCandidates | None, facts: FactCandidates | None, *, vector: bool
) -> dict[str, tuple[Scores, Scores]]:
    """Each channel's scores of notes and facts, made comparable over both."""
    none = np.zeros(0)
    first = len(notes.rows) if notes else 0

    def split(scores: Scores) -> tuple[Scores, Scores]:
        return scores[:first], scores[first:]

    lexical = normalisation.by_maximum(
        np.concatenate([notes.lexical if notes else none, facts.lexical if facts else none])
    )
    channels = {"lexical": split(lexical)}
    if vector:
        cosines = np.concatenate([notes.cosine if notes else none, facts.cosine if facts else none])
        partly = np.zeros(len(cosines), dtype=np.bool_)
        if notes:
            partly[:first] = [row[1] > WHOLE for row in notes.rows.values()]
        channels["vector"] = split(normalisation.of_cosines(cosines, lexical, partly))
    graph = np.concatenate([np.zeros(first), facts.graph if facts else none])
    channels["graph"] = split(normalisation.by_maximum(graph))
    return channels
