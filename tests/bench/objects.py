"""Benches of objects: what is around them, among 100,000 with 300,000 relationships, Pareto degrees, hubs of 12,000."""

import random
import statistics
import time
from typing import Any

import httpx
import psycopg

from tests.bench.measure import Figure
from tests.conftest import Tenancy, TestDatabase
from tests.service import start_service

NODES = 100_000
EDGES = 300_000
HUBS = 3
HUB_EDGES = 12_000
TYPES = 10
VERSIONS = 20
SEEDS = 100
# One question in ten begins at a hub; from the others a hub is often two hops away.
EVERY_HUB = 10
FAN = 100

# Two tenants with the same graph: in one each object has one version, in the other twenty.
YOUNG, OLD = "young", "old"
_MAIN = "(SELECT branch_id FROM branches WHERE tenant_id = %(tenant)s AND project_id = 'default')"
FILL_OBJECTS = f"""
    INSERT INTO graph_objects (
        tenant_id, branch_id, canonical_id, version_id, version, project_id, type, key, title, status, labels,
        properties, content_hash, created_at, updated_at)
    SELECT %(tenant)s, b.branch_id, md5('object ' || i)::uuid, md5('object ' || i)::uuid, 1, 'default',
           'Type' || i %% %(types)s::int, 'object-' || i, 'Object number ' || i, 'active',
           ARRAY['label' || i %% 7, 'label' || i %% 11],
           jsonb_build_object('rank', i %% 100, 'summary', repeat('what it is about ', 4)),
           sha256(int4send(i)), now(), now()
    FROM generate_series(1, %(nodes)s) i CROSS JOIN {_MAIN} b"""
# The first edges belong to the hubs, half of them going out and half coming in; the others join any two, the lower the
# number of an object the more: the n-th has a share of 1/sqrt(n).
FILL_RELATIONSHIPS = f"""
    INSERT INTO graph_relationships (
        tenant_id, branch_id, canonical_id, version_id, version, project_id, type, src_id, dst_id, weight, properties,
        content_hash, created_at, updated_at, one_src, one_dst)
    SELECT %(tenant)s, b.branch_id, md5('edge ' || e.i)::uuid, md5('edge ' || e.i)::uuid, 1, 'default',
           'links_' || e.i %% %(types)s::int, md5('object ' || e.src)::uuid, md5('object ' || e.dst)::uuid,
           CASE WHEN e.i %% 10 > 0 THEN round(random()::numeric, 3) END, '{{"role": "any"}}', sha256(int4send(e.i)),
           now(), now(), false, false
    FROM (
        SELECT d.i, CASE WHEN d.hub AND d.i %% 2 = 0 THEN d.other ELSE d.one END AS src,
               CASE WHEN d.hub AND d.i %% 2 = 0 THEN d.one ELSE d.other END AS dst
        FROM (
            SELECT i, i <= %(hub_edges)s::int * %(hubs)s AS hub,
                   CASE WHEN i <= %(hub_edges)s::int * %(hubs)s THEN (i - 1) / %(hub_edges)s::int
                        ELSE floor(power(random(), 2) * %(nodes)s::int)::int END + 1 AS one,
                   CASE WHEN i <= %(hub_edges)s::int * %(hubs)s THEN floor(random() * %(nodes)s::int)::int
                        ELSE floor(power(random(), 2) * %(nodes)s::int)::int END + 1 AS other
            FROM generate_series(1, %(edges)s) i
        ) d
        WHERE d.one <> d.other
    ) e
    CROSS JOIN {_MAIN} b
    ON CONFLICT DO NOTHING"""
FILL_VERSIONS = """
    INSERT INTO graph_object_versions (
        tenant_id, branch_id, canonical_id, version_id, version, project_id, type, key, title, status, labels,
        properties, content_hash, written_by, created_at)
    SELECT x.tenant_id, x.branch_id, x.canonical_id,
           CASE WHEN n = 1 THEN x.canonical_id ELSE md5(x.key || ' ' || n)::uuid END, n, x.project_id, x.type,
           x.key, x.title, x.status, x.labels, x.properties, x.content_hash, 'robin', now()
    FROM graph_objects x CROSS JOIN generate_series(%(first)s::int, %(last)s::int) n
    WHERE x.tenant_id = %(tenant)s"""
# Each version is also written over the head, as it is when somebody changes an object.
NEXT_HEADS = """
    UPDATE graph_objects x SET version = %(version)s, version_id = md5(x.key || ' ' || %(version)s::int)::uuid,
           updated_at = now()
    WHERE x.tenant_id = %(tenant)s"""

# What any walk of two hops has to look up, and nothing else: the heaviest edges of one object and of each that these
# lead to, both ways, by index alone and as many as are crossed; and each object once. Nothing is told apart, filtered,
# put in order or written out. The policy applies as it does to everybody.
_EDGES = """
    (SELECT u.id FROM (
        (SELECT x.dst_id AS id, x.weight, x.canonical_id FROM graph_relationships x
         WHERE x.tenant_id = 'young' AND x.branch_id = %(branch)s AND x.deleted_at IS NULL AND x.src_id = {object}
         ORDER BY x.weight DESC NULLS LAST, x.canonical_id DESC LIMIT {fan})
        UNION ALL
        (SELECT x.src_id, x.weight, x.canonical_id FROM graph_relationships x
         WHERE x.tenant_id = 'young' AND x.branch_id = %(branch)s AND x.deleted_at IS NULL AND x.dst_id = {object}
         ORDER BY x.weight DESC NULLS LAST, x.canonical_id DESC LIMIT {fan})
     ) u ORDER BY u.weight DESC NULLS LAST, u.canonical_id DESC LIMIT {fan})"""
FLOOR = (
    "SELECT count(o.title) FROM (SELECT DISTINCT b.id FROM {} a CROSS JOIN LATERAL {} b) n CROSS JOIN LATERAL "
    "(SELECT x.title FROM graph_objects x WHERE x.tenant_id = 'young' AND x.branch_id = %(branch)s "
    "AND x.canonical_id = n.id OFFSET 0) o"
).format(
    _EDGES.format(object="md5(%(name)s)::uuid", fan=FAN),
    _EDGES.format(object="a.id", fan=FAN),
)
# As the service asks it.
EXPAND = f"""
    SELECT length(nodes), length(edges) FROM expand_objects(
        'young', 'default', ARRAY[md5(%(name)s)::uuid], '[{{"direction": "both", "node": [], "edge": []}}]',
        '{{"object": {{"fields": ["version", "type", "key", "title", "status", "labels"]}},
           "edge": {{"fields": ["type", "weight"]}}}}',
        '{{"branch": "main", "phased": false, "depth": 2, "edges_per_node": {FAN}, "max_nodes": 2000,
           "max_edges": 20000, "dedupe": "node", "distinct": false, "paths": false, "max_paths": 10000}}')"""

# What is asked over HTTP, and by when half and nearly all of it has to be answered, in milliseconds.
QUESTIONS: dict[str, tuple[dict[str, Any], float | None, float | None]] = {
    "depth 2": ({}, None, 40.0),
    "depth 3, limitNodes 5000": ({"maxDepth": 3, "limitNodes": 5000}, 60.0, 150.0),
    "depth 2, filtered": ({"filters": {"node": {"rank": {">=": 50}}, "edge": {"weight": {">": 0.3}}}}, None, None),
    "depth 2, paths": ({"returnPaths": True, "dedupe": "edge"}, None, None),
}
MAX_SLOWDOWN = 1.2


def objects(database: TestDatabase, *, rounds: int) -> list[Figure]:
    """Expansions from objects of every kind over HTTP, with one version of each and with twenty."""
    tenancy = Tenancy(database)
    keys: dict[str, str] = {}
    for tenant in (YOUNG, OLD):
        tenancy.tenant(tenant)
        keys[tenant] = tenancy.key(tenant, agent_id="robin", rate_limits={"read": 0, "expand": 0})
    chance = random.Random(1)
    names = [
        f"object {chance.randrange(HUBS) + 1 if number % EVERY_HUB == 0 else chance.randrange(NODES) + 1}"
        for number in range(SEEDS)
    ]
    with psycopg.connect(database.superuser, autocommit=True) as connection:
        for tenant in (YOUNG, OLD):
            fill(connection, tenant)
        add_versions(connection)
        times = _over_http(database, connection, keys, names, rounds=rounds)
        figures = [_in_the_database(database, connection, names, rounds=rounds)]
    for question, (_, half, most) in QUESTIONS.items():
        for name, quantile, target in (("p50", 50, half), ("p95", 95, most)):
            value = statistics.quantiles(times[YOUNG, question], n=100)[quantile - 1]
            figures.append(
                Figure(
                    name=f"expand, {question}: {name}", value=value, unit="ms a request", target=target, kind="at most"
                )
            )
    for question in list(QUESTIONS)[:2]:
        figures.append(
            Figure(
                name=f"expand, {question}, {VERSIONS} versions to 1",
                value=statistics.mean(times[OLD, question]),
                floor=statistics.mean(times[YOUNG, question]),
                unit="ms a request",
                target=MAX_SLOWDOWN,
                kind="ratio at most",
            )
        )
    return figures


def fill(connection: psycopg.Connection[Any], tenant: str) -> None:
    """Objects, each with one version, and relationships; the same for each tenant."""
    place = {
        "tenant": tenant, "nodes": NODES, "edges": EDGES, "hubs": HUBS, "hub_edges": HUB_EDGES, "types": TYPES,
    }  # fmt: skip
    connection.execute("SELECT setseed(.5)")
    connection.execute(FILL_OBJECTS.encode(), place)
    connection.execute(FILL_RELATIONSHIPS.encode(), place)
    connection.execute(FILL_VERSIONS.encode(), {"tenant": tenant, "first": 1, "last": 1})


def add_versions(connection: psycopg.Connection[Any]) -> None:
    """All the other versions, and the heads rewritten as often, with the upkeep that a database does by itself."""
    for version in range(2, VERSIONS + 1):
        connection.execute(FILL_VERSIONS.encode(), {"tenant": OLD, "first": version, "last": version})
        connection.execute(NEXT_HEADS.encode(), {"tenant": OLD, "version": version})
        connection.execute("VACUUM graph_objects")
    for table in ("graph_objects", "graph_object_versions", "graph_relationships"):
        connection.execute(f"VACUUM ANALYZE {table}".encode())


def _over_http(
    database: TestDatabase, connection: psycopg.Connection[Any], keys: dict[str, str], names: list[str], *, rounds: int
) -> dict[tuple[str, str], list[float]]:
    """Milliseconds by tenant and question, asked in turn."""
    ids = connection.execute("SELECT md5(n)::uuid::text FROM unnest(%s::text[]) n", (names,)).fetchall()
    times: dict[tuple[str, str], list[float]] = {(tenant, question): [] for tenant in keys for question in QUESTIONS}
    with (
        start_service(database.url("app"), LOG_LEVEL="warning") as service,
        httpx.Client(base_url=service.url, timeout=60, verify=False) as client,
    ):
        for number in range(rounds + 1):
            for (root,) in ids:
                for tenant, question in times:
                    headers = {"Authorization": f"Bearer {keys[tenant]}"}
                    started = time.perf_counter()
                    answer = client.post(
                        "/v1/graph/expand", json={"roots": [root], **QUESTIONS[question][0]}, headers=headers
                    )
                    seconds = time.perf_counter() - started
                    assert answer.status_code == 200, answer.text
                    if number:
                        times[tenant, question].append(seconds * 1e3)
    return times


def _in_the_database(
    database: TestDatabase, connection: psycopg.Connection[Any], names: list[str], *, rounds: int
) -> Figure:
    (branch,) = connection.execute(f"SELECT m.branch_id FROM {_MAIN} m".encode(), {"tenant": YOUNG}).fetchone() or (
        None,
    )
    times: dict[str, list[float]] = {"floor": [], "expand": []}
    with psycopg.connect(database.app, autocommit=True, prepare_threshold=0) as asking:
        for setting, value in (("tenant_id", YOUNG), ("project_id", "default"), ("agent_id", "robin")):
            asking.execute("SELECT set_config(%s, %s, false)", (f"app.{setting}", value))
        asking.execute("SET plan_cache_mode = force_generic_plan")
        asking.execute("SET jit = off")
        for number in range(rounds + 1):
            for name in names:
                for kind, statement in (("floor", FLOOR), ("expand", EXPAND)):
                    started = time.perf_counter()
                    asking.execute(statement.encode(), {"name": name, "branch": branch}).fetchone()
                    if number:
                        times[kind].append(time.perf_counter() - started)
    spent = {kind: statistics.mean(taken) * 1e6 for kind, taken in times.items()}
    return Figure(
        name="expansion of depth 2 beside its lookups", value=spent["expand"], floor=spent["floor"], unit="µs a walk"
    )
