"""Benches of facts: writing one by one and in batches beside plain inserts, and reading beside a long history."""

import hashlib
import json
import statistics
import time
from collections.abc import Callable
from typing import Any
from uuid import uuid4

import httpx
import psycopg
import uuid_utils

from tests.bench.measure import Figure
from tests.conftest import Tenancy, TestDatabase
from tests.service import start_service

BATCH = 500
SINGLES = 200
PLACES = 400
SUBJECTS = 1000
CLOSED = 1_000_000

# What the batch path writes, written by hand: no names resolved, nothing compared, nothing answered.
INSERT_ENTITIES = """
    INSERT INTO graph_entities (tenant_id, entity_id, project_id, canonical, canonical_norm, created_at, updated_at)
    SELECT %(tenant)s, u.id, 'default', u.name, u.name, now(), now()
    FROM unnest(%(ids)s::uuid[], %(names)s::text[]) u(id, name)"""
INSERT_FACTS = """
    INSERT INTO graph_facts (
        tenant_id, fact_id, project_id, agent_id, scope, owner_key, subject_entity_id, predicate, predicate_id,
        object_entity_id, object_value, object_hash, value_type, confidence, source_trust, fact_hash, hlc,
        single_valued, valid_from, created_at, updated_at)
    SELECT %(tenant)s, u.id, 'default', 'robin', 'project_shared', '', u.subject, 'likes', u.predicate, u.object,
           u.value, u.hash, CASE WHEN u.value IS NULL THEN 'entity' ELSE 'string' END, 1, .5, u.hash,
           '1700000000000.000', false, now(), now(), now()
    FROM unnest(%(ids)s::uuid[], %(subjects)s::uuid[], %(predicates)s::uuid[], %(objects)s::uuid[], %(values)s::text[],
                %(hashes)s::bytea[]) u(id, subject, predicate, object, value, hash)"""
INSERT_EDGES = """
    INSERT INTO entity_edges (
        tenant_id, edge_id, project_id, agent_id, scope, owner_key, subject_entity_id, predicate_id, object_entity_id,
        confidence, source_trust, valid_from, created_at)
    SELECT %(tenant)s, u.id, 'default', 'robin', 'project_shared', '', u.subject, u.predicate, u.object, 1, .5, now(),
           now()
    FROM unnest(%(ids)s::uuid[], %(subjects)s::uuid[], %(predicates)s::uuid[], %(objects)s::uuid[])
        u(id, subject, predicate, object)
    WHERE u.object IS NOT NULL"""


def write_rates(database: TestDatabase, *, rounds: int) -> list[Figure]:
    """Facts a second: single POSTs and batches of 500 through the service, the same rows by plain inserts."""
    tenancy = Tenancy(database)
    tenancy.tenant("writes")
    key = tenancy.key("writes", agent_id="robin", rate_limits={"write": 0})
    rates: dict[str, list[float]] = {"single": [], "batch": [], "floor": []}
    with (
        start_service(database.url("app"), LOG_LEVEL="warning") as service,
        httpx.Client(
            base_url=service.url, headers={"Authorization": f"Bearer {key}"}, timeout=60, verify=False
        ) as client,
        psycopg.connect(database.superuser, prepare_threshold=0) as plain,
    ):
        predicates = {
            name: client.post("/v1/predicates", json={"name": name}).json()["predicate"]["predicate_id"]
            for name in ("likes", "says")
        }
        places = _places(client)
        actions: dict[str, tuple[int, Callable[[], float]]] = {
            "floor": (BATCH, lambda: _plain(plain, predicates, places)),
            "batch": (BATCH, lambda: _batch(client)),
            "single": (SINGLES, lambda: _singles(client)),
        }
        for number in range(2 * rounds + 2):
            if number == 2:
                # What autovacuum does within its first minutes: plans made on empty tables are no measure.
                plain.execute("ANALYZE graph_facts, graph_entities, graph_predicates, entity_edges")
                plain.commit()
            for name, (count, action) in actions.items():
                seconds = action()
                if number > 1:
                    rates[name].append(count / seconds)
    medians = {name: statistics.median(values) for name, values in rates.items()}
    return [
        Figure(name="facts by single POST, one client", value=medians["single"], unit="facts/s"),
        Figure(
            name=f"facts by batches of {BATCH}, one client",
            value=medians["batch"],
            floor=medians["floor"],
            unit="facts/s",
            target=1 / 3,
            kind="ratio at least",
        ),
    ]


def _places(client: httpx.Client) -> dict[str, str]:
    facts = [{"subject": "Atlas", "predicate": "shows", "object": {"entity": f"place {i}"}} for i in range(PLACES)]
    results = client.post("/v1/facts/batch", json={"facts": facts}).json()["results"]
    found = [result["fact"]["object"]["entity"] for result in results]
    return {entity["canonical"]: entity["entity_id"] for entity in found}


def _wishes(count: int) -> list[dict[str, Any]]:
    """New subjects, each with a place it likes and something it says."""
    mark = uuid4().hex[:12]
    facts: list[dict[str, Any]] = []
    for number in range(count // 2):
        subject = f"person {mark} {number}"
        facts.append({"subject": subject, "predicate": "likes", "object": {"entity": f"place {number * 7 % PLACES}"}})
        facts.append({"subject": subject, "predicate": "says", "object": {"value": f"hello {number}"}})
    return facts


def _batch(client: httpx.Client) -> float:
    body = json.dumps({"facts": _wishes(BATCH)})
    started = time.perf_counter()
    answer = client.post("/v1/facts/batch", content=body, headers={"content-type": "application/json"})
    seconds = time.perf_counter() - started
    assert answer.status_code == 200, answer.text
    return seconds


def _singles(client: httpx.Client) -> float:
    wishes = _wishes(SINGLES)
    started = time.perf_counter()
    for wish in wishes:
        assert client.post("/v1/facts", json=wish).status_code == 201
    return time.perf_counter() - started


def _plain(connection: psycopg.Connection[Any], predicates: dict[str, str], places: dict[str, str]) -> float:
    rows: dict[str, list[Any]] = {name: [] for name in ("ids", "subjects", "predicates", "objects", "values", "hashes")}
    people: dict[str, str] = {}
    for wish in _wishes(BATCH):
        subject = people.setdefault(wish["subject"], str(uuid_utils.uuid7()))
        target = wish["object"]
        place = places[target["entity"]] if "entity" in target else None
        row = (
            str(uuid_utils.uuid7()), subject, predicates[wish["predicate"]], place, target.get("value"),
            hashlib.sha256(str(target).encode()).digest(),
        )  # fmt: skip
        for column, value in zip(rows.values(), row, strict=True):
            column.append(value)
    started = time.perf_counter()
    names = {"tenant": "writes", "ids": list(people.values()), "names": list(people)}
    connection.execute(INSERT_ENTITIES.encode(), names)
    connection.execute(INSERT_FACTS.encode(), {"tenant": "writes", **rows})
    connection.execute(INSERT_EDGES.encode(), {"tenant": "writes", **rows})
    connection.commit()
    return time.perf_counter() - started


# A thousand subjects with three open facts each; with history, a thousand closed ones each beside them.
FILL_NAMES = """
    INSERT INTO graph_entities (tenant_id, entity_id, project_id, canonical, canonical_norm, created_at, updated_at)
    SELECT %(tenant)s, gen_random_uuid(), 'default', 'person ' || i, 'person ' || i, now(), now()
    FROM generate_series(1, %(subjects)s) i"""
FILL_PREDICATES = """
    INSERT INTO graph_predicates (tenant_id, predicate_id, scope_key, project_id, canonical, canonical_norm,
                                  cardinality, status, created_at, updated_at)
    SELECT %(tenant)s, gen_random_uuid(), %(tenant)s || ':default', 'default', 'is ' || i, 'is ' || i, 'single',
           'active', now(), now()
    FROM generate_series(0, 2) i"""
FILL_FACTS = """
    INSERT INTO graph_facts (
        tenant_id, fact_id, project_id, agent_id, scope, owner_key, subject_entity_id, predicate, predicate_id,
        object_value, object_hash, value_type, confidence, source_trust, fact_hash, hlc, single_valued, valid_from,
        valid_to, created_at, updated_at, closed_at)
    SELECT %(tenant)s, gen_random_uuid(), 'default', 'robin', 'project_shared', '', e.entity_id, p.canonical,
           p.predicate_id, 'value ' || n, sha256(int4send(n)), 'string', 1, .5, sha256(int4send(n)),
           '1700000000000.000', true, timestamptz '2020-01-01' + n * interval '1 hour',
           CASE WHEN %(closed)s THEN timestamptz '2020-01-01' + (n + 1) * interval '1 hour' END,
           timestamptz '2020-01-01' + n * interval '1 hour', now(),
           CASE WHEN %(closed)s THEN timestamptz '2020-01-01' + (n + 1) * interval '1 hour' END
    FROM graph_entities e
    JOIN graph_predicates p ON p.tenant_id = %(tenant)s
    CROSS JOIN generate_series(%(first)s::int, %(last)s::int) n
    WHERE e.tenant_id = %(tenant)s"""


# What is asked: about somebody, by a predicate, everything.
READS: dict[str, dict[str, Any]] = {
    "one subject": {"entity": "person 500"},
    "one subject and predicate": {"entity": "person 500", "predicate": "is 1"},
    "a predicate, first page": {"predicate": "is 1"},
    "everything, first page": {},
}


def read_beside_history(database: TestDatabase, *, rounds: int) -> list[Figure]:
    """The same current-state reads with a million closed facts beside them and with none."""
    tenancy = Tenancy(database)
    clients: dict[str, httpx.Client] = {}
    each = CLOSED // (SUBJECTS * 3)
    with psycopg.connect(database.superuser, autocommit=True) as connection:
        for tenant, history in (("young", 0), ("old", each + 1)):
            tenancy.tenant(tenant)
            place = {"tenant": tenant, "subjects": SUBJECTS}
            connection.execute(FILL_NAMES.encode(), place)
            connection.execute(FILL_PREDICATES.encode(), place)
            connection.execute(FILL_FACTS.encode(), {**place, "closed": True, "first": 1, "last": history})
            connection.execute(FILL_FACTS.encode(), {**place, "closed": False, "first": 5000, "last": 5000})
        connection.execute("VACUUM ANALYZE graph_facts")
        connection.execute("VACUUM ANALYZE graph_entities")
    times: dict[tuple[str, str], list[float]] = {}
    with start_service(database.url("app"), LOG_LEVEL="warning") as service:
        for tenant in ("young", "old"):
            key = tenancy.key(tenant, agent_id="robin", rate_limits={"read": 0})
            clients[tenant] = httpx.Client(
                base_url=service.url, headers={"Authorization": f"Bearer {key}"}, timeout=60, verify=False
            )
        for number in range(60 * rounds):
            for name, params in READS.items():
                for tenant, client in clients.items():
                    started = time.perf_counter()
                    answer = client.get("/v1/facts", params=params)
                    seconds = time.perf_counter() - started
                    assert answer.json()["facts"], answer.text
                    if number >= 20:
                        times.setdefault((name, tenant), []).append(seconds)
        for client in clients.values():
            client.close()
    return [
        Figure(
            name=f"facts now beside 1,000,000 closed: {name}",
            value=statistics.median(times[name, "old"]) * 1e3,
            floor=statistics.median(times[name, "young"]) * 1e3,
            unit="ms a request",
            target=1.2,
            kind="ratio at most",
        )
        for name in READS
    ]
