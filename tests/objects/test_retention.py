"""Retention of objects and relationships: what was deleted long ago is destroyed, unless a legal hold keeps it."""

import asyncio
from datetime import UTC, datetime, timedelta
from typing import Any

import psycopg

from app.db.database import Database, Row
from app.db.scope import CROSS_PROJECT, Scope
from app.maintenance import retention
from tests.conftest import TestDatabase
from tests.objects.conftest import Graph


def sweep(database: TestDatabase, tenant: str, *, days: int) -> Row:
    """Sweep a tenant as if so many days had passed."""

    async def run() -> Row:
        db = Database(database.app)
        await db.open()
        try:
            scope = Scope(tenant_id=tenant, reach=CROSS_PROJECT)
            return await retention.sweep(db, scope, now=datetime.now(UTC) + timedelta(days=days))
        finally:
            await db.close()

    return asyncio.run(run())


def delete(graph: Graph, kind: str, thing: dict[str, Any]) -> None:
    assert graph.admin.delete(f"/v1/graph/{kind}/{thing['canonical_id']}").status_code == 204


def test_deleted_objects_are_destroyed_after_their_window(
    graph: Graph, rival: Graph, database: TestDatabase, superuser: psycopg.Connection[Any]
) -> None:
    live, gone, other = (graph.make(key=key) for key in ("live", "gone", "other"))
    shared = graph.make(client=graph.admin, project_id=None, key="shared")
    lost = graph.link(live, gone)
    dropped, kept = graph.link(live, other), graph.link(other, live)
    graph.patch(gone, status="changed")
    foreign = rival.make(key="foreign")
    delete(rival, "objects", foreign)
    delete(graph, "objects", gone)
    delete(graph, "objects", shared)
    delete(graph, "relationships", dropped)
    assert sweep(database, graph.tenant, days=29)["objects"] == 0
    counts = sweep(database, graph.tenant, days=31)
    assert (counts["objects"], counts["relationships"]) == (2, 2)

    def ids(table: str, tenant: str = graph.tenant) -> set[str]:
        query = f"SELECT DISTINCT canonical_id::text FROM {table} WHERE tenant_id = %s"
        return {row[0] for row in superuser.execute(query.encode(), [tenant]).fetchall()}

    for table in ("graph_objects", "graph_object_versions"):
        assert ids(table) == {live["canonical_id"], other["canonical_id"]}
        assert ids(table, rival.tenant) == {foreign["canonical_id"]}
    for table in ("graph_relationships", "graph_relationship_versions"):
        assert ids(table) == {kept["canonical_id"]}
    assert lost["canonical_id"] not in ids("graph_relationships")
    path = f"/v1/graph/objects/{gone['id']}"
    assert graph.agent.post(f"{path}/restore").status_code == 404
    assert graph.agent.get(f"{path}/versions").status_code == 404
    assert graph.agent.get("/v1/graph/objects", params={"deleted": True}).json()["objects"] == []


def test_a_legal_hold_keeps_deleted_objects(graph: Graph, database: TestDatabase) -> None:
    entity = graph.admin.post("/v1/entities", json={"canonical": "Yolanda Brix"}).json()
    entity_id = (entity.get("entity") or entity)["entity_id"]
    held, free = graph.make(key="held", title="Yolanda Brix"), graph.make(key="free")
    graph.link(held, free)
    bound = graph.admin.put(f"/v1/entities/{entity_id}/object", json={"object_id": held["id"]})
    assert bound.status_code == 200, bound.text
    body = {"entity": "Yolanda Brix", "reason": "a lawsuit", "legal_hold": True}
    assert graph.admin.post("/v1/tombstones", json=body).status_code == 201
    delete(graph, "objects", free)
    counts = sweep(database, graph.tenant, days=31)
    assert (counts["objects"], counts["relationships"]) == (0, 0), "its relationship with what is held is held too"


def test_a_frozen_project_keeps_what_is_deleted(
    graph: Graph, database: TestDatabase, superuser: psycopg.Connection[Any]
) -> None:
    shared = graph.make(client=graph.admin, project_id=None)
    for thing in (graph.make(), shared):
        delete(graph, "objects", thing)
    frozen = """UPDATE projects SET settings = settings || '{"pipeline": {"mutations_frozen": true}}'
        WHERE tenant_id = %s AND project_id = 'one'"""
    superuser.execute(frozen, [graph.tenant])
    assert sweep(database, graph.tenant, days=31)["objects"] == 0
