"""Benches of objects: what is around them, among 100,000 with 300,000 relationships, Pareto degrees, hubs of 12,000."""

from typing import Any

import psycopg

NODES = 100_000
EDGES = 300_000
HUBS = 3
HUB_EDGES = 12_000
TYPES = 10

FILL_OBJECTS = """
    INSERT INTO graph_objects (
        tenant_id, branch_id, canonical_id, version_id, version, project_id, type, key, title, status, labels,
        properties, content_hash, created_at, updated_at)
    SELECT 'graph', b.branch_id, md5('object ' || i)::uuid, md5('object ' || i)::uuid, 1, 'default',
           'Type' || i %% %(types)s::int, 'object-' || i, 'Object number ' || i, 'active',
           ARRAY['label' || i %% 7, 'label' || i %% 11],
           jsonb_build_object('rank', i %% 100, 'summary', repeat('what it is about ', 4)),
           sha256(int4send(i)), now(), now()
    FROM generate_series(1, %(nodes)s) i
    CROSS JOIN (SELECT branch_id FROM branches WHERE tenant_id = 'graph' AND project_id = 'default') b"""
# The first edges belong to the hubs, half of them going out and half coming in; the others join any two, the lower the
# number of an object the more: the n-th has a share of 1/sqrt(n).
FILL_RELATIONSHIPS = """
    INSERT INTO graph_relationships (
        tenant_id, branch_id, canonical_id, version_id, version, project_id, type, src_id, dst_id, weight, properties,
        content_hash, created_at, updated_at, one_src, one_dst)
    SELECT 'graph', b.branch_id, md5('edge ' || e.i)::uuid, md5('edge ' || e.i)::uuid, 1, 'default',
           'links_' || e.i %% %(types)s::int, md5('object ' || e.src)::uuid, md5('object ' || e.dst)::uuid,
           CASE WHEN e.i %% 10 > 0 THEN round(random()::numeric, 3) END, '{"role": "any"}', sha256(int4send(e.i)),
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
    CROSS JOIN (SELECT branch_id FROM branches WHERE tenant_id = 'graph' AND project_id = 'default') b
    ON CONFLICT DO NOTHING"""
FILL_VERSIONS = """
    INSERT INTO graph_object_versions (
        tenant_id, branch_id, canonical_id, version_id, version, project_id, type, key, title, status, labels,
        properties, content_hash, written_by, created_at)
    SELECT x.tenant_id, x.branch_id, x.canonical_id,
           CASE WHEN n = 1 THEN x.canonical_id ELSE md5(x.key || ' ' || n)::uuid END, n, x.project_id, x.type,
           x.key, x.title, x.status, x.labels, x.properties, x.content_hash, 'robin', now()
    FROM graph_objects x CROSS JOIN generate_series(%(first)s::int, %(last)s::int) n
    WHERE x.tenant_id = 'graph'"""


def _fill(connection: psycopg.Connection[Any]) -> None:
    place = {"nodes": NODES, "edges": EDGES, "hubs": HUBS, "hub_edges": HUB_EDGES, "types": TYPES}
    connection.execute("SELECT setseed(.5)")
    connection.execute(FILL_OBJECTS.encode(), place)
    connection.execute(FILL_RELATIONSHIPS.encode(), place)
    connection.execute(FILL_VERSIONS.encode(), {"first": 1, "last": 1})
    for table in ("graph_objects", "graph_object_versions", "graph_relationships"):
        connection.execute(f"VACUUM ANALYZE {table}".encode())
