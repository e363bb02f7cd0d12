"""The rules of timelines in plain Python, as a model to compare the database with."""

from dataclasses import dataclass, field
from datetime import UTC, datetime
from itertools import pairwise

FOREVER = datetime.max.replace(tzinfo=UTC)


@dataclass
class Belief:
    """One fact: what it says, from when to when, and everything that happened to it."""

    fact_id: str
    subject: str
    predicate: str
    object: str
    start: datetime
    end: datetime
    created: datetime
    retracted: datetime | None = None
    moves: list[tuple[datetime, datetime]] = field(default_factory=list)

    def end_known_at(self, moment: datetime) -> datetime:
        return next((before for recorded, before in self.moves if recorded > moment), self.end)


@dataclass
class Model:
    """All facts, which predicates are single-valued, and the links from each fact to what superseded it."""

    facts: list[Belief] = field(default_factory=list)
    single: set[str] = field(default_factory=set)
    links: set[tuple[str, str]] = field(default_factory=set)

    def live(self, subject: str, predicate: str) -> list[Belief]:
        found = [f for f in self.facts if (f.subject, f.predicate, f.retracted) == (subject, predicate, None)]
        return sorted(found, key=lambda f: (f.start, f.created, f.fact_id))

    def move(self, fact: Belief, end: datetime, now: datetime) -> None:
        if end != fact.end:
            fact.moves.append((now, fact.end))
            fact.end = end

    def write(self, new: Belief, *, timed: bool) -> tuple[str, str]:
        """Answers the fact that now says it, and whether it is new."""
        now, wanted = new.created, new.end
        line = self.live(new.subject, new.predicate)
        single = new.predicate in self.single
        mine = [f for f in line if f.object == new.object]
        later = [f for f in (line if single else mine) if f.start > new.start]
        new.end = min(wanted, later[0].start) if later else wanted
        same = next((f for f in mine if f.start <= new.start < f.end), None)
        if same is not None and timed:
            self.move(same, max(same.end, new.end), now)
        if same is None:
            for other in [f for f in line if single and f.start <= new.start < f.end]:
                self.links.add((other.fact_id, new.fact_id))
                if other.start == new.start:
                    other.retracted = now
                else:
                    self.move(other, new.start, now)
            if single and later and wanted > later[0].start:
                self.links.add((new.fact_id, later[0].fact_id))
            self.facts.append(new)
        if not single and timed:
            for fact, following in zip(later, [*(f.start for f in later[1:]), FOREVER], strict=False):
                self.move(fact, max(fact.end, min(wanted, following)), now)
        return (new.fact_id, "created") if same is None else (same.fact_id, "reused")

    def put_in_order(self, facts: list[Belief], now: datetime, *, single: bool) -> None:
        """Folds what says the same at the same time, and lets each value of one timeline end where the next starts."""
        ends = {f.fact_id: f.end for f in facts}
        held: Belief | None = None
        for fact in facts:
            if held is not None and fact.start < ends[held.fact_id]:
                if fact.object == held.object:
                    ends[held.fact_id] = max(ends[held.fact_id], fact.end)
                    fact.retracted = now
                    self.links.add((fact.fact_id, held.fact_id))
                    continue
                if single:
                    self.links.add((held.fact_id, fact.fact_id))
                    if held.start == fact.start:
                        held.retracted = now
                        ends[held.fact_id] = held.end
                    else:
                        ends[held.fact_id] = fact.start
            held = fact
        for fact in facts:
            if fact.retracted is None:
                self.move(fact, ends[fact.fact_id], now)

    def activate_single(self, predicate: str, now: datetime) -> None:
        self.single.add(predicate)
        for subject in {f.subject for f in self.facts if f.predicate == predicate}:
            self.put_in_order(self.live(subject, predicate), now, single=True)

    def overlaps(self, predicate: str) -> bool:
        lines = [self.live(subject, predicate) for subject in {f.subject for f in self.facts}]
        return any(a.end > b.start for line in lines for a, b in pairwise(line))

    def merge(self, source: str, target: str, now: datetime) -> None:
        for fact in self.facts:
            fact.subject = target if fact.subject == source else fact.subject
            fact.object = target if fact.object == source else fact.object
        for subject, predicate in {(f.subject, f.predicate) for f in self.facts}:
            line = self.live(subject, predicate)
            if predicate in self.single:
                self.put_in_order(line, now, single=True)
                continue
            for value in {f.object for f in line}:
                self.put_in_order([f for f in line if f.object == value], now, single=False)

    def state(self, valid_at: datetime, as_of: datetime) -> set[tuple[str, str, datetime, datetime]]:
        """What was believed at one time of another: fact, object, start, end."""
        return {
            (f.fact_id, f.object, f.start, f.end_known_at(as_of))
            for f in self.facts
            if f.created <= as_of
            and (f.retracted is None or f.retracted > as_of)
            and f.start <= valid_at < f.end_known_at(as_of)
        }
