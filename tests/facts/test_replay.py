"""A thousand random writes: a read at a past time must return what the live query returned then."""

import asyncio
import random
from bisect import bisect_right
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

import msgspec
import psycopg
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from app.access import AGENT_SCOPES, Principal
from app.db.database import Database
from app.errors import Conflict
from app.facts import queries, reads, retractions, writes
from app.facts.predicates import service as predicates
from app.facts.schemas import (
    FactBatch,
    FactCreate,
    FactPatch,
    FactRead,
    FactRetract,
    FactsRetract,
    PredicateCreate,
)
from app.notes import service as notes
from app.notes.schemas import NoteCreate
from app.paging import CursorSigner, Page
from app.read_context import ReadContext
from tests.conftest import TestDatabase
from tests.long import ALL_HEALTH_CHECKS, sized

WRITES = sized(300, 1000)
SEED = 24
# Far from now on either side, so that nothing begins or ends while the test runs.
YEARS = [datetime(number, 1, 1, tzinfo=UTC) for number in (1990, 1995, 2000, 2005, 2010, 2015, 2100, 2150, 2200)]
SUBJECTS = [f"subject {number}" for number in range(8)]
PLACES = [f"place {number}" for number in range(4)]
WORDS = ["red", "green", "blue", "grey"]
SINGLE, MULTI, PENDING, CLAIMED = "lives in", "likes", "colour", "knows"
# By name: whether its objects are entities.
OBJECTS = {SINGLE: True, MULTI: False, PENDING: False, CLAIMED: True}


@dataclass
class Told:
    """What was answered at a moment after a write and before the next one."""

    moment: datetime
    answer: list[dict[str, Any]]


@dataclass
class Chronicle:
    """One project, the writes that were made in it, and what was answered in between."""

    db: Database
    loop: asyncio.Runner
    clock: psycopg.Connection[Any]
    chance: random.Random
    who: Principal
    told: list[Told] = field(default_factory=list)
    made: list[datetime] = field(default_factory=list)
    """When each fact was made, in order."""
    notes: list[UUID] = field(default_factory=list)
    done: dict[str, int] = field(default_factory=dict)

    def now(self) -> datetime:
        row = self.clock.execute("SELECT clock_timestamp()").fetchone()
        assert row is not None
        return row[0]

    def facts(self, *, as_of: datetime | None = None, valid_at: datetime | None = None, **filters: Any) -> list[Any]:
        page = Page(CursorSigner(b"secret"), self.who, "facts", limit=100_000, cursor=None)
        context = ReadContext.of(self.who, valid_at=valid_at, as_of=as_of)
        work = reads.list_facts(self.db, context, filters=reads.FactFilters(**filters), page=page)
        return self.loop.run(work).facts

    def begin(self) -> None:
        for name, cardinality in ((SINGLE, "single"), (MULTI, "multi")):
            data = msgspec.convert({"name": name, "cardinality": cardinality, "status": "active"}, PredicateCreate)
            self.loop.run(self.create_predicate(data))
        for number in range(5):
            self.notes.append(self.loop.run(self.note(f"note {number}")))

    async def note(self, content: str) -> UUID:
        async with self.db.tenant(self.who) as session:
            made = await notes.create_note(session, self.who, data=NoteCreate(content=content))
        return made.value.note.note_id

    async def create_predicate(self, data: PredicateCreate) -> None:
        async with self.db.tenant(self.who) as session:
            await predicates.create_predicate(session, self.who, data=data)

    def step(self) -> None:
        """One write of any kind, and what a live query then says."""
        kinds = {self.write: 6, self.write_batch: 2, self.retract: 2, self.retract_place: 1, self.end: 3}
        while True:
            (kind,) = self.chance.choices(list(kinds), weights=list(kinds.values()))
            if kind():
                break
        self.done[kind.__name__] = self.done.get(kind.__name__, 0) + 1
        moment = self.now()
        self.told.append(Told(moment, shown(self.facts())))

    def draft(self) -> dict[str, Any]:
        name = self.chance.choice(list(OBJECTS))
        number = self.chance.randrange(len(PLACES))
        start = self.chance.choice([None, None, *YEARS])
        later = [end for end in YEARS if end > (start or datetime.now(UTC))]
        end = self.chance.choice([None, None, *later])
        return {
            "subject": self.chance.choice(SUBJECTS),
            "predicate": name,
            "object": {"entity": PLACES[number]} if OBJECTS[name] else {"value": WORDS[number]},
            "confidence": self.chance.choice([1.0, 0.75, 0.5]),
            "valid_from": start,
            "valid_to": end,
            "evidence": self.chance.sample(self.notes, self.chance.choice([0, 0, 1])),
        }

    def remember(self, results: list[dict[str, Any]]) -> None:
        self.made += [datetime.fromisoformat(r["fact"]["created_at"]) for r in results if r["outcome"] == "created"]

    def write(self) -> bool:
        data = msgspec.convert(self.draft(), FactCreate)
        outcome = self.loop.run(writes.write_fact(self.db, self.who, data=data))
        self.remember([msgspec.to_builtins(outcome.value)])
        return True

    def write_batch(self) -> bool:
        data = FactBatch(facts=[self.draft() for _ in range(self.chance.randint(2, 4))])
        outcome = self.loop.run(writes.write_facts(self.db, self.who, data=data))
        self.remember(msgspec.to_builtins(outcome.value)["results"])
        return True

    def live(self) -> list[FactRead]:
        return [found for found in self.facts(include_inactive=True) if found.retracted_at is None]

    def retract(self) -> bool:
        if not (found := self.live()):
            return False
        fact_id = self.chance.choice(found).fact_id
        self.loop.run(retractions.retract_fact(self.db, self.who, fact_id=fact_id, data=FactRetract()))
        return True

    def retract_place(self) -> bool:
        data = FactsRetract(subject=self.chance.choice(SUBJECTS), predicate=self.chance.choice(list(OBJECTS)))
        return bool(self.loop.run(retractions.retract_facts(self.db, self.who, data=data)).retracted)

    def end(self) -> bool:
        """Moves an end, where the timeline has room for it."""
        if not (found := self.live()):
            return False
        fact = self.chance.choice(found)
        end = self.chance.choice([None, *(year for year in YEARS if year > fact.valid_from)])
        try:
            work = retractions.patch_fact(self.db, self.who, fact_id=fact.fact_id, data=FactPatch(valid_to=end))
            return self.loop.run(work).fact.closed_at != fact.closed_at
        except Conflict as problem:
            if problem.code != "timeline_occupied":
                raise
            return False


def shown(facts: list[FactRead]) -> list[dict[str, Any]]:
    """Facts as they go out."""
    return [msgspec.to_builtins(fact) for fact in facts]


@pytest.fixture(scope="module")
def chronicle(database: TestDatabase) -> Iterator[Chronicle]:
    """Hundreds of writes with what was answered after each."""
    with psycopg.connect(database.superuser, autocommit=True) as clock, asyncio.Runner() as loop:
        clock.execute(f"ALTER DATABASE {database.name} SET synchronous_commit = off".encode())
        who = Principal(
            tenant_id="replay",
            project_id="replay",
            agent_id="robin",
            key_id="00000000-0000-7000-8000-000000000024",
            kind="agent",
            scopes=frozenset({*AGENT_SCOPES, "predicates:admin"}),
        )
        db = Database(database.app, pool_size=2)
        loop.run(db.open())
        told = Chronicle(db, loop, clock, random.Random(SEED), who)
        told.begin()
        for _ in range(WRITES):
            told.step()
        yield told
        loop.run(db.close())


@pytest.mark.slow
def test_the_past_answers_as_it_answered_then(chronicle: Chronicle) -> None:
    """With both times of each of these moments, exactly what a live query said at that moment."""
    assert len(chronicle.told) == WRITES
    assert set(chronicle.done) == {"write", "write_batch", "retract", "retract_place", "end"}
    for number, told in enumerate(chronicle.told):
        again = shown(chronicle.facts(as_of=told.moment, valid_at=told.moment))
        assert again == told.answer, f"after write {number}"


@pytest.mark.slow
def test_without_a_valid_at_the_time_of_knowing_is_meant(chronicle: Chronicle) -> None:
    for told in chronicle.told[:: WRITES // 50]:
        assert shown(chronicle.facts(as_of=told.moment)) == told.answer


@pytest.mark.slow
def test_edges_answer_for_the_past_by_themselves(chronicle: Chronicle) -> None:
    """What walks along edges asks them the same questions: they say which there were, how long and how sure."""
    for told in chronicle.told[:: WRITES // 50]:
        context = ReadContext.of(chronicle.who, valid_at=told.moment, as_of=told.moment)
        when = queries.FactFilter(context, key="edge_id")
        statement = (
            f"SELECT x.edge_id, nullif({when.ends('x')}, 'infinity') AS ends, {when.confidence('x')} AS sure "
            f"FROM entity_edges x WHERE {' AND '.join(when.conditions('x'))}"
        )
        rows = chronicle.loop.run(chronicle.db.query(chronicle.who, statement, when.params))
        found = {(str(row["edge_id"]), row["ends"], row["sure"]) for row in rows}
        facts = chronicle.facts(as_of=told.moment, valid_at=told.moment)
        assert found == {
            (str(fact.fact_id), fact.valid_to, fact.confidence)
            for fact in facts
            if fact.object.entity is not msgspec.UNSET
        }


@pytest.mark.slow
def test_each_answer_differs_from_the_last_often_enough_to_mean_something(chronicle: Chronicle) -> None:
    changes = sum(a.answer != b.answer for a, b in zip(chronicle.told, chronicle.told[1:], strict=False))
    assert changes > WRITES // 2
    assert max(len(told.answer) for told in chronicle.told) > 30
    ended = [fact for told in chronicle.told for fact in told.answer if fact["valid_to"] is not None]
    assert {fact["predicate"]["name"] for fact in ended} == set(OBJECTS)


def known(chronicle: Chronicle, moment: datetime) -> list[UUID]:
    return [fact.fact_id for fact in chronicle.facts(as_of=moment, include_inactive=True)]


@pytest.mark.slow
def test_what_was_known_only_grows(chronicle: Chronicle) -> None:
    """Before retraction and expiry: the facts of an earlier moment are among those of a later one."""
    first, last = chronicle.made[0], chronicle.told[-1].moment
    moments = st.one_of(
        st.sampled_from([told.moment for told in chronicle.told]),
        st.sampled_from(chronicle.made).flatmap(
            lambda moment: st.sampled_from([moment, moment - timedelta(microseconds=1)])
        ),
        st.datetimes(
            min_value=first.replace(tzinfo=None) - timedelta(seconds=1),
            max_value=last.replace(tzinfo=None),
            timezones=st.just(UTC),
        ),
    )

    @settings(
        max_examples=sized(50, 150),
        deadline=None,
        database=None,
        derandomize=True,
        suppress_health_check=ALL_HEALTH_CHECKS,
    )
    @given(st.tuples(moments, moments).map(sorted))
    def grows(pair: list[datetime]) -> None:
        earlier, later = (known(chronicle, moment) for moment in pair)
        assert set(earlier) <= set(later)
        assert [len(earlier), len(later)] == [bisect_right(chronicle.made, moment) for moment in pair]

    grows()
