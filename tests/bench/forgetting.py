"""Benches of forgetting: tombstones and erasures at 100,000 notes, merges of 100,000 facts, retractions of 5,000."""

import statistics
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from hashlib import md5
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from uuid import UUID

import httpx
import psycopg
import uuid_utils

from tests.bench.archive import DRAFTS, FILL_NOTES, THREAD, TOPICS, Language
from tests.bench.measure import Figure
from tests.conftest import Tenancy, TestDatabase
from tests.service import spawn, start_service, stop

TENANT = "oblivion"
NOTES = 100_000
PEOPLE = 5_000
CLIENTS = 8
TOMBSTONES = 10
MERGED = 100_000
SHARED = 5_000
RETRACTED = 5_000
BATCH = 500
# Rounds of what takes seconds.
SLOW_ROUNDS = 3

Connection = psycopg.Connection[Any]

FILL_ENTITIES = """
    INSERT INTO graph_entities (tenant_id, entity_id, project_id, canonical, canonical_norm, created_at, updated_at)
    SELECT %(tenant)s, md5(name)::uuid, 'default', name, lower(name), now(), now()
    FROM unnest(%(names)s::text[]) name"""
FILL_PREDICATES = """
    INSERT INTO graph_predicates (tenant_id, predicate_id, scope_key, project_id, canonical, canonical_norm,
                                  cardinality, status, created_at, updated_at)
    SELECT %(tenant)s, md5('relation ' || i)::uuid, %(tenant)s || ':default', 'default', 'relation ' || i,
           'relation ' || i, 'multi', 'active', now(), now()
    FROM generate_series(0, 9) i"""
# As the service logs it; one note in fifty was changed since.
FILL_HISTORY = """
    INSERT INTO memory_history (tenant_id, history_id, project_id, note_id, agent_id, scope, event, version, changed_by,
                                old_content, new_content, created_at)
    SELECT n.tenant_id, make_id(), n.project_id, n.note_id, n.agent_id, n.scope, e.event, e.version, n.agent_id,
           CASE e.event WHEN 'updated' THEN n.content END, n.content, now()
    FROM memory_notes n CROSS JOIN LATERAL (VALUES ('created', 1), ('updated', 2)) e(event, version)
    WHERE n.tenant_id = %(tenant)s AND (e.version = 1 OR n.position = 7)"""
# Half of the facts are between two entities, with their edges.
FILL_FACTS = """
    INSERT INTO graph_facts (
        tenant_id, fact_id, project_id, agent_id, scope, owner_key, subject_entity_id, predicate, predicate_id,
        object_entity_id, object_value, object_hash, value_type, confidence, source_trust, fact_hash, hlc,
        single_valued, valid_from, created_at, updated_at, terms)
    SELECT %(tenant)s, make_id(), 'default', 'robin', 'project_shared', '', md5(u.subject)::uuid, u.predicate,
           md5(u.predicate)::uuid, CASE WHEN u.named THEN md5(u.object)::uuid END,
           CASE WHEN NOT u.named THEN u.object END,
           CASE WHEN u.named THEN sha256(uuid_send(md5(u.object)::uuid)) ELSE sha256(u.object::bytea) END,
           CASE WHEN u.named THEN 'entity' ELSE 'string' END, .9, .5, sha256((u.subject || u.place)::bytea),
           '1700000000000.000', false, now() - interval '1 day', now() - interval '1 day', now(),
           fact_terms('english', u.subject, u.predicate, u.object)
    FROM (
        SELECT s.subject, s.predicate, s.object, s.place, s.place %% 2 = 0 AS named
        FROM unnest(%(subjects)s::text[], %(predicates)s::text[], %(objects)s::text[])
            WITH ORDINALITY s(subject, predicate, object, place)
    ) u
    ON CONFLICT DO NOTHING;
    INSERT INTO entity_edges (
        tenant_id, edge_id, project_id, agent_id, scope, owner_key, subject_entity_id, predicate_id, object_entity_id,
        confidence, source_trust, valid_from, created_at)
    SELECT f.tenant_id, f.fact_id, f.project_id, f.agent_id, f.scope, f.owner_key, f.subject_entity_id, f.predicate_id,
           f.object_entity_id, f.confidence, f.source_trust, f.valid_from, f.created_at
    FROM graph_facts f
    WHERE f.tenant_id = %(tenant)s AND f.object_entity_id IS NOT NULL
      AND f.subject_entity_id IN (SELECT md5(u.name)::uuid FROM unnest(%(subjects)s::text[]) u(name))"""
# Each note mentions one person and is evidence of one fact about them.
FILL_MENTIONS = """
    INSERT INTO note_entity_mentions (tenant_id, project_id, note_id, entity_id, created_at)
    SELECT %(tenant)s, 'default', u.note, md5(u.name)::uuid, now()
    FROM unnest(%(notes)s::uuid[], %(names)s::text[]) u(note, name);
    INSERT INTO graph_fact_evidence (tenant_id, project_id, evidence_id, fact_id, note_id, created_at)
    SELECT %(tenant)s, 'default', make_id(), f.fact_id, u.note, now()
    FROM unnest(%(notes)s::uuid[], %(names)s::text[]) u(note, name)
    JOIN (SELECT DISTINCT ON (f.subject_entity_id) f.fact_id, f.subject_entity_id FROM graph_facts f
          WHERE f.tenant_id = %(tenant)s ORDER BY f.subject_entity_id, f.fact_id) f
        ON f.subject_entity_id = md5(u.name)::uuid"""
# The daily comparison of units and vectors has run: nothing here has a vector, so that no worker makes any meanwhile.
RECONCILED = """
    INSERT INTO jobs (tenant_id, job_id, project_id, kind, payload, dedupe_key, status, created_by, available_at,
                      created_at, finished_at)
    VALUES (%(tenant)s, md5('embed_reconcile ' || %(tenant)s || '/default')::uuid, 'default', 'embed_reconcile', '{}',
            'embed_reconcile', 'completed', 'schedule', now(), now(), now())"""
UNQUEUE = "DELETE FROM embedding_queue WHERE tenant_id = %(tenant)s"
TABLES = (
    "graph_entities, graph_predicates, graph_facts, entity_edges, graph_fact_evidence, memory_notes, memory_history, "
    "note_entity_mentions, fact_conflicts"
)

# What each figure is held against: the same rows by plain statements of the owner.
HIDE = """
    WITH notes AS (
        UPDATE memory_notes n SET suppression = n.suppression FROM note_entity_mentions m
        WHERE m.tenant_id = %(tenant)s AND m.entity_id = md5(%(name)s)::uuid AND n.tenant_id = %(tenant)s
          AND n.note_id = m.note_id)
    UPDATE graph_facts f SET suppression = f.suppression
    WHERE f.tenant_id = %(tenant)s AND md5(%(name)s)::uuid IN (f.subject_entity_id, f.object_entity_id)
      AND f.project_id = 'default'"""
READ_NOTES = """
    SELECT count(*) FROM memory_notes n WHERE n.tenant_id = %(tenant)s AND fold_name(n.content) ~ %(name)s"""
MOVE = """
    WITH edges AS (
        UPDATE entity_edges x SET subject_entity_id = md5(%(other)s)::uuid
        WHERE x.tenant_id = %(tenant)s AND x.project_id = 'default' AND x.subject_entity_id = md5(%(name)s)::uuid)
    UPDATE graph_facts f SET subject_entity_id = md5(%(other)s)::uuid
    WHERE f.tenant_id = %(tenant)s AND f.project_id = 'default' AND f.subject_entity_id = md5(%(name)s)::uuid"""
RETRACT = """
    UPDATE graph_facts f SET confidence = 0, retracted_at = now()
    WHERE f.tenant_id = %(tenant)s AND f.fact_id = ANY (%(facts)s::uuid[])"""


@dataclass
class Bench:
    """A tenant with people to forget, and clients of a running service with a worker."""

    connection: Connection
    agent: httpx.Client
    admin: Callable[[], httpx.Client]
    people: Iterator[str]

    def run(self, statement: str, **values: Any) -> float:
        """Run a statement and return how many seconds it took."""
        started = time.perf_counter()
        with psycopg.ClientCursor(self.connection) as cursor:
            cursor.execute(statement.encode(), {"tenant": TENANT, **values})
        return time.perf_counter() - started


def forgetting(database: TestDatabase, *, rounds: int) -> list[Figure]:
    """What administrators wait for, over HTTP and by the worker, beside plain statements for as many rows."""
    with _running(database) as bench:
        return [
            *_tombstones(bench, rounds=rounds),
            _erasure(bench, rounds=min(rounds, SLOW_ROUNDS)),
            _merge(bench, rounds=min(rounds, SLOW_ROUNDS)),
            _retraction(bench, rounds=min(rounds, SLOW_ROUNDS)),
        ]


@contextmanager
def _running(database: TestDatabase) -> Iterator[Bench]:
    tenancy = Tenancy(database)
    tenancy.tenant(TENANT)
    limits = {"read": 0, "write": 0, "admin": 0}
    agent = {"Authorization": f"Bearer {tenancy.key(TENANT, agent_id='robin', rate_limits=limits)}"}
    admin = {
        "Authorization": f"Bearer {tenancy.key(TENANT, kind='admin', rate_limits=limits)}",
        "X-Project-Id": "default",
    }
    language = Language(3)
    people = language.names(PEOPLE)
    with psycopg.connect(database.superuser, autocommit=True) as connection, TemporaryDirectory() as folder:
        _fill(connection, language, people)
        with start_service(database.url("app"), LOG_LEVEL="error") as service:
            options: dict[str, Any] = {"base_url": service.url, "timeout": 120, "verify": False}
            worker = spawn("worker", log=Path(folder) / "log", DATABASE_URL=database.url("app"), LOG_LEVEL="error")
            try:
                with httpx.Client(**options, headers=agent) as client:
                    yield Bench(connection, client, lambda: httpx.Client(**options, headers=admin), iter(people))
            finally:
                stop(worker)


def _fill(connection: Connection, language: Language, people: list[str]) -> None:
    """Notes in threads, a third of which mention a person, with their history, and six facts about each person."""
    notes = [str(uuid_utils.uuid7()) for _ in range(NOTES)]
    topics = language.chance.integers(0, TOPICS, NOTES // THREAD + 1).repeat(THREAD)[:NOTES]
    authors = language.names(40)
    began = datetime(2025, 1, 1, tzinfo=UTC)
    mentioned: dict[str, str] = {}
    connection.execute(DRAFTS.encode())
    with connection.cursor().copy("COPY drafts FROM STDIN") as copy:
        for place, said in enumerate(language.say(topics, shortest=8, longest=35)):
            if place % 3 == 0:
                mentioned[notes[place]] = people[place // 3 % PEOPLE]
                said.insert(len(said) // 2, mentioned[notes[place]])
            author, when = authors[place // THREAD % 20 + place % 2], began + timedelta(minutes=place)
            thread = f"thread {place // THREAD}"
            copy.write_row((TENANT, notes[place], f"{' '.join(said)}.", author, when, thread, place % THREAD))
    connection.execute(FILL_NOTES.encode())
    connection.execute("DROP TABLE drafts")
    place = {"tenant": TENANT}
    facts = range(6 * PEOPLE)
    with psycopg.ClientCursor(connection) as cursor:
        nodes = [f"node {number}" for number in range(1, MERGED + SHARED, 2)]
        cursor.execute(FILL_ENTITIES.encode(), {**place, "names": [*people, *nodes]})
        cursor.execute(FILL_PREDICATES.encode(), place)
        cursor.execute(FILL_HISTORY.encode(), place)
        cursor.execute(
            FILL_FACTS.encode(),
            {
                **place,
                "subjects": [people[number // 6] for number in facts],
                "predicates": [f"relation {number % 10}" for number in facts],
                "objects": [people[number * 7 % PEOPLE] if number % 2 else f"value {number}" for number in facts],
            },
        )
        cursor.execute(FILL_MENTIONS.encode(), {**place, "notes": list(mentioned), "names": list(mentioned.values())})
        cursor.execute(RECONCILED.encode(), place)
    connection.execute(f"VACUUM ANALYZE {TABLES}".encode())


def _hide(client: httpx.Client, name: str, **fields: Any) -> tuple[float, dict[str, Any]]:
    started = time.perf_counter()
    answer = client.post("/v1/tombstones", json={"entity": name, "reason": "bench", **fields})
    seconds = time.perf_counter() - started
    assert answer.status_code == 201, answer.text
    made: dict[str, Any] = answer.json()
    assert made["hidden"]["facts"] > 5, made
    assert made["hidden"]["notes"] > 5, made
    return seconds, made


def _tombstones(bench: Bench, *, rounds: int) -> list[Figure]:
    """One after the other, and eight at a time; a person each."""
    alone: list[float] = []
    floors: list[float] = []
    tails: list[float] = []
    with bench.admin() as client, ThreadPoolExecutor(CLIENTS) as pool:
        for number in range(rounds + 1):
            names = [next(bench.people) for _ in range(TOMBSTONES)]
            floor = statistics.median(bench.run(HIDE, name=name) for name in names)
            seconds = statistics.median(_hide(client, name)[0] for name in names)
            together = _together(bench, pool)
            if number:
                alone.append(seconds)
                floors.append(floor)
                tails.append(together)
    return [
        Figure(
            name=f"tombstone at {NOTES:,} notes, p50",
            value=statistics.median(alone) * 1e3,
            floor=statistics.median(floors) * 1e3,
            unit="ms a request",
        ),
        Figure(
            name=f"tombstone at {NOTES:,} notes, {CLIENTS} clients, p95",
            value=statistics.median(tails) * 1e3,
            floor=statistics.median(floors) * 1e3,
            unit="ms a request",
            target=500,
            kind="at most",
        ),
    ]


def _together(bench: Bench, pool: ThreadPoolExecutor) -> float:
    """The 95th percentile of what clients at once wait for."""
    starting = threading.Barrier(CLIENTS)
    shares = [[next(bench.people) for _ in range(TOMBSTONES)] for _ in range(CLIENTS)]

    def work(names: list[str]) -> list[float]:
        with bench.admin() as client:
            client.get("/health")
            starting.wait()
            return [_hide(client, name)[0] for name in names]

    waited = sorted(seconds for part in pool.map(work, shares) for seconds in part)
    return waited[int(len(waited) * 0.95)]


def _erasure(bench: Bench, *, rounds: int) -> Figure:
    """From the request to the receipt; beside one search of all notes for the name."""
    times: list[float] = []
    floors: list[float] = []
    with bench.admin() as client:
        for number in range(rounds + 1):
            name = next(bench.people)
            floor = bench.run(READ_NOTES, name=name.lower())
            started = time.perf_counter()
            _, made = _hide(client, name, erase=True)
            path = f"/v1/tombstones/{made['tombstone']['tombstone_id']}/receipt"
            while client.get(path).status_code != 200:
                time.sleep(0.05)
            if number:
                times.append(time.perf_counter() - started)
                floors.append(floor)
    return Figure(
        name=f"erasure at {NOTES:,} notes",
        value=statistics.median(times),
        floor=statistics.median(floors),
        unit="s from request to receipt",
    )


def _merge(bench: Bench, *, rounds: int) -> Figure:
    """From the request to the end of the job; beside moving the same facts and edges by an UPDATE."""
    times: list[float] = []
    floors: list[float] = []
    with bench.admin() as client:
        for number in range(rounds + 1):
            target, source, other = (f"{name} {number}" for name in ("target", "source", "other"))
            _fill_merge(bench, [target, source, other])
            started = time.perf_counter()
            answer = client.post(f"/v1/entities/{_id(source)}/merge", json={"into": _id(target)})
            assert answer.status_code == 202, answer.text
            path = f"/v1/jobs/{answer.json()['job_id']}"
            while (status := client.get(path).json()["status"]) in ("pending", "leased"):
                time.sleep(0.05)
            seconds = time.perf_counter() - started
            assert status == "completed", status
            bench.run(UNQUEUE)
            floor = bench.run(MOVE, name=target, other=other)
            if number:
                times.append(seconds)
                floors.append(floor)
    return Figure(
        name=f"merge of an entity with {MERGED:,} facts",
        value=statistics.median(times),
        floor=statistics.median(floors),
        unit="s from request to job's end",
        target=30,
        kind="at most",
    )


def _id(name: str) -> str:
    """The id that an entity was filled in with."""
    return str(UUID(md5(name.encode(), usedforsecurity=False).hexdigest()))


def _fill_merge(bench: Bench, names: list[str]) -> None:
    """An entity with many facts and one with a few, half of which the other has too."""
    bench.run(FILL_ENTITIES, names=names)
    for name, numbers in ((names[0], range(MERGED - SHARED // 2, MERGED + SHARED // 2)), (names[1], range(MERGED))):
        bench.run(
            FILL_FACTS,
            subjects=[name for _ in numbers],
            predicates=[f"relation {number % 10}" for number in numbers],
            objects=[f"node {number}" if number % 2 else f"value {number}" for number in numbers],
        )
    bench.connection.execute(f"VACUUM ANALYZE {TABLES}".encode())


def _retraction(bench: Bench, *, rounds: int) -> Figure:
    """Values that contradict each other, with their conflicts; beside marking as many facts by an UPDATE."""
    times: list[float] = []
    floors: list[float] = []
    for number in range(rounds + 1):
        for first in range(0, RETRACTED, BATCH):
            facts = [
                {"subject": f"ledger {number}", "predicate": "says", "object": {"value": f"entry {place}"}}
                for place in range(first, first + BATCH)
            ]
            bench.agent.post("/v1/facts/batch", json={"facts": facts}).raise_for_status()
        bench.connection.execute(f"VACUUM ANALYZE {TABLES}".encode())
        bench.run(UNQUEUE)
        started = time.perf_counter()
        answer = bench.agent.post("/v1/facts/retract", json={"subject": f"ledger {number}", "predicate": "says"})
        seconds = time.perf_counter() - started
        retracted = answer.json()["retracted"]
        assert len(retracted) == RETRACTED, answer.text
        floor = bench.run(RETRACT, facts=retracted)
        if number:
            times.append(seconds)
            floors.append(floor)
    return Figure(
        name=f"retraction of {RETRACTED:,} facts",
        value=statistics.median(times),
        floor=statistics.median(floors),
        unit="s a request",
        target=2,
        kind="at most",
    )
