"""Random writes, retractions, activations and merges against a model: the database keeps exactly its timelines.

`make test-long` takes more steps; PALIMPSEST_MODEL_STEPS=200000 says how many.
"""

import asyncio
import os
import random
from collections.abc import Awaitable, Callable, Iterator
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

import msgspec
import psycopg
import pytest
from hypothesis import Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from app.access import AGENT_SCOPES, Principal
from app.db.database import Database, Session
from app.errors import Conflict
from app.facts import queries, reads, retractions, writes
from app.facts.entities import service as entities
from app.facts.predicates import service as predicates
from app.facts.schemas import (
    EntityMerge,
    FactBatch,
    FactCreate,
    FactPatch,
    FactRetract,
    FactsRetract,
    PredicateCreate,
    PredicatePatch,
)
from app.outcomes import Outcome
from app.paging import CursorSigner, Page
from app.read_context import ReadContext
from tests.conftest import TestDatabase
from tests.facts.timeline_model import FOREVER, Belief, Model
from tests.long import ALL_HEALTH_CHECKS, sized

STEPS = int(os.environ.get("PALIMPSEST_MODEL_STEPS", sized(600, 10_000)))
STEPS_A_RUN = 40
POINTS = 20

START = datetime(2000, 1, 1, tzinfo=UTC)
MOMENTS = [START + timedelta(days=1000 * number) for number in range(12)]
SUBJECTS = ("ann", "ben", "cleo")
PLACES = ("oslo", "rome", "york")
WORDS = ("red", "green", "blue")
# Names tell what they start as; the last two are decided upon in the course of a run.
SINGLE, MULTI, PENDING, DECIDED = "lives_in", "likes", "colour", "works_in"
PREDICATES = (SINGLE, MULTI, PENDING, DECIDED)

moments = st.none() | st.sampled_from(MOMENTS)
wishes = st.tuples(
    st.sampled_from(SUBJECTS), st.sampled_from(PREDICATES), st.integers(min_value=0, max_value=2), moments, moments
)


class World:
    """What every run shares: the database, one event loop, and a count of steps."""

    db: Database
    loop: asyncio.Runner
    runs = 0
    steps = 0


class Timelines(RuleBasedStateMachine):
    """One project of its own for each run."""

    @initialize()
    def begin(self) -> None:
        World.runs += 1
        self.model = Model()
        self.who = Principal(
            tenant_id="model",
            project_id=f"run-{World.runs}",
            agent_id="robin",
            key_id="00000000-0000-7000-8000-000000000001",
            kind="agent",
            scopes=frozenset({*AGENT_SCOPES, "predicates:admin"}),
        )
        self.random = random.Random(World.runs)
        self.moments: list[datetime | None] = []
        self.ids: dict[str, str] = {}
        self.names: dict[str, str] = {name: name for name in (*SUBJECTS, *PLACES)}
        for name, cardinality in ((SINGLE, "single"), (MULTI, "multi")):
            data = msgspec.convert({"name": name, "cardinality": cardinality, "status": "active"}, PredicateCreate)
            self.run(self.commit(lambda session, data=data: predicates.create_predicate(session, self.who, data=data)))
        self.model.single.add(SINGLE)

    def run(self, work: Any) -> Any:
        return World.loop.run(work)

    async def commit(self, work: Callable[[Session], Awaitable[Outcome[Any]]]) -> Any:
        """Runs a use case in a transaction of its own."""
        async with World.db.tenant(self.who) as session:
            return (await work(session)).value

    def write_one(self, item: dict[str, Any], result: dict[str, Any], now: datetime) -> None:
        """Tells the model what the database was told, and compares what each made of it."""
        fact = result["fact"]
        target = item["object"].get("entity") or item["object"]["value"]
        self.ids.setdefault(item["subject"], fact["subject"]["entity_id"])
        if "entity" in item["object"]:
            self.ids.setdefault(target, fact["object"]["entity"]["entity_id"])
        created = result["outcome"] == "created"
        new = Belief(
            fact_id=fact["fact_id"] if created else "unexpected",
            subject=self.names[item["subject"]],
            predicate=item["predicate"],
            object=str(self.names.get(target, target)),
            start=item["valid_from"] or now,
            end=item["valid_to"] or FOREVER,
            created=now,
        )
        timed = item["valid_from"] is not None or item["valid_to"] is not None
        assert self.model.write(new, timed=timed) == (fact["fact_id"], result["outcome"])
        self.moments.append(now)

    @rule(wish=wishes)
    def write_alone(self, wish: tuple[str, str, int, datetime | None, datetime | None]) -> None:
        self.write([wish])

    @rule(start=st.sampled_from(MOMENTS), end=moments, subject=st.sampled_from(SUBJECTS), number=st.integers(0, 2))
    def write_into_a_timeline(self, start: datetime, end: datetime | None, subject: str, number: int) -> None:
        self.write([(subject, SINGLE, number, start, end)])

    @rule(batch=st.lists(wishes, min_size=1, max_size=5))
    def write_batch(self, batch: list[tuple[str, str, int, datetime | None, datetime | None]]) -> None:
        self.write(batch)

    def write(self, batch: list[tuple[str, str, int, datetime | None, datetime | None]]) -> None:
        items: list[dict[str, Any]] = []
        for subject, predicate, number, valid_from, valid_to in batch:
            if valid_to is not None and valid_to <= (valid_from or datetime.now(UTC)):
                valid_to = None
            target = {"value": WORDS[number]} if predicate == PENDING else {"entity": PLACES[number]}
            item = {"subject": subject, "predicate": predicate, "object": target, "valid_from": valid_from}
            items.append({**item, "valid_to": valid_to})
        if len(items) == 1:
            data = msgspec.convert(items[0], FactCreate)
            outcome = self.run(writes.write_fact(World.db, self.who, data=data))
            results = [msgspec.to_builtins(outcome.value)]
        else:
            # A batch is as the same facts in a row, a microsecond apart.
            batch_data = FactBatch(facts=items)
            outcome = self.run(writes.write_facts(World.db, self.who, data=batch_data))
            results = msgspec.to_builtins(outcome.value)["results"]
        last = self.run(self.touched(results[-1]["fact"]["fact_id"]))
        for number, (item, result) in enumerate(zip(items, results, strict=True)):
            self.write_one(item, result, last - timedelta(microseconds=len(items) - 1 - number))

    async def touched(self, fact_id: str) -> datetime:
        """When a fact was last changed: for the last one of a batch that is its own moment."""
        statement = "SELECT updated_at FROM graph_facts WHERE tenant_id = 'model' AND fact_id = %(fact)s"
        rows = await World.db.query(self.who, statement, {"fact": fact_id})
        return rows[0]["updated_at"]

    @precondition(lambda self: self.model.facts)
    @rule(data=st.data())
    def retract(self, data: st.DataObject) -> None:
        fact = data.draw(st.sampled_from(self.model.facts))
        work = retractions.retract_fact(World.db, self.who, fact_id=UUID(fact.fact_id), data=FactRetract())
        if fact.retracted is not None:
            with pytest.raises(Conflict):
                self.run(work)
            return
        fact.retracted = self.run(work).fact.retracted_at
        self.moments.append(fact.retracted)

    @precondition(lambda self: self.model.facts)
    @rule(subject=st.sampled_from(SUBJECTS), predicate=st.sampled_from(PREDICATES))
    def retract_all(self, subject: str, predicate: str) -> None:
        data = FactsRetract(subject=subject, predicate=predicate)
        retracted = self.run(retractions.retract_facts(World.db, self.who, data=data)).retracted
        live = self.model.live(self.names[subject], predicate)
        assert {str(fact_id) for fact_id in retracted} == {fact.fact_id for fact in live}
        for fact in live:
            fact.retracted = self.read(fact.fact_id).retracted_at
            self.moments.append(fact.retracted)

    @precondition(lambda self: any(f.retracted is None for f in self.model.facts))
    @rule(data=st.data(), end=moments)
    def end(self, data: st.DataObject, end: datetime | None) -> None:
        fact = data.draw(st.sampled_from([f for f in self.model.facts if f.retracted is None]))
        if end is not None and end <= fact.start:
            return
        line = self.model.live(fact.subject, fact.predicate)
        single = fact.predicate in self.model.single
        later = [f.start for f in line if f.start > fact.start and (single or f.object == fact.object)]
        work = retractions.patch_fact(World.db, self.who, fact_id=UUID(fact.fact_id), data=FactPatch(valid_to=end))
        if later and (end or FOREVER) > later[0]:
            with pytest.raises(Conflict):
                self.run(work)
            return
        now = self.run(work).fact.closed_at
        self.model.move(fact, end or FOREVER, now)

    def undecided(self) -> list[str]:
        return sorted({f.predicate for f in self.model.facts} & {DECIDED, PENDING} - self.model.single)

    @precondition(lambda self: len(self.model.facts) > 10 and self.undecided())
    @rule(resolve=st.booleans(), data=st.data())
    def activate(self, resolve: bool, data: st.DataObject) -> None:
        predicate = data.draw(st.sampled_from(self.undecided()))
        found = self.run(self.predicate_named(predicate))
        body = PredicatePatch(status="active", cardinality="single", resolve="latest" if resolve else None)
        work = predicates.patch_predicate(World.db, self.who, predicate_id=found["predicate_id"], data=body)
        if self.model.overlaps(predicate) and not resolve:
            with pytest.raises(Conflict):
                self.run(work)
            return
        self.model.activate_single(predicate, self.run(work).predicate.updated_at)

    async def predicate_named(self, name: str) -> Any:
        statement = (
            "SELECT predicate_id, status FROM graph_predicates "
            "WHERE tenant_id = 'model' AND project_id = %(project)s AND canonical = %(name)s"
        )
        rows = await World.db.query(self.who, statement, {"project": self.who.project_id, "name": name})
        return rows[0] if rows else None

    def mergeable(self) -> list[tuple[str, str]]:
        met = [
            [name for name in names if name in self.ids and self.names[name] == name] for names in (SUBJECTS, PLACES)
        ]
        return [(a, b) for names in met for a in names for b in names if a != b]

    @precondition(lambda self: len(self.model.facts) > 15 and self.mergeable())
    @rule(data=st.data())
    def merge(self, data: st.DataObject) -> None:
        pair = data.draw(st.sampled_from(self.mergeable()))
        source, target = (self.names[name] for name in pair)
        body = EntityMerge(source=UUID(self.ids[source]))
        entity_id = UUID(self.ids[target])
        work = self.commit(lambda session: entities.merge_entity(session, self.who, entity_id=entity_id, data=body))
        self.model.merge(source, target, self.run(work).entity.updated_at)
        self.names = {name: target if meant == source else meant for name, meant in self.names.items()}

    def read(self, fact_id: str) -> Any:
        return self.run(reads.get_fact(World.db, ReadContext.of(self.who), fact_id=UUID(fact_id)))

    @invariant()
    def agrees(self) -> None:
        if not hasattr(self, "model"):
            return
        World.steps += 1
        now = datetime.now(UTC)
        assert self.listed() == {row[0] for row in self.model.state(now, now)}, "what is valid now"
        known = [*self.moments, now]
        around = (timedelta(0), timedelta(microseconds=1), -timedelta(microseconds=1))
        points = [
            (
                self.random.choice([*MOMENTS, now]) + self.random.choice(around),
                self.random.choice(known) + self.random.choice(around),
            )
            for _ in range(POINTS)
        ]
        points = [(valid_at, min(as_of, now)) for valid_at, as_of in points]
        states, links, rows = self.run(self.observe(points))
        for number, (valid_at, as_of) in enumerate(points):
            assert states.get(number, set()) == self.told(valid_at, as_of), (valid_at, as_of)
        assert links == self.model.links
        facts = self.model.facts
        assert {row["fact_id"] for row in rows if row["retracted"]} == {f.fact_id for f in facts if f.retracted}
        opened = {f.fact_id for f in facts if f.retracted is None and f.end == FOREVER}
        assert {row["fact_id"] for row in rows if row["open"]} == opened

    def listed(self) -> set[str]:
        page = Page(CursorSigner(b"secret"), self.who, "facts", limit=200, cursor=None)
        work = reads.list_facts(World.db, ReadContext.of(self.who), filters=reads.FactFilters(), page=page)
        return {str(fact.fact_id) for fact in self.run(work).facts}

    def told(self, valid_at: datetime, as_of: datetime) -> set[tuple[str, datetime, datetime]]:
        return {(fact_id, start, end) for fact_id, _, start, end in self.model.state(valid_at, as_of)}

    async def observe(self, points: list[tuple[datetime, datetime]]) -> tuple[dict[int, set[Any]], set[Any], Any]:
        """The product's own conditions at all points at once, the links, and what is open or retracted."""
        when = queries.FactFilter(ReadContext.of(self.who))
        when.known_at, when.valid_at = "point.as_of", "point.valid_at"
        statement = (
            f"SELECT point.number, f.fact_id, f.valid_from, nullif({when.ends()}, 'infinity') AS ends "
            "FROM unnest(%(numbers)s::int[], %(valid)s::timestamptz[], %(known)s::timestamptz[]) "
            "AS point(number, valid_at, as_of) CROSS JOIN graph_facts f "
            f"WHERE {' AND '.join(when.conditions())}"
        )
        params = {
            **when.params,
            "numbers": list(range(len(points))),
            "valid": [valid_at for valid_at, _ in points],
            "known": [as_of for _, as_of in points],
        }
        states: dict[int, set[Any]] = {}
        for row in await World.db.query(self.who, statement, params):
            seen = (str(row["fact_id"]), row["valid_from"], row["ends"] or FOREVER)
            states.setdefault(row["number"], set()).add(seen)
        statement = (
            "SELECT from_fact_id, to_fact_id FROM graph_fact_supersessions "
            "WHERE tenant_id = %(tenant)s AND project_id = %(project)s"
        )
        rows = await World.db.query(self.who, statement, when.params)
        links = {(str(row["from_fact_id"]), str(row["to_fact_id"])) for row in rows}
        statement = (
            "SELECT fact_id::text, retracted_at IS NOT NULL AS retracted, "
            "valid_to IS NULL AND retracted_at IS NULL AS open FROM graph_facts "
            "WHERE tenant_id = %(tenant)s AND project_id = %(project)s"
        )
        return states, links, await World.db.query(self.who, statement, when.params)


@pytest.fixture
def world(database: TestDatabase) -> Iterator[None]:
    with psycopg.connect(database.superuser, autocommit=True) as connection:
        connection.execute(f"ALTER DATABASE {database.name} SET synchronous_commit = off".encode())
    with asyncio.Runner() as loop:
        World.loop = loop
        World.db = Database(database.app, pool_size=2)
        loop.run(World.db.open())
        yield
        loop.run(World.db.close())


@pytest.mark.slow
def test_the_database_keeps_the_timelines_of_the_model(world: None) -> None:
    Timelines.TestCase.settings = settings(
        max_examples=STEPS * 5 // (4 * STEPS_A_RUN) + 1,
        stateful_step_count=STEPS_A_RUN,
        deadline=None,
        database=None,
        derandomize=STEPS <= 2000,
        suppress_health_check=ALL_HEALTH_CHECKS,
        # Finding the smallest failing run would take far longer than the runs.
        phases=(Phase.generate,),
    )
    Timelines.TestCase("runTest").runTest()
    assert World.steps >= STEPS
