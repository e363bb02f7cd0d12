"""What a walk must find, said once more in plain Python, to be held against the database."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any
from uuid import UUID

FOREVER = datetime.max.replace(tzinfo=UTC)


@dataclass(frozen=True)
class Edge:
    """One fact between two entities, with all that ever happened to it."""

    edge_id: UUID
    subject: UUID
    relation: UUID
    target: UUID
    scope: str
    trust: float
    confidence: float
    valid_from: datetime
    valid_to: datetime
    created: datetime
    retracted: tuple[datetime, float] | None = None
    """When it was taken back, and how sure it was before."""
    ends: Sequence[tuple[datetime, datetime]] = ()
    """When its end was moved, and where it was before; the first one first."""
    weights: Sequence[tuple[datetime, float]] = ()

    def end_at(self, known: datetime) -> datetime:
        return next((before for recorded, before in self.ends if recorded > known), self.valid_to)

    def confidence_at(self, known: datetime) -> float:
        weighed = next((before for recorded, before in self.weights if recorded > known), None)
        if weighed is not None:
            return weighed
        return self.retracted[1] if self.retracted and self.retracted[0] > known else self.confidence

    def believed_at(self, known: datetime, valid: datetime) -> bool:
        taken_back = self.retracted is not None and self.retracted[0] <= known
        return self.created <= known and not taken_back and self.valid_from <= valid < self.end_at(known)


@dataclass(frozen=True)
class Asked:
    """From where, how far, over what, at which two times, and with which bounds."""

    seeds: Sequence[UUID]
    depth: int
    scope: str
    direction: str
    relations: Sequence[UUID] | None
    confidence: float
    trust: float
    effective: float
    valid: datetime
    known: datetime
    fans: Sequence[int]
    cap: int

    def sides(self, edge: Edge) -> Iterable[tuple[UUID, UUID]]:
        """From where to where the edge can be walked."""
        if self.direction != "in":
            yield edge.subject, edge.target
        if self.direction != "out":
            yield edge.target, edge.subject

    def allows(self, edge: Edge) -> bool:
        return (
            edge.scope == self.scope
            and edge.subject != edge.target
            and edge.trust >= self.trust
            and (self.relations is None or edge.relation in self.relations)
            and edge.believed_at(self.known, self.valid)
            and edge.confidence_at(self.known) >= self.confidence
            and edge.confidence_at(self.known) * edge.trust >= self.effective
        )


@dataclass
class Found:
    """Who was reached: hops, confidence of the last edge, and the edges of the path."""

    reached: dict[UUID, tuple[int, float, tuple[UUID, ...]]] = field(default_factory=dict)
    truncated: bool = False


def walk(edges: Sequence[Edge], asked: Asked) -> Found:
    """Breadth first, one level after the other."""
    around: dict[UUID, list[tuple[float, UUID, UUID]]] = {}
    for edge in edges:
        if asked.allows(edge):
            for here, there in asked.sides(edge):
                around.setdefault(here, []).append((edge.confidence_at(asked.known), edge.edge_id, there))
    found = Found()
    front: dict[UUID, tuple[UUID, ...]] = dict.fromkeys(asked.seeds, ())
    for level in range(1, asked.depth + 1):
        room = asked.cap - len(found.reached)
        if room == 0:
            found.truncated = True
            break
        offers: dict[UUID, list[tuple[Any, ...]]] = {}
        for here, path in front.items():
            ways = sorted(around.get(here, []), key=lambda way: (way[0], way[1].int), reverse=True)
            found.truncated |= len(ways) > asked.fans[level - 1]
            for sure, edge_id, there in ways[: asked.fans[level - 1]]:
                if there not in found.reached and there not in asked.seeds:
                    offers.setdefault(there, []).append((-sure, here.int, -edge_id.int, (*path, edge_id)))
        best = sorted((min(ways), there) for there, ways in offers.items())
        best.sort(key=lambda offer: (offer[0][0], offer[1].int))
        found.truncated |= len(best) > room
        front = {there: way[3] for way, there in best[:room]}
        found.reached |= {there: (level, -way[0], way[3]) for way, there in best[:room]}
        if not front:
            break
    return found
