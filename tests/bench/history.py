"""Benches of history: looking back over a million facts beside the present, what is hidden beside what never was."""

import statistics
import time
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import uuid4

import httpx
import psycopg

from tests.bench.facts import FILL_FACTS, FILL_NAMES, FILL_PREDICATES, READS, SUBJECTS
from tests.bench.measure import Figure
from tests.conftest import Tenancy, TestDatabase
from tests.service import start_service

FACTS = 1_000_000
BEGIN = datetime(2020, 1, 1, tzinfo=UTC)
# When each closed fact was closed: as the service would have logged it.
FILL_CLOSINGS = """
    INSERT INTO fact_closings (tenant_id, project_id, closing_id, fact_id, recorded_at, previous_valid_to)
    SELECT tenant_id, project_id, gen_random_uuid(), fact_id, closed_at, NULL FROM graph_facts
    WHERE tenant_id = %(tenant)s AND closed_at IS NOT NULL"""
HIDDEN = 20


def look_back(database: TestDatabase, *, rounds: int) -> list[Figure]:
    """The same questions about now and about then, for answers of the same size."""
    tenancy = Tenancy(database)
    tenancy.tenant("chronicle")
    each = FACTS // (SUBJECTS * 3) + 1
    place = {"tenant": "chronicle", "subjects": SUBJECTS}
    with psycopg.connect(database.superuser, autocommit=True) as connection:
        connection.execute(FILL_NAMES.encode(), place)
        connection.execute(FILL_PREDICATES.encode(), place)
        connection.execute(FILL_FACTS.encode(), {**place, "closed": True, "first": 1, "last": each})
        connection.execute(FILL_FACTS.encode(), {**place, "closed": False, "first": each + 1, "last": each + 1})
        connection.execute(FILL_CLOSINGS.encode(), place)
        for table in ("graph_facts", "fact_closings", "graph_entities"):
            connection.execute(f"VACUUM ANALYZE {table}".encode())
    moments = {
        "long ago": BEGIN + timedelta(hours=each // 2, minutes=30),
        "just now": BEGIN + timedelta(hours=each + 1, minutes=30),
    }
    times: dict[tuple[str, str], list[float]] = {}
    key = tenancy.key("chronicle", agent_id="robin", rate_limits={"read": 0})
    with (
        start_service(database.url("app"), LOG_LEVEL="warning") as service,
        httpx.Client(
            base_url=service.url, headers={"Authorization": f"Bearer {key}"}, timeout=60, verify=False
        ) as client,
    ):
        for number in range(40 * rounds):
            for name, params in READS.items():
                sizes: set[int] = set()
                for when in (None, *moments):
                    asked = params if when is None else {**params, "as_of": moments[when].isoformat()}
                    started = time.perf_counter()
                    answer = client.get("/v1/facts", params=asked)
                    seconds = time.perf_counter() - started
                    sizes.add(len(answer.json()["facts"]))
                    if number >= 20:
                        times.setdefault((name, when or "now"), []).append(seconds)
                assert len(sizes) == 1, "answers of the same size"
                assert min(sizes) > 0
    return [
        Figure(
            name=f"as_of {when}: {name}",
            value=statistics.median(times[name, when]) * 1e3,
            floor=statistics.median(times[name, "now"]) * 1e3,
            unit="ms a request",
            target=2.0,
            kind="ratio at most",
        )
        for name in READS
        for when in moments
    ]


def hidden_or_never(database: TestDatabase, *, rounds: int) -> list[Figure]:
    """Reads of what a tombstone hides beside reads of what never was: nothing to tell them apart by."""
    tenancy = Tenancy(database)
    tenancy.tenant("quiet")
    agent = tenancy.key("quiet", agent_id="robin", rate_limits={"read": 0, "write": 0})
    admin = tenancy.key("quiet", kind="admin", rate_limits={"admin": 0})
    times: dict[tuple[str, str], list[float]] = {}
    with start_service(database.url("app"), LOG_LEVEL="warning") as service:
        options: dict[str, Any] = {"base_url": service.url, "timeout": 60, "verify": False}
        with (
            httpx.Client(**options, headers={"Authorization": f"Bearer {agent}"}) as client,
            httpx.Client(
                **options, headers={"Authorization": f"Bearer {admin}", "X-Project-Id": "default"}
            ) as custodian,
        ):
            hidden = [_hide(client, custodian, f"person {uuid4().hex}") for _ in range(HIDDEN)]
            with psycopg.connect(database.superuser, autocommit=True) as connection:
                connection.execute("VACUUM ANALYZE graph_facts, graph_entities, memory_notes")
            for number in range(150 * rounds):
                words = {
                    "hidden": hidden[number % HIDDEN],
                    "never": {name: str(uuid4()) for name in ("fact", "id")} | {"name": f"person {uuid4().hex}"},
                }
                # In turn who comes first: the one before may warm something up.
                for side in sorted(words, reverse=bool(number % 2)):
                    for name, path in PATHS.items():
                        started = time.perf_counter()
                        client.get(path.format(**words[side]))
                        if number >= 50:
                            times.setdefault((name, side), []).append(time.perf_counter() - started)
    return [_apart(name, times) for name in PATHS]


PATHS = {
    "an entity by name": "/v1/entities/{name}",
    "an entity by id": "/v1/entities/{id}",
    "facts of an entity": "/v1/facts?entity={name}",
    "a fact by id": "/v1/facts/{fact}",
}


def _hide(client: httpx.Client, custodian: httpx.Client, name: str) -> dict[str, str]:
    facts = [
        {"subject": name, "predicate": f"predicate {number % 7}", "object": {"value": f"value {number}"}}
        for number in range(50)
    ]
    made = client.post("/v1/facts/batch", json={"facts": facts}).json()["results"][0]["fact"]
    answer = custodian.post("/v1/tombstones", json={"entity": name, "reason": "bench"})
    assert answer.status_code == 201, answer.text
    return {"name": name, "id": made["subject"]["entity_id"], "fact": made["fact_id"]}


def _apart(name: str, times: dict[tuple[str, str], list[float]]) -> Figure:
    medians = [statistics.median(times[name, side]) * 1e3 for side in ("hidden", "never")]
    # Either way round: slower and faster would both tell.
    return Figure(
        name=f"hidden beside never there: {name}",
        value=max(medians),
        floor=min(medians),
        unit="ms a request",
        target=1.1,
        kind="ratio at most",
    )
