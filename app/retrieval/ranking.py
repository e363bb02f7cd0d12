"""Ranking: candidates of all kinds in one order, by fused channels, salience and trust."""

import heapq
import math
from collections.abc import Mapping, Sequence
from typing import Literal

import msgspec
import numpy as np

from app.retrieval.candidates import Adjusted, CandidateSet, Kind, NoteCandidates, RankingContext
from app.retrieval.normalisation import Scores, by_maximum, fuse, fuse_ranks, normalise_cosines

Fusion = Literal["weighted_sum", "rrf"]


class ScoredCandidate(msgspec.Struct, frozen=True, kw_only=True):
    """A candidate with its final score and the parts of it."""

    kind: Kind
    id: str
    score: float
    hops: int = 0
    channels: dict[str, float]
    """The normalised score of each channel."""
    lexical_raw: float
    cosine: float | None
    graph_raw: float = 0.0
    raw_score: float
    salience: float = 1.0
    trust: float = 1.0


class Ranker:
    """Ranks the candidates of one request."""

    def __init__(
        self, *, weights: Mapping[str, float], fusion: Fusion, use_vector: bool, context: RankingContext
    ) -> None:
        self._weights = dict(weights)
        self._fuse = fuse_ranks if fusion == "rrf" else fuse
        self._use_vector = use_vector
        self._context = context

    def best_notes(self, notes: NoteCandidates, count: int) -> list[str]:
        """Return the ids of the best notes found so far."""
        scores = notes.penalise(self._fuse(self._normalise([notes]), self._weights))
        best = heapq.nsmallest(count, zip((-scores).tolist(), notes.ids, strict=True))
        return [note for score, note in best if score < 0]

    def rank(
        self, candidates: Sequence[CandidateSet], *, limit: int | None = None
    ) -> tuple[list[ScoredCandidate], int]:
        """Return the first `limit` candidates by score, ties by id, and how many there are without the limit."""
        # All kinds at once, since with rrf a rank is one among all candidates.
        channels = self._normalise(candidates)
        fused = self._fuse(channels, self._weights)
        parts: list[_ScoredSet] = []
        start = 0
        for candidate_set in candidates:
            end = start + len(candidate_set.lexical)
            adjusted = candidate_set.adjust(fused[start:end], self._context)
            parts.append(_ScoredSet(candidate_set, adjusted, channels, start))
            start = end
        order = sorted(
            (-score, candidate, part, index)
            for part, scored in enumerate(parts)
            for index, (candidate, score) in enumerate(zip(scored.ids, scored.final, strict=True))
            if score > 0 or scored.keep_unmatched
        )
        return [parts[part].explain(index) for _, _, part, index in order[:limit]], len(order)

    def _normalise(self, candidates: Sequence[CandidateSet]) -> dict[str, Scores]:
        """Return the normalised scores of each channel, over the candidates of all kinds in order."""
        lexical = by_maximum(np.concatenate([one.lexical for one in candidates]))
        channels = {"lexical": lexical}
        if self._use_vector:
            cosines = np.concatenate([one.cosine for one in candidates])
            partial = np.concatenate([one.partial for one in candidates])
            channels["vector"] = normalise_cosines(cosines, lexical, partial)
        channels["graph"] = by_maximum(np.concatenate([one.graph for one in candidates]))
        return channels


class _ScoredSet:
    """Builds the explanation of a score for the few candidates that are returned, of the hundreds scored."""

    def __init__(self, candidates: CandidateSet, adjusted: Adjusted, channels: dict[str, Scores], start: int) -> None:
        self.ids = candidates.ids
        self.final = adjusted.final
        self.keep_unmatched = candidates.keep_unmatched
        self._candidates = candidates
        self._adjusted = adjusted
        self._channels = channels
        self._start = start

    def explain(self, index: int) -> ScoredCandidate:
        candidates, adjusted = self._candidates, self._adjusted
        cosine = float(candidates.cosine[index])
        return ScoredCandidate(
            kind=candidates.kind,
            id=self.ids[index],
            score=self.final[index],
            hops=0 if candidates.hops is None else candidates.hops[index],
            channels={name: float(scores[self._start + index]) for name, scores in self._channels.items()},
            lexical_raw=float(candidates.lexical[index]),
            cosine=None if math.isnan(cosine) else cosine,
            graph_raw=float(candidates.graph[index]),
            raw_score=adjusted.raw[index],
            salience=1.0 if adjusted.salience is None else adjusted.salience[index],
            trust=1.0 if adjusted.trust is None else adjusted.trust[index],
        )
