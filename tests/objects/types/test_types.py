"""Types over HTTP: versions, the active one, and the types of a tenant and of the installation."""

import asyncio
import json
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from app.errors import TooLarge
from app.objects.types.service import Types
from tests.conftest import TestDatabase
from tests.objects.conftest import Graph, code
from tests.service import palimpsest

STRICT = {"type": "object", "required": ["x"]}


def test_versions_of_a_type(graph: Graph) -> None:
    first = graph.admin.post("/v1/graph/schemas/objects", json={"type": "T", "json_schema": {"type": "object"}})
    assert (first.status_code, first.json()["created"], first.json()["schema"]["version"]) == (201, True, 1)
    same = graph.admin.post("/v1/graph/schemas/objects", json={"type": "T", "json_schema": {"type": "object"}})
    assert (same.status_code, same.json()["created"], same.json()["schema"]["version"]) == (200, False, 1)
    old = graph.make("T")
    strict = {"json_schema": STRICT, "embedding_policy": "disabled", "fts_enabled": False}
    refused = graph.admin.post("/v1/graph/schemas/objects", json={"type": "T", **strict})
    assert (refused.status_code, code(refused)) == (409, "objects_do_not_fit")
    assert refused.json()["error"]["details"] == {"checked": 1, "failing": 1, "objects": [old["canonical_id"]]}
    second = graph.register("object", "T", **strict, force=True)
    assert second["version"] == 2
    assert graph.agent.post("/v1/graph/objects", json={"type": "T"}).status_code == 422
    # What is there is checked when it next changes, and by a version that is named.
    assert graph.agent.patch(f"/v1/graph/objects/{old['id']}", json={"status": "s"}).status_code == 422
    by_first = graph.agent.patch(f"/v1/graph/objects/{old['id']}", json={"status": "s", "schema_version": 1})
    assert by_first.json()["object"]["schema_version"] == 1
    assert graph.make("T", schema_version=1)["schema_version"] == 1
    listed = graph.agent.get("/v1/graph/schemas/objects", params={"type": "T"}).json()["schemas"]
    assert [(found["version"], found["status"]) for found in listed] == [(2, "active"), (1, "retired")]
    assert graph.agent.get("/v1/graph/schemas/objects/T").json()["version"] == 2
    assert graph.agent.get("/v1/graph/schemas/objects/T", params={"version": 1}).json()["status"] == "retired"
    activated = graph.admin.patch("/v1/graph/schemas/objects/T", json={"version": 1, "status": "active"}).json()
    assert activated["schema"]["status"] == "active"
    graph.make("T")
    assert (
        graph.agent.get("/v1/graph/schemas/objects", params={"status": "active"}).json()["schemas"][0]["version"] == 1
    )
    assert graph.admin.patch("/v1/graph/schemas/objects/T", json={"version": 1, "status": "retired"}).status_code == 200
    missing = graph.agent.get("/v1/graph/schemas/objects/T")
    assert (missing.status_code, code(missing)) == (404, "type_not_found")


def test_a_version_by_number(graph: Graph) -> None:
    graph.register("object", "T", version=5)
    assert graph.register("object", "T", json_schema=STRICT)["version"] == 6
    taken = graph.admin.post("/v1/graph/schemas/objects", json={"type": "T", "version": 5, "json_schema": STRICT})
    assert (taken.status_code, code(taken)) == (409, "type_version_exists")
    known = graph.admin.post("/v1/graph/schemas/objects", json={"type": "T", "version": 5})
    assert (known.status_code, known.json()["created"]) == (200, False)


def test_a_version_that_does_not_count_yet(graph: Graph) -> None:
    graph.register("object", "T", json_schema={})
    later = graph.register("object", "T", json_schema=STRICT, status="retired")
    assert (later["version"], later["status"]) == (2, "retired")
    graph.make("T")
    graph.admin.patch("/v1/graph/schemas/objects/T", json={"version": 2, "status": "active", "force": True})
    assert graph.agent.post("/v1/graph/objects", json={"type": "T"}).status_code == 422


def test_relationship_types_whole(graph: Graph) -> None:
    fields: dict[str, Any] = {
        "allowed_src_types": ["B", "A"],
        "allowed_dst_types": ["C"],
        "multiplicity": {"src": "one", "dst": "many"},
        "ranking": {"base_weight": 0.8, "allow_neighbor": False, "max_depth_allowed": 2, "reciprocal_boost": 0.1},
        "description": "who decides",
    }
    made = graph.register("relationship", "decides", **fields)
    assert {name: made[name] for name in fields} == {**fields, "allowed_src_types": ["A", "B"]}
    assert graph.agent.get("/v1/graph/schemas/relationships/decides").json() == made
    named = graph.agent.get("/v1/graph/schemas/relationships", params={"type": "decides"}).json()["schemas"]
    assert named == [made]
    assert graph.agent.get("/v1/graph/schemas/relationships", params={"type": "other"}).json()["schemas"] == []


@pytest.mark.parametrize(
    ("kind", "fields", "expected"),
    [
        ("objects", {"type": "T", "json_schema": {"type": 3}}, "schema_invalid"),
        ("objects", {"type": "T", "json_schema": {"$ref": "http://example.com/x"}}, "schema_invalid"),
        ("objects", {"type": "T", "json_schema": "object"}, "invalid_request"),
        ("objects", {"type": " T"}, "invalid_request"),
        ("objects", {"type": "T", "embedding_policy": "never"}, "invalid_request"),
        ("objects", {"type": "T", "embedding_relevant_paths": ["no pointer"]}, "invalid_request"),
        ("objects", {"type": "T", "multiplicity": {}}, "invalid_request"),
        ("relationships", {"type": "T", "multiplicity": {"src": "two"}}, "invalid_request"),
        ("relationships", {"type": "T", "ranking": {"max_depth_allowed": 99}}, "invalid_request"),
        ("relationships", {}, "invalid_request"),
    ],
)
def test_what_cannot_be_a_type(graph: Graph, kind: str, fields: dict[str, Any], expected: str) -> None:
    answer = graph.admin.post(f"/v1/graph/schemas/{kind}", json=fields)
    assert (answer.status_code, code(answer)) == (400, expected), answer.text


def test_types_of_another_tenant(graph: Graph, rival: Graph) -> None:
    graph.register("object", "T", json_schema=STRICT)
    rival.make("T")
    assert rival.admin.get("/v1/graph/schemas/objects", params={"type": "T"}).json()["schemas"] == []
    assert rival.admin.get("/v1/graph/schemas/objects/T").status_code == 404
    assert rival.admin.patch("/v1/graph/schemas/objects/T", json={"version": 1, "status": "retired"}).status_code == 404


def test_types_of_the_installation(graph: Graph, superuser: Any) -> None:
    superuser.execute(
        "INSERT INTO global_object_type_schemas (type, version, status, json_schema, created_by, created_at) "
        "VALUES ('Core', 1, 'active', '{\"required\": [\"x\"]}', 'operator', now())"
    )
    superuser.execute(
        "INSERT INTO global_relationship_type_schemas (type, version, status, json_schema, allowed_src_types, "
        "allowed_dst_types, multiplicity_src, multiplicity_dst, created_by, created_at) "
        "VALUES ('core_owner', 1, 'active', '{}', '{}', '{}', 'one', 'many', 'operator', now())"
    )
    refused = graph.agent.post("/v1/graph/objects", json={"type": "Core"})
    assert (refused.status_code, code(refused)) == (422, "object_schema_validation_failed")
    assert graph.agent.get("/v1/graph/schemas/objects/Core").json()["scope"] == "global"
    assert (
        graph.admin.patch("/v1/graph/schemas/objects/Core", json={"version": 1, "status": "retired"}).status_code == 404
    )
    a, b, c = graph.make(), graph.make(), graph.make()
    graph.link(a, b, "core_owner")
    body = {"type": "core_owner", "src_id": a["id"], "dst_id": c["id"]}
    answer = graph.agent.post("/v1/graph/relationships", json=body)
    assert code(answer) == "relationship_multiplicity_violation"
    # The tenant's own overrides it.
    graph.register("object", "Core", json_schema={})
    graph.make("Core")
    assert graph.agent.get("/v1/graph/schemas/objects/Core").json()["scope"] == "tenant"


def test_registered_by_many_at_once(graph: Graph) -> None:
    def register(n: int) -> int:
        body = {"type": "T", "json_schema": {"description": str(n)}}
        return graph.admin.post("/v1/graph/schemas/objects", json=body).status_code

    with ThreadPoolExecutor(8) as pool:
        outcomes = list(pool.map(register, range(16)))
    assert set(outcomes) <= {201, 409}
    versions = graph.agent.get("/v1/graph/schemas/objects", params={"type": "T"}).json()["schemas"]
    assert len(versions) == outcomes.count(201)
    assert [found["status"] for found in versions].count("active") == 1


def test_listed_by_pages(build_graph: Callable[[], Graph]) -> None:
    graph = build_graph()
    for name in ("A", "B", "C"):
        graph.register("object", name, json_schema={})
        graph.register("object", name, json_schema=STRICT)
    found: list[tuple[str, int]] = []
    cursor = None
    while True:
        page = graph.agent.get(
            "/v1/graph/schemas/objects", params={"limit": 2, **({"cursor": cursor} if cursor else {})}
        )
        found += [(one["type"], one["version"]) for one in page.json()["schemas"] if one["scope"] == "tenant"]
        cursor = page.json()["next_cursor"]
        if cursor is None:
            break
    assert found == [(name, version) for name in ("A", "B", "C") for version in (2, 1)]


def test_types_from_the_command_line(graph: Graph, database: TestDatabase, tmp_path: Path) -> None:
    given = tmp_path / "types.json"
    given.write_text(
        json.dumps(
            {
                "objects": [{"type": "Loaded", "json_schema": STRICT}],
                "relationships": [{"type": "loaded_by", "multiplicity": {"src": "one"}}],
            }
        )
    )
    run = partial(palimpsest, DATABASE_URL=database.url("app"), DATABASE_MIGRATION_URL=database.url("superuser"))
    first = run("types", "load", str(given), "--json")
    assert first.returncode == 0, first.stderr
    assert [row["created"] for row in json.loads(first.stdout)["types"]] == [True, True]
    again = run("types", "load", str(given))
    assert again.stdout.count("(unchanged)") == 2
    assert "object type Loaded  version 1" in run("types", "list").stdout
    assert graph.agent.post("/v1/graph/objects", json={"type": "Loaded"}).status_code == 422
    given.write_text("{]")
    broken = run("types", "load", str(given))
    assert broken.returncode != 0
    assert "FILE: " in broken.stderr


def test_patterns_that_take_too_long_are_refused(graph: Graph) -> None:
    schema = {"properties": {"t": {"type": "string", "pattern": "a[ab]{10000}c"}}}
    refused = graph.admin.post("/v1/graph/schemas/objects", json={"type": "P", "json_schema": schema})
    assert (refused.status_code, code(refused)) == (400, "schema_too_complex")
    assert refused.json()["error"]["details"]["path"] == "/properties/t/pattern"
    graph.register("object", "P", json_schema={"properties": {"t": {"pattern": "a[ab]{1000}c"}}})
    long = graph.agent.post("/v1/graph/objects", json={"type": "P", "properties": {"t": "ab" * 60_000}})
    assert (long.status_code, code(long)) == (422, "object_schema_validation_failed")
    assert long.json()["error"]["details"]["errors"][0]["keyword"] == "pattern"


def test_checks_of_one_request_give_others_their_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    types = Types("object", [{"type": "T", "version": 1, "json_schema": '{"type": "object"}'}], {})
    turns: list[str] = []

    async def other() -> None:
        turns.append("other")

    async def check() -> list[str]:
        waiting = asyncio.create_task(other())
        types.check("T", {})
        await types.pause()
        seen = list(turns)
        await waiting
        return seen

    monkeypatch.setattr("app.objects.types.service.PAUSE_SECONDS", -1.0)
    assert asyncio.run(check()) == ["other"]
    monkeypatch.setattr("app.objects.types.service.MAX_SECONDS", -1.0)
    with pytest.raises(TooLarge) as caught:
        asyncio.run(check())
    assert caught.value.code == "check_too_slow"


def test_a_version_that_objects_of_another_project_do_not_fit(graph: Graph) -> None:
    graph.register("object", "T", json_schema=STRICT)
    graph.register("object", "T", json_schema={})
    for n in range(60):
        graph.make("T", client=graph.other, properties={"x": n})
    graph.make("T", client=graph.other, key="bare")
    refused = graph.admin.patch("/v1/graph/schemas/objects/T", json={"version": 1, "status": "active"})
    assert (refused.status_code, code(refused)) == (409, "objects_do_not_fit")
    details = refused.json()["error"]["details"]
    assert (details["checked"], details["failing"]) == (61, 1)
    forced = {"version": 1, "status": "active", "force": True}
    assert graph.admin.patch("/v1/graph/schemas/objects/T", json=forced).status_code == 200
    wider = {"type": "T", "json_schema": {"properties": {"x": {"type": "integer"}}}}
    assert graph.admin.post("/v1/graph/schemas/objects", json=wider).status_code == 201
