"""Objects over HTTP: create, read, patch, delete, restore, list."""

import uuid
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from typing import Any

import httpx
import psycopg
import pytest

from tests.objects.conftest import Graph, code

PERSON = {"type": "object", "required": ["name"], "properties": {"name": {"type": "string"}, "age": {"minimum": 0}}}


def test_at_p0_1_valid_and_invalid_properties(graph: Graph) -> None:
    graph.register("object", "Person", json_schema=PERSON)
    made = graph.make("Person", properties={"name": "Ada", "age": 36})
    assert made["schema_version"] == 1
    refused = graph.agent.post("/v1/graph/objects", json={"type": "Person", "properties": {"age": -1}})
    assert refused.status_code == 422
    assert code(refused) == "object_schema_validation_failed"
    details = refused.json()["error"]["details"]
    assert {(error["path"], error["keyword"]) for error in details["errors"]} == {("", "required"), ("/age", "minimum")}
    assert details["type"] == "Person"
    assert "index" not in details
    patched = graph.agent.patch(f"/v1/graph/objects/{made['id']}", json={"properties": {"name": None}})
    assert (patched.status_code, code(patched)) == (422, "object_schema_validation_failed")
    assert graph.agent.get(f"/v1/graph/objects/{made['id']}").json()["version"] == 1


def test_a_type_that_is_not_registered_takes_anything_and_says_so(graph: Graph) -> None:
    answer = graph.agent.post("/v1/graph/objects", json={"type": "Custom:Whatever", "properties": {"x": [1]}})
    assert answer.status_code == 201
    assert answer.json()["warnings"] == ["type: Custom:Whatever is not registered; its properties were not checked."]
    assert answer.json()["object"]["schema_version"] is None


def test_at_p0_4_another_tenant_finds_nothing(graph: Graph, rival: Graph) -> None:
    made, other = graph.make("Secret", key="k", properties={"a": 1}), graph.make("Secret")
    link = graph.link(made, other)
    path = f"/v1/graph/objects/{made['id']}"
    for answer in (
        rival.admin.get(path),
        rival.admin.get(f"{path}/versions"),
        rival.admin.patch(path, json={"properties": {"a": 2}}),
        rival.admin.delete(path),
        rival.admin.post(f"{path}/restore"),
    ):
        assert (answer.status_code, code(answer)) == (404, "object_not_found")
    for answer in (
        rival.admin.get(f"/v1/graph/relationships/{link['id']}"),
        rival.admin.patch(f"/v1/graph/relationships/{link['id']}", json={"weight": 1}),
        rival.admin.delete(f"/v1/graph/relationships/{link['id']}"),
    ):
        assert (answer.status_code, code(answer)) == (404, "relationship_not_found")
    body = {"type": "r", "src_id": made["id"], "dst_id": rival.make("Own")["id"]}
    refused = rival.admin.post("/v1/graph/relationships", json=body)
    assert (refused.status_code, code(refused)) == (404, "src_object_not_found")
    assert rival.admin.get("/v1/graph/objects", params={"type": "Secret"}).json()["objects"] == []
    assert rival.admin.get("/v1/graph/objects", params={"properties": '{"a":1}'}).json()["objects"] == []
    assert rival.admin.get("/v1/graph/relationships").json()["relationships"] == []
    # The same key is free there.
    assert rival.make("Secret", key="k")["version"] == 1


def test_another_project_finds_nothing(graph: Graph) -> None:
    made = graph.make("Secret", properties={"a": 1})
    assert graph.other.get(f"/v1/graph/objects/{made['id']}").status_code == 404
    assert graph.other.get("/v1/graph/objects").json()["objects"] == []
    assert graph.other.get("/v1/graph/objects", params={"properties": '{"a":1}'}).json()["objects"] == []


def test_objects_of_every_project(graph: Graph) -> None:
    shared = graph.make("Person", client=graph.admin, project_id=None, properties={"name": "Ada"}, labels=["x"])
    assert shared["project_id"] is None
    for client in (graph.agent, graph.other):
        assert client.get(f"/v1/graph/objects/{shared['id']}").json()["title"] == "Ada"
        assert [o["id"] for o in client.get("/v1/graph/objects", params={"label": "x"}).json()["objects"]] == [
            shared["id"]
        ]
    refused = graph.agent.post("/v1/graph/objects", json={"type": "Person", "project_id": None})
    assert (refused.status_code, code(refused)) == (403, "wrong_key_kind")
    for answer in (
        graph.agent.patch(f"/v1/graph/objects/{shared['id']}", json={"status": "x"}),
        graph.agent.delete(f"/v1/graph/objects/{shared['id']}"),
    ):
        assert (answer.status_code, code(answer)) == (403, "wrong_key_kind")
    # A project's objects may be linked to it.
    assert graph.link(graph.make("Task"), shared, "assigned_to")["project_id"] == "one"
    other = graph.agent.post("/v1/graph/objects", json={"type": "Person", "project_id": "two"})
    assert (other.status_code, code(other)) == (400, "project_mismatch")


def test_every_version_stays(graph: Graph) -> None:
    made = graph.make("Doc", properties={"n": 1, "text": "one"}, status="draft")
    second = graph.patch(made, properties={"n": 2})
    third = graph.patch(made, status="final", labels=["b", "a", "b"], properties={"text": None})
    assert [second["version"], third["version"]] == [2, 3]
    assert third["canonical_id"] == second["canonical_id"] == made["id"]
    assert third["supersedes_id"] == second["id"]
    assert third["labels"] == ["b", "a"]
    assert third["properties"] == {"n": 2}
    assert graph.agent.get(f"/v1/graph/objects/{made['id']}").json()["version"] == 3
    old = graph.agent.get(f"/v1/graph/objects/{second['id']}").json()
    assert (old["version"], old["is_head"], old["properties"]) == (2, False, {"n": 2, "text": "one"})
    plain = graph.agent.get(f"/v1/graph/objects/{made['id']}/versions").json()["versions"]
    assert [(v["version"], v["is_head"]) for v in plain] == [(3, True), (2, False), (1, False)]
    assert all("change_summary" not in version for version in plain)
    told = graph.agent.get(f"/v1/graph/objects/{second['id']}/versions", params={"includeChangeSummary": "true"}).json()
    summaries = [version["change_summary"] for version in told["versions"]]
    assert summaries[0]["removed"] == ["/text"]
    assert summaries[0]["fields"]["status"] == {"from": "draft", "to": "final"}
    assert summaries[1]["updated"] == {"/n": {"from": 1, "to": 2}}
    assert summaries[2]["added"] == {"/n": 1, "/text": "one"}
    assert "change_summary" not in graph.agent.get(f"/v1/graph/objects/{made['id']}").json()


def test_as_it_stood_at_a_time(graph: Graph) -> None:
    before = datetime.now(UTC)
    made, end = graph.make(properties={"n": 1}), graph.make()
    link = graph.link(made, end, weight=0.1)
    then = datetime.now(UTC)
    graph.patch(made, properties={"n": 2})
    graph.agent.patch(f"/v1/graph/relationships/{link['id']}", json={"weight": 0.2})
    gone = datetime.now(UTC)
    graph.agent.delete(f"/v1/graph/objects/{made['id']}")
    path, along = f"/v1/graph/objects/{made['id']}", f"/v1/graph/relationships/{link['id']}"

    def at(moment: datetime, path: str = path, **more: str) -> httpx.Response:
        return graph.admin.get(path, params={"as_of": moment.isoformat(), **more})

    assert (at(then).json()["properties"], at(then).json()["is_head"]) == ({"n": 1}, False)
    assert at(gone).json()["properties"] == {"n": 2}
    assert (at(then, along).json()["weight"], at(gone, along).json()["weight"]) == (0.1, 0.2)
    assert at(before).status_code == 404
    now = datetime.now(UTC)
    assert (at(now).status_code, at(now, include_deleted="true").json()["version"]) == (404, 3)
    future = at(now + timedelta(days=1))
    assert (future.status_code, code(future)) == (400, "as_of_future")
    unscoped = graph.agent.get(path, params={"as_of": then.isoformat()})
    assert (unscoped.status_code, code(unscoped)) == (403, "missing_scope")


def test_versions_by_pages(graph: Graph) -> None:
    made = graph.make(properties={"n": 0})
    for n in range(1, 6):
        graph.patch(made, properties={"n": n})
    path, found, cursor = f"/v1/graph/objects/{made['id']}/versions", [], None
    while True:
        page = graph.agent.get(path, params={"limit": 2} | ({"cursor": cursor} if cursor else {})).json()
        found += [version["version"] for version in page["versions"]]
        cursor = page["next_cursor"]
        if cursor is None:
            break
    assert found == [6, 5, 4, 3, 2, 1]


def test_at_p0_diff_3_a_change_that_changes_nothing_makes_no_version(graph: Graph) -> None:
    made = graph.make(
        properties={"a": 1, "b": {"c": [1, 2]}}, status="s", labels=["x"], title="T", evidence=[{"note": "n"}],
        effective_from="2026-01-01T00:00:00Z",
    )  # fmt: skip
    same: list[dict[str, Any]] = [
        {},
        {"properties": {}},
        {"properties": {"a": 1.0, "nothing": None}},
        {"properties": {"b": {"c": [1, 2]}}, "status": "s", "labels": ["x"]},
        {"title": "T", "key": None, "evidence": [{"note": "n"}], "effective_from": "2026-01-01T01:00:00+01:00"},
    ]
    for change in same:
        answer = graph.agent.patch(f"/v1/graph/objects/{made['id']}", json=change)
        assert (answer.status_code, code(answer)) == (409, "no_effective_change"), change
    assert len(graph.agent.get(f"/v1/graph/objects/{made['id']}/versions").json()["versions"]) == 1


def test_only_the_head_can_be_changed(graph: Graph) -> None:
    made = graph.make(properties={"n": 1})
    second = graph.patch(made, properties={"n": 2})
    third = graph.patch(second, properties={"n": 3})
    for path in (f"/v1/graph/objects/{second['id']}",):
        for answer in (graph.agent.patch(path, json={"properties": {"n": 9}}), graph.agent.delete(path)):
            assert (answer.status_code, code(answer)) == (409, "cannot_patch_non_head_version")
            assert answer.json()["error"]["details"] == {"version": 3, "head_id": third["id"]}
    fourth = graph.agent.patch(f"/v1/graph/objects/{third['id']}", json={"properties": {"n": 4}}).json()
    assert (fourth["object"]["version"], fourth["created"]) == (4, False)


def test_if_match_guards_the_head(graph: Graph) -> None:
    made = graph.make(properties={"n": 1})
    path = f"/v1/graph/objects/{made['id']}"
    tag = graph.agent.get(path).headers["etag"]
    assert tag == '"1"'
    second = graph.agent.patch(path, json={"properties": {"n": 2}}, headers={"if-match": tag})
    assert (second.status_code, second.headers["etag"]) == (200, '"2"')
    for stale in ('"1"', "1", 'W/"1"', made["id"], '"7", "8"'):
        answer = graph.agent.patch(path, json={"properties": {"n": 3}}, headers={"if-match": stale})
        assert (answer.status_code, code(answer)) == (409, "cannot_patch_non_head_version"), stale
        assert graph.agent.delete(path, headers={"if-match": stale}).status_code == 409
    bad = graph.agent.patch(path, json={"properties": {"n": 3}}, headers={"if-match": '""'})
    assert (bad.status_code, code(bad)) == (400, "invalid_if_match")
    for n, good in enumerate(['"2"', "3", "*", 'W/"5", "1"']):
        answer = graph.agent.patch(path, json={"properties": {"n": 10 + n}}, headers={"if-match": good})
        assert answer.status_code == 200, good


def test_writers_at_the_same_time_lose_nothing(graph: Graph) -> None:
    made = graph.make(properties={"start": 0})
    path = f"/v1/graph/objects/{made['id']}"

    def write(n: int) -> int:
        return graph.agent.patch(path, json={"properties": {f"p{n}": n}}).status_code

    with ThreadPoolExecutor(8) as pool:
        assert set(pool.map(write, range(24))) == {200}
    head = graph.agent.get(path).json()
    assert head["version"] == 25
    assert head["properties"] == {"start": 0, **{f"p{n}": n for n in range(24)}}


def test_one_of_many_guarded_writers_wins(graph: Graph) -> None:
    made = graph.make(properties={"n": 0})
    path = f"/v1/graph/objects/{made['id']}"

    def write(n: int) -> int:
        answer = graph.agent.patch(path, json={"properties": {"n": n}}, headers={"if-match": '"1"'})
        return answer.status_code

    with ThreadPoolExecutor(8) as pool:
        assert sorted(pool.map(write, range(1, 13))) == [200] + [409] * 11


def test_keys_are_unique_among_live_objects_of_a_type(graph: Graph) -> None:
    made = graph.make("A", key="k")
    again = graph.agent.post("/v1/graph/objects", json={"type": "A", "key": "k"})
    assert (again.status_code, code(again)) == (409, "object_key_exists")
    other = graph.make("A", key="other")
    moved = graph.agent.patch(f"/v1/graph/objects/{other['id']}", json={"key": "k"})
    assert (moved.status_code, code(moved)) == (409, "object_key_exists")
    graph.make("B", key="k")
    assert graph.agent.delete(f"/v1/graph/objects/{made['id']}").status_code == 204
    graph.patch(other, key="k")
    restored = graph.agent.post(f"/v1/graph/objects/{made['id']}/restore")
    assert (restored.status_code, code(restored)) == (409, "object_key_exists")
    # Nothing of it was kept.
    assert graph.agent.get(f"/v1/graph/objects/{made['id']}").status_code == 404


def test_one_of_many_with_the_same_key_is_made(graph: Graph) -> None:
    def make(_: int) -> int:
        return graph.agent.post("/v1/graph/objects", json={"type": "A", "key": "one"}).status_code

    with ThreadPoolExecutor(8) as pool:
        assert sorted(pool.map(make, range(12))) == [201] + [409] * 11


def test_deleted_and_restored(graph: Graph) -> None:
    made, near, far = graph.make("A", key="k", properties={"x": 1}), graph.make("B"), graph.make("C")
    kept, lost = graph.link(made, near), graph.link(far, made, "other", properties={"p": 1})
    path = f"/v1/graph/objects/{made['id']}"
    assert graph.agent.delete(path).status_code == 204
    assert graph.agent.get(path).status_code == 404
    shown = graph.agent.get(path, params={"include_deleted": "true"}).json()
    assert shown["version"] == 2
    assert shown["deleted_at"] is not None
    for answer, expected in (
        (graph.agent.delete(path), "already_deleted"),
        (graph.agent.patch(path, json={"status": "x"}), "already_deleted"),
    ):
        assert (answer.status_code, code(answer)) == (409, expected)
    for link in (kept, lost):
        assert graph.agent.get(f"/v1/graph/relationships/{link['id']}").status_code == 404
    assert graph.agent.get("/v1/graph/objects", params={"type": "A"}).json()["objects"] == []
    gone = graph.agent.get("/v1/graph/objects", params={"type": "A", "deleted": "true"}).json()["objects"]
    assert [found["id"] for found in gone] == [shown["id"]]
    graph.agent.delete(f"/v1/graph/objects/{far['id']}")
    restored = graph.agent.post(f"{path}/restore")
    back = restored.json()["object"]
    assert (restored.status_code, restored.headers["etag"], back["version"], back["deleted_at"]) == (
        200,
        '"3"',
        3,
        None,
    )
    assert graph.agent.get(f"/v1/graph/relationships/{kept['id']}").json()["version"] == 3
    # Its other end is deleted.
    assert graph.agent.get(f"/v1/graph/relationships/{lost['id']}").status_code == 404
    again = graph.agent.post(f"{path}/restore")
    assert (again.status_code, code(again)) == (409, "not_deleted")
    told = graph.agent.get(f"{path}/versions", params={"includeChangeSummary": "true"}).json()["versions"]
    assert told[1]["change_summary"]["removed"] == ["/x"]
    assert told[1]["change_summary"]["meta"]["deleted"] is True
    assert told[0]["change_summary"]["meta"]["restored"] is True
    links = graph.agent.get(
        f"/v1/graph/relationships/{lost['id']}/versions", params={"includeChangeSummary": "true"}
    ).json()["versions"]
    assert links[0]["change_summary"]["removed"] == ["/p"]


def test_listed_by_what_they_are(graph: Graph) -> None:
    one = graph.make("Task", status="open", labels=["red", "big"], key="t1", properties={"o": {"team": "core", "n": 1}})
    two = graph.make("Task", status="done", labels=["red"], key="t2", properties={"o": {"team": "core"}}, subtype="bug")
    three = graph.make("Note", status="open", properties={"tags": ["a", "b"]})

    def ids(**params: Any) -> list[str]:
        answer = graph.agent.get("/v1/graph/objects", params=params)
        assert answer.status_code == 200, answer.text
        return [found["id"] for found in answer.json()["objects"]]

    assert ids() == [three["id"], two["id"], one["id"]]
    assert ids(type="Task") == [two["id"], one["id"]]
    assert ids(type="Nothing") == []
    assert ids(status="open") == [three["id"], one["id"]]
    assert ids(key="t2") == [two["id"]]
    assert ids(subtype="bug") == [two["id"]]
    assert ids(label="red") == [two["id"], one["id"]]
    assert ids(label=["red", "big"]) == [one["id"]]
    assert ids(properties='{"o": {"team": "core"}}') == [two["id"], one["id"]]
    assert ids(properties='{"o": {"team": "core", "n": 1}}', status="open", label="red") == [one["id"]]
    assert ids(properties='{"tags": ["b"]}') == [three["id"]]
    assert ids(type="Task", limit=1) == [two["id"]]
    assert ids(label="' OR true --") == []


@pytest.mark.parametrize(
    "text", ["[]", "1", "{", '{"a": }', "null", '{"a": "\\u0000"}', "{'a': 1}", '{"a": 1e999}', "[" * 2000]
)
def test_a_filter_that_is_no_json_object(graph: Graph, text: str) -> None:
    answer = graph.agent.get("/v1/graph/objects", params={"properties": text})
    assert answer.status_code == 400, answer.text


def test_listed_by_pages_with_every_filter(graph: Graph) -> None:
    made = [graph.make("Task", labels=["x"], properties={"g": 1})["id"] for _ in range(7)]
    for params in ({}, {"type": "Task"}, {"label": "x"}, {"properties": '{"g": 1}'}):
        found, cursor = [], None
        while True:
            page = graph.agent.get(
                "/v1/graph/objects", params={**params, "limit": 3, **({"cursor": cursor} if cursor else {})}
            )
            found += [thing["id"] for thing in page.json()["objects"]]
            cursor = page.json()["next_cursor"]
            if cursor is None:
                break
        assert found == made[::-1]


def test_titles(graph: Graph) -> None:
    assert graph.make(properties={"title": " From here "})["title"] == "From here"
    assert graph.make(properties={"name": "Named", "title": 3})["title"] == "Named"
    assert graph.make(key="k-1")["title"] == "k-1"
    assert graph.make(title="Mine", properties={"title": "Other"})["title"] == "Mine"
    assert graph.make()["title"] is None
    followed = graph.make(properties={"title": "One"})
    assert graph.patch(followed, properties={"title": "Two"})["title"] == "Two"
    fixed = graph.patch(followed, title="Fixed")
    assert graph.patch(fixed, properties={"title": "Three"})["title"] == "Fixed"
    assert graph.patch(fixed, title=None)["title"] == "Three"


@pytest.mark.parametrize(
    ("fields", "status", "expected"),
    [
        ({"type": ""}, 400, "invalid_request"),
        ({"type": "a\u0001b"}, 400, "invalid_request"),
        ({"properties": []}, 400, "invalid_request"),
        ({"properties": None}, 400, "invalid_request"),
        ({"labels": ["x"] * 65}, 400, "invalid_request"),
        ({"labels": [""]}, 400, "invalid_request"),
        ({"key": "k" * 257}, 400, "invalid_request"),
        ({"unknown": 1}, 400, "invalid_request"),
        ({"effective_from": "2026-01-01"}, 400, "invalid_request"),
        ({"effective_from": "2026-02-01T00:00:00Z", "effective_to": "2026-01-01T00:00:00Z"}, 400, "invalid_period"),
        ({"properties": {"big": "x" * 300_000}}, 413, "too_large"),
        ({"evidence": ["x" * 70_000]}, 413, "too_large"),
        ({"properties": {"n": 10**301}}, 400, "number_out_of_range"),
        ({"schema_version": 3}, 400, "schema_version_unknown"),
        ({"branch_id": str(uuid.uuid4())}, 404, "branch_not_found"),
        ({"properties": {"a": "\u0000"}}, 400, "invalid_text"),
    ],
)
def test_what_cannot_be_an_object(graph: Graph, fields: dict[str, Any], status: int, expected: str) -> None:
    answer = graph.agent.post("/v1/graph/objects", json={"type": "Thing", **fields})
    assert (answer.status_code, code(answer)) == (status, expected), answer.text
    assert graph.agent.get("/v1/graph/objects").json()["objects"] == []


def test_properties_that_are_nested_too_deep(graph: Graph) -> None:
    deep: Any = 1
    for _ in range(33):
        deep = {"a": deep}
    answer = graph.agent.post("/v1/graph/objects", json={"type": "Thing", "properties": deep})
    assert (answer.status_code, code(answer)) == (400, "too_deep")


def test_large_numbers_come_back_as_they_are(graph: Graph) -> None:
    properties = {"big": 10**40, "small": -(2**70), "float": 1e22, "tiny": 1e-9, "half": 0.5, "zero": 0}
    made = graph.make(properties=properties)
    assert graph.agent.get(f"/v1/graph/objects/{made['id']}").json()["properties"] == properties
    assert graph.patch(made, properties={"big": 10**41})["properties"]["big"] == 10**41


def test_scopes(graph: Graph) -> None:
    made = graph.make()
    path = f"/v1/graph/objects/{made['id']}"
    assert graph.reader.get(path).status_code == 200
    for answer in (
        graph.reader.post("/v1/graph/objects", json={"type": "T"}),
        graph.reader.post("/v1/graph/batch", json={"objects": [{"type": "T"}]}),
        graph.reader.patch(path, json={"status": "x"}),
        graph.reader.delete(path),
        graph.reader.post(f"{path}/restore"),
        graph.reader.post("/v1/graph/relationships", json={"type": "T", "src_id": made["id"], "dst_id": made["id"]}),
        graph.reader.post("/v1/graph/schemas/objects", json={"type": "T"}),
    ):
        assert (answer.status_code, code(answer)) == (403, "missing_scope")


def test_the_same_request_twice(graph: Graph) -> None:
    body, headers = {"type": "Thing", "properties": {"a": 1}}, {"idempotency-key": "once"}
    first = graph.agent.post("/v1/graph/objects", json=body, headers=headers)
    second = graph.agent.post("/v1/graph/objects", json=body, headers=headers)
    assert second.json() == first.json()
    assert second.headers["idempotency-replayed"] == "true"
    assert len(graph.agent.get("/v1/graph/objects").json()["objects"]) == 1


def test_objects_on_branches(graph: Graph, superuser: psycopg.Connection[Any]) -> None:
    branch = str(uuid.uuid4())
    superuser.execute(
        "INSERT INTO branches (tenant_id, branch_id, project_id, name, created_at) "
        "VALUES (%s, %s, 'one', 'next', now())",
        (graph.tenant, branch),
    )
    there, here = graph.make(branch_id=branch, key="k"), graph.make(key="k")
    assert there["branch_id"] == branch != here["branch_id"]
    missing = graph.agent.get(f"/v1/graph/objects/{there['id']}")
    assert (missing.status_code, code(missing)) == (404, "object_not_found_on_branch")
    assert graph.agent.get(f"/v1/graph/objects/{there['id']}", params={"branch_id": branch}).json()["id"] == there["id"]
    assert [o["id"] for o in graph.agent.get("/v1/graph/objects").json()["objects"]] == [here["id"]]
    on_branch = graph.agent.get("/v1/graph/objects", params={"branch_id": branch}).json()["objects"]
    assert [found["id"] for found in on_branch] == [there["id"]]
    body = {"type": "r", "src_id": here["id"], "dst_id": there["id"]}
    crossed = graph.agent.post("/v1/graph/relationships", json=body)
    assert (crossed.status_code, code(crossed)) == (400, "relationship_branch_mismatch")


def test_every_project_has_a_main_branch(graph: Graph, superuser: psycopg.Connection[Any]) -> None:
    rows = superuser.execute(
        "SELECT project_id, name FROM branches WHERE tenant_id = %s ORDER BY project_id NULLS FIRST", (graph.tenant,)
    ).fetchall()
    assert rows == [(None, "main"), ("one", "main"), ("two", "main")]


def test_changes_are_on_record(graph: Graph, superuser: psycopg.Connection[Any]) -> None:
    graph.register("object", "Doc", json_schema={"properties": {"private": {}}})
    made = graph.make("Doc", properties={"private": "words that are nobody's business"})
    graph.patch(made, properties={"private": "other words", "Zorblax": {"diagnosis": 1}})
    events = superuser.execute(
        "SELECT details FROM audit_log WHERE tenant_id = %s AND event_type = 'object_write' ORDER BY created_at",
        (graph.tenant,),
    ).fetchall()
    first, second = (details for (details,) in events)
    assert first["made"] == [made["id"]]
    # Names that the type declares, and no others: they might be anybody's words.
    assert (second["canonical_id"], second["version"], second["paths"]) == (made["id"], 2, ["/private"])
    assert "Zorblax" not in str(events)
    assert second["meta"]["updated"] == 1
    assert "words" not in str(events)


def test_metrics_of_changes(graph: Graph, service: Any) -> None:
    graph.make(properties={f"k{n}": "x" * 250 for n in range(100)})
    text = httpx.get(f"{service.url}/metrics").text
    for name in ("palimpsest_change_paths_count", "palimpsest_change_summary_size_bytes_count"):
        assert name in text
    (line,) = [line for line in text.splitlines() if line.startswith("palimpsest_change_truncated_total")]
    assert float(line.split()[1]) >= 1


def test_a_merge_patch_by_its_own_media_type(graph: Graph) -> None:
    made = graph.make(properties={"a": 1})
    answer = graph.agent.patch(
        f"/v1/graph/objects/{made['id']}",
        content=b'{"properties": {"a": null, "b": 2}}',
        headers={"content-type": "application/merge-patch+json"},
    )
    assert answer.status_code == 200, answer.text
    assert answer.json()["object"]["properties"] == {"b": 2}
