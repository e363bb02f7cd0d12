"""Lexical scores: the terms of a query, what they weigh, and BM25 of notes with their neighbours."""

import math
import re
from collections import Counter
from collections.abc import Mapping, Sequence

import msgspec
import numpy as np

from app.retrieval.normalisation import Mask, Scores
from app.retrieval.threads import Thread

# The same constants as in the SQL function bm25_score.
K1, B = 0.9, 0.6
# Weight of a neighbour one step before or after; two steps away its square, and so on.
NEIGHBOUR_BEFORE, NEIGHBOUR_AFTER, NEIGHBOUR_REACH = 0.6, 0.5, 3
_TERM = re.compile(r"'((?:[^']|'')*)':([0-9A,]+)")


class TermStatistics(msgspec.Struct, frozen=True):
    """The terms of a query among the units of one kind, and the best units by them."""

    terms: list[str]
    documents: list[int]
    """How many units contain each term."""
    total: int
    average: float
    """The average length of a unit, in terms."""
    hits: list[str]


class WeightedTerms(msgspec.Struct, frozen=True):
    """The terms of a query with their inverse document frequencies, and the best units of one kind by them."""

    terms: list[str]
    idf: list[float]
    total: int
    average: float
    hits: list[str]


def parse_terms(text: str) -> dict[str, int]:
    """Return how often each term occurs in a document, from the text form of a tsvector."""
    return {term.replace("''", "'"): positions.count(",") + 1 for term, positions in _TERM.findall(text)}


def inverse_frequencies(documents: Sequence[int], total: int) -> list[float]:
    """Return the inverse document frequency of terms that so many of `total` documents contain."""
    return [math.log1p((total - count + 0.5) / (count + 0.5)) for count in documents]


def weigh_terms(found: Mapping[str, TermStatistics]) -> dict[str, WeightedTerms]:
    """Weigh terms over the units of all kinds together, so that scores of different kinds are comparable."""
    total = sum(statistics.total for statistics in found.values())
    documents: Counter[str] = Counter()
    for statistics in found.values():
        documents.update(dict(zip(statistics.terms, statistics.documents, strict=True)))
    return {
        kind: WeightedTerms(
            terms=statistics.terms,
            idf=inverse_frequencies([documents[term] for term in statistics.terms], total),
            total=statistics.total,
            average=statistics.average,
            hits=statistics.hits,
        )
        for kind, statistics in found.items()
    }


def bm25(counts: Scores, lengths: Scores, idf: Scores, average: float, thread: Thread, threaded: Mask) -> Scores:
    """Return BM25 of notes with their neighbours; `counts` has a row for each note and a column for each term."""

    def sum_around(values: Scores) -> Scores:
        return thread.sum(values, before=NEIGHBOUR_BEFORE, after=NEIGHBOUR_AFTER, reach=NEIGHBOUR_REACH)

    found, length = sum_around(counts), sum_around(lengths)
    window = 1 + sum(NEIGHBOUR_BEFORE**d + NEIGHBOUR_AFTER**d for d in range(1, NEIGHBOUR_REACH + 1))
    usual = np.where(threaded, average * window, average)
    norm = K1 * (1 - B + B * length / usual)
    return (idf[None, :] * found * (K1 + 1) / (found + norm[:, None])).sum(axis=1)
