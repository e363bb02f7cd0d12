"""A note is read in its context: what stands around it in its thread counts with it, the nearer the more."""

import math
import re
from collections.abc import Sequence
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from app.retrieval.normalisation import Scores

Places = NDArray[np.intp]
NONE = -1

K1, B = 0.9, 0.6
# What a neighbour counts, one step before or after; two steps that squared, and so on.
LEXICAL_BEFORE, LEXICAL_AFTER, LEXICAL_REACH = 0.6, 0.5, 3
VECTOR_DECAY, VECTOR_REACH = 0.4, 2
# How alike neighbours are taken to be. Their vectors need not be fetched for it: the exact lengths rank the same.
NEIGHBOURS_ALIKE = 0.3
# What a turn that says nothing loses of the best score, and how many terms it takes to say something.
SILENCE, SAYING = 0.2, 6.0
_TERM = re.compile(r"'((?:[^']|'')*)':([0-9A,]+)")


def read_terms(text: str) -> dict[str, int]:
    """How often each term stands in a document, as PostgreSQL prints its terms."""
    return {term.replace("''", "'"): places.count(",") + 1 for term, places in _TERM.findall(text)}


class Thread:
    """Who stands before and after whom, by their places in a list."""

    def __init__(self, count: int) -> None:
        self.before: Places = np.full(count, NONE, dtype=np.intp)
        self.after: Places = np.full(count, NONE, dtype=np.intp)

    def link(self, row: Sequence[int]) -> None:
        """Puts neighbours in a row."""
        for first, second in pairwise(row):
            self.after[first] = second
            self.before[second] = first

    def sum(self, values: Scores, *, before: float, after: float, reach: int) -> Scores:
        """Each value with those around it, each step away counting that much less."""
        total = values.copy()
        for steps, weight in ((self.before, before), (self.after, after)):
            place = steps
            for distance in range(1, reach + 1):
                there = place != NONE
                if not there.any():
                    break
                shape = there if values.ndim == 1 else there[:, None]
                total = total + np.where(shape, weight**distance * values[place], 0.0)
                place = np.where(there, steps[place], NONE)
        return total


def inverse_frequencies(documents: Sequence[int], total: int) -> list[float]:
    """What each term weighs, by how many of all documents have it."""
    return [math.log1p((total - count + 0.5) / (count + 0.5)) for count in documents]


def bm25(
    counts: Scores, lengths: Scores, idf: Scores, average: float, thread: Thread, threaded: NDArray[np.bool_]
) -> Scores:
    """BM25 of notes with what stands around them; `counts` has a row for each note and a column for each term."""
    found = thread.sum(counts, before=LEXICAL_BEFORE, after=LEXICAL_AFTER, reach=LEXICAL_REACH)
    length = thread.sum(lengths, before=LEXICAL_BEFORE, after=LEXICAL_AFTER, reach=LEXICAL_REACH)
    whole = 1 + sum(LEXICAL_BEFORE**d + LEXICAL_AFTER**d for d in range(1, LEXICAL_REACH + 1))
    usual = np.where(threaded, average * whole, average)
    norm = K1 * (1 - B + B * length / usual)
    return (idf[None, :] * found * (K1 + 1) / (found + norm[:, None])).sum(axis=1)


def cosine(cosines: Scores, thread: Thread) -> Scores:
    """The cosine of a query with notes and what stands around them; NaN where a note has no vector."""
    known = (~np.isnan(cosines)).astype(np.float64)

    def around(values: Scores, decay: float) -> Scores:
        return thread.sum(values, before=decay, after=decay, reach=VECTOR_REACH)

    total = around(np.where(np.isnan(cosines), 0.0, cosines), VECTOR_DECAY)
    weight, square = around(known, VECTOR_DECAY), around(known, VECTOR_DECAY**2)
    length = np.sqrt(square + NEIGHBOURS_ALIKE * (weight**2 - square))
    return np.where(known > 0, total / np.where(length > 0, length, 1.0), np.nan)


def discount_silence(scores: Scores, telling: Scores) -> Scores:
    """Turns that tell little (infinity: no turn) lose part of the best score: who only asks has no answer."""
    best = scores.max(initial=0.0)
    return np.maximum(scores - SILENCE * best * np.exp(-telling / SAYING), 0.0)


def pull(scores: Scores, source: int, strengths: Scores, *, share: float = 0.4) -> Scores:
    """What shares rare names with a hit is pulled towards it, never above it."""
    linked = strengths.copy()
    linked[source] = 0.0
    best = linked.max(initial=0.0)
    if best <= 0:
        return scores
    return scores + share * (linked / best) * np.maximum(scores[source] - scores, 0.0)
