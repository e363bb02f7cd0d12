"""From candidates to one order: fusion, salience, trust, and what lends part of its score to others."""

import heapq
import math
from collections.abc import Mapping
from datetime import datetime
from typing import Literal

import msgspec
import numpy as np

from app.recall.candidates import FactCandidates, Link, NoteCandidates, normalise
from app.retrieval import normalisation, threads
from app.retrieval.normalisation import Scores
from app.retrieval.salience import salience, trust_multiplier

SECONDS_PER_DAY = 86_400.0


class Scored(msgspec.Struct, frozen=True, kw_only=True):
    """A candidate with its score, and how it came about."""

    kind: Literal["fact", "note"]
    id: str
    score: float
    hops: int = 0
    channels: dict[str, float]
    lexical_raw: float
    cosine: float | None
    graph_raw: float = 0.0
    raw_score: float
    salience: float = 1.0
    trust: float = 1.0


class Scorer:
    """One request's way of scoring."""

    def __init__(self, *, weights: Mapping[str, float], fusion: str, vector: bool, judged: bool, now: datetime) -> None:
        self._weights = dict(weights)
        self._fuse = normalisation.fuse_ranks if fusion == "rrf" else normalisation.fuse
        self._vector = vector
        self._judged = judged
        self._now = now.timestamp()

    def best_notes(self, notes: NoteCandidates, count: int) -> list[str]:
        """The best notes so far, for what goes on from them."""
        channels = normalise(notes, None, vector=self._vector)
        fused = self._fuse({name: pair[0] for name, pair in channels.items()}, self._weights)
        scores = threads.discount_silence(fused, notes.telling)
        best = heapq.nsmallest(count, zip((-scores).tolist(), notes.ids, strict=True))
        return [note for score, note in best if score < 0]

    def rank(
        self,
        notes: NoteCandidates | None,
        facts: FactCandidates | None,
        *,
        sources: list[str],
        links: list[Link],
        whole: bool = False,
        most: int | None = None,
    ) -> tuple[list[Scored], int]:
        """The candidates that fit at all, the best first, ties by id, no more than `most`; and how many there are.
        `whole` keeps every fact."""
        channels = normalise(notes, facts, vector=self._vector)
        # Both kinds at once: a rank is one among all.
        fused = self._fuse({name: np.concatenate(pair) for name, pair in channels.items()}, self._weights)
        first = len(notes.rows) if notes else 0
        parts: list[_Notes | _Facts] = []
        if notes is not None and notes.rows:
            mine = {name: pair[0] for name, pair in channels.items()}
            parts.append(self._score_notes(mine, fused[:first], notes, sources, links))
        if facts is not None and facts.rows:
            mine = {name: pair[1] for name, pair in channels.items()}
            parts.append(self._score_facts(mine, fused[first:], facts))
        order = sorted(
            (-score, candidate, part, index)
            for part, scored in enumerate(parts)
            for index, (candidate, score) in enumerate(zip(scored.ids, scored.scores, strict=True))
            if score > 0 or (whole and isinstance(scored, _Facts))
        )
        return [parts[part].explained(index) for _, _, part, index in order[:most]], len(order)

    def _score_notes(
        self,
        channels: dict[str, Scores],
        fused: Scores,
        notes: NoteCandidates,
        sources: list[str],
        links: list[Link],
    ) -> "_Notes":
        ids = notes.ids
        place = {note: index for index, note in enumerate(ids)}
        raw = threads.discount_silence(fused, notes.telling)
        final = raw
        for source in sources:
            strengths = np.zeros(len(ids))
            for origin, note, strength in links:
                if origin == source and note in place:
                    strengths[place[note]] = strength
            final = np.maximum(final, threads.pull(raw, place[source], strengths))
        return _Notes(channels, notes, raw, final)

    def _score_facts(self, channels: dict[str, Scores], raw: Scores, facts: FactCandidates) -> "_Facts":
        most = max(row[8] for row in facts.rows)
        worth = [
            salience(
                age_days=(self._now - row[7]) / SECONDS_PER_DAY,
                confidence=row[5],
                derived=row[11],
                accesses=row[8],
                most_accesses=most,
                contradicted=row[9],
                quarantined=row[12],
            )
            for row in facts.rows
        ]
        trust = [trust_multiplier(row[6], judged=self._judged) for row in facts.rows]
        return _Facts(channels, facts, raw, worth, trust)


# Hundreds of candidates are scored and a few of them shown: how a score came about is only put together for those.
class _Notes:
    def __init__(self, channels: dict[str, Scores], notes: NoteCandidates, raw: Scores, final: Scores) -> None:
        self.ids = notes.ids
        self.scores: list[float] = final.tolist()
        self._channels = channels
        self._notes = notes
        self._raw = raw

    def explained(self, index: int) -> Scored:
        cosine = float(self._notes.cosine[index])
        return Scored(
            kind="note",
            id=self.ids[index],
            score=self.scores[index],
            channels={name: float(scores[index]) for name, scores in self._channels.items()},
            lexical_raw=float(self._notes.lexical[index]),
            cosine=None if math.isnan(cosine) else cosine,
            raw_score=float(self._raw[index]),
        )


class _Facts:
    def __init__(
        self,
        channels: dict[str, Scores],
        facts: FactCandidates,
        raw: Scores,
        worth: list[float],
        trust: list[float],
    ) -> None:
        self.ids = facts.ids
        plain: list[float] = raw.tolist()
        self.scores = [score * w * t for score, w, t in zip(plain, worth, trust, strict=True)]
        self._channels = channels
        self._facts = facts
        self._raw = plain
        self._worth = worth
        self._trust = trust

    def explained(self, index: int) -> Scored:
        fact, lexical, cosine, graph, hops, *_ = self._facts.rows[index]
        return Scored(
            kind="fact",
            id=fact,
            score=self.scores[index],
            hops=hops,
            channels={name: float(scores[index]) for name, scores in self._channels.items()},
            lexical_raw=lexical,
            cosine=cosine,
            graph_raw=graph or 0.0,
            raw_score=self._raw[index],
            salience=self._worth[index],
            trust=self._trust[index],
        )
