"""From candidates to one order: fusion, salience, trust, and what lends part of its score to others."""

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
        scores = self._of_notes({name: pair[0] for name, pair in channels.items()}, notes)
        ids = notes.ids
        order = sorted(range(len(ids)), key=lambda index: (-scores[index], ids[index]))
        return [ids[index] for index in order[:count] if scores[index] > 0]

    def rank(
        self,
        notes: NoteCandidates | None,
        facts: FactCandidates | None,
        *,
        sources: list[str],
        links: list[Link],
        whole: bool = False,
    ) -> list[Scored]:
        """All candidates that fit at all, the best first; ties by id. `whole` keeps every fact."""
        channels = normalise(notes, facts, vector=self._vector)
        found: list[Scored] = []
        if notes is not None and notes.rows:
            mine = {name: pair[0] for name, pair in channels.items()}
            found += self._scored_notes(mine, notes, sources, links)
        if facts is not None and facts.rows:
            mine = {name: pair[1] for name, pair in channels.items()}
            found += self._scored_facts(mine, facts)
        kept = (one for one in found if one.score > 0 or (whole and one.kind == "fact"))
        return sorted(kept, key=lambda one: (-one.score, one.id))

    def _of_notes(self, channels: dict[str, Scores], notes: NoteCandidates) -> Scores:
        return threads.discount_silence(self._fuse(channels, self._weights), notes.telling)

    def _scored_notes(
        self, channels: dict[str, Scores], notes: NoteCandidates, sources: list[str], links: list[Link]
    ) -> list[Scored]:
        ids = notes.ids
        place = {note: index for index, note in enumerate(ids)}
        raw = self._of_notes(channels, notes)
        final = raw
        for source in sources:
            strengths = np.zeros(len(ids))
            for origin, note, strength in links:
                if origin == source and note in place:
                    strengths[place[note]] = strength
            final = np.maximum(final, threads.pull(raw, place[source], strengths))
        return [
            Scored(
                kind="note",
                id=note,
                score=float(final[index]),
                channels={name: float(scores[index]) for name, scores in channels.items()},
                lexical_raw=float(notes.lexical[index]),
                cosine=None if math.isnan(notes.cosine[index]) else float(notes.cosine[index]),
                raw_score=float(raw[index]),
            )
            for index, note in enumerate(ids)
        ]

    def _scored_facts(self, channels: dict[str, Scores], facts: FactCandidates) -> list[Scored]:
        raw = self._fuse(channels, self._weights)
        most = max(row[8] for row in facts.rows)
        found: list[Scored] = []
        for index, row in enumerate(facts.rows):
            fact, lexical, cosine, graph, hops, sure, trusted, made, accesses, contradicted, _, derived = row
            worth = salience(
                age_days=(self._now - made) / SECONDS_PER_DAY,
                confidence=sure,
                derived=derived,
                accesses=accesses,
                most_accesses=most,
                contradicted=contradicted,
            )
            trust = trust_multiplier(trusted, judged=self._judged)
            found.append(
                Scored(
                    kind="fact",
                    id=fact,
                    score=float(raw[index]) * worth * trust,
                    hops=hops,
                    channels={name: float(scores[index]) for name, scores in channels.items()},
                    lexical_raw=lexical,
                    cosine=cosine,
                    graph_raw=graph or 0.0,
                    raw_score=float(raw[index]),
                    salience=worth,
                    trust=trust,
                )
            )
        return found
