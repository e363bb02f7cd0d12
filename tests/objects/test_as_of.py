"""Lists and walks at a past time: what was recorded then."""

from typing import Any

import httpx
import pytest

from tests.objects.conftest import Graph, code


def moment(thing: dict[str, Any]) -> str:
    """Return when the version that a write has returned was recorded."""
    return thing.get("updated_at") or thing["created_at"]


def deleted_at(graph: Graph, kind: str, thing: dict[str, Any]) -> str:
    """Delete something and return when its deletion was recorded."""
    path = f"/v1/graph/{kind}/{thing['canonical_id']}"
    assert graph.agent.delete(path).status_code == 204
    return graph.agent.get(f"{path}/versions").json()["versions"][0]["created_at"]


def listed(graph: Graph, kind: str, **params: Any) -> list[dict[str, Any]]:
    answer = graph.admin.get(f"/v1/graph/{kind}", params=params)
    assert answer.status_code == 200, answer.text
    return answer.json()[kind]


def test_a_list_of_objects_at_a_past_time(graph: Graph) -> None:
    first = graph.make("Task", key="a", status="open", labels=["red"], properties={"n": 1})
    second = graph.make("Task", key="b", status="open")
    then = moment(second)
    changed = graph.patch(first, status="done", labels=[], properties={"n": 2})
    later = moment(changed)
    graph.make("Task", key="c")
    gone = deleted_at(graph, "objects", second)

    def keys(at: str | None, **filters: Any) -> list[tuple[str, str | None]]:
        found = listed(graph, "objects", **({} if at is None else {"as_of": at}), **filters)
        return [(one["key"], one["status"]) for one in found]

    assert keys(then) == [("b", "open"), ("a", "open")]
    assert keys(later) == [("b", "open"), ("a", "done")]
    assert keys(None) == keys(gone) == [("c", None), ("a", "done")]
    # The filters apply to what was recorded then.
    assert keys(then, status="done") == []
    assert keys(later, status="done", key="a", type="Task") == [("a", "done")]
    assert keys(then, label="red", properties='{"n": 1}') == [("a", "open")]
    assert keys(later, label="red") == keys(later, properties='{"n": 1}') == []
    assert keys(later, deleted=True) == []
    assert keys(gone, deleted=True) == [("b", "open")]
    assert keys(moment(first)) == [("a", "open")]
    (version,) = listed(graph, "objects", as_of=then, key="a")
    assert (version["version"], version["is_head"], version["properties"]) == (1, False, {"n": 1})


def test_a_list_of_relationships_at_a_past_time(graph: Graph) -> None:
    a, b, c = (graph.make(key=key) for key in "abc")
    link = graph.link(a, b, weight=0.1)
    other = graph.link(b, c)
    then = moment(other)
    heavier = graph.link(a, b, weight=0.2)
    gone = deleted_at(graph, "relationships", other)

    def weights(at: str, **filters: Any) -> list[float | None]:
        return [one["weight"] for one in listed(graph, "relationships", as_of=at, **filters)]

    assert weights(then) == [None, 0.1]
    assert weights(moment(link)) == [0.1]
    assert weights(moment(heavier)) == [None, 0.2]
    assert weights(gone) == [0.2]
    assert weights(then, src_id=b["id"]) == weights(then, dst_id=c["id"], type="relates_to") == [None]
    assert weights(then, object_id=b["id"]) == [None, 0.1]
    assert weights(gone, object_id=c["id"]) == []


def test_pages_at_a_past_time_stay_as_they_are(graph: Graph) -> None:
    made = [graph.make(key=str(n), status="open") for n in range(5)]
    then, found, cursor = moment(made[-1]), [], None
    while True:
        params = {"as_of": then, "limit": 2} | ({"cursor": cursor} if cursor else {})
        page = graph.admin.get("/v1/graph/objects", params=params).json()
        found += [(one["key"], one["status"]) for one in page["objects"]]
        # Writes between two pages change nothing.
        deleted_at(graph, "objects", made.pop(0)) if made else None
        graph.make(key=f"later {len(found)}")
        cursor = page["next_cursor"]
        if cursor is None:
            break
    assert found == [(str(n), "open") for n in reversed(range(5))]
    other = graph.admin.get("/v1/graph/objects", params={"limit": 2, "as_of": then}).json()["next_cursor"]
    mixed = graph.admin.get("/v1/graph/objects", params={"limit": 2, "cursor": other})
    assert (mixed.status_code, code(mixed)) == (400, "cursor_invalid")


def walk(graph: Graph, root: dict[str, Any], *, client: httpx.Client | None = None, **more: Any) -> httpx.Response:
    return (client or graph.admin).post("/v1/graph/expand", json={"roots": [root["id"]], **more})


def test_expand_at_a_past_time(graph: Graph) -> None:
    a, b, c = (graph.make("Node", key=key, status="old") for key in "abc")
    graph.link(a, b, weight=0.1, properties={"n": 1})
    gone_link = graph.link(b, c)
    then = moment(gone_link)
    graph.patch(b, status="new", title="B2")
    graph.link(a, b, weight=0.9, properties={"n": 2})
    d = graph.make("Node", key="d")
    graph.link(a, d)
    deleted_at(graph, "objects", c)

    def nodes(**more: Any) -> list[tuple[str, str | None, int]]:
        found = walk(graph, a, include={"object": ["key", "status"]}, **more)
        assert found.status_code == 200, found.text
        return [(one["key"], one["status"], one["depth"]) for one in found.json()["nodes"]]

    assert nodes() == [("a", "old", 0), ("b", "new", 1), ("d", None, 1)]
    assert nodes(asOf=then) == [("a", "old", 0), ("b", "old", 1), ("c", "old", 2)]
    # Filters and fields are of what was recorded then.
    assert nodes(asOf=then, filters={"node": {"status": "new"}}) == [("a", "old", 0)]
    assert nodes(asOf=then, filters={"edge": {"/properties/n": 1}}) == [("a", "old", 0), ("b", "old", 1)]
    assert nodes(asOf=then, nodeTypes=["Node"], edgeTypes=["relates_to"], direction="outbound")[-1] == ("c", "old", 2)
    edges = walk(graph, a, asOf=then, include={"edge": ["weight", "properties", "version"]}).json()["edges"]
    assert [(one["weight"], one["properties"], one["version"]) for one in edges] == [(0.1, {"n": 1}, 1), (None, {}, 1)]
    inbound = walk(graph, c, asOf=then, direction="inbound", include={"object": ["key"]}).json()
    assert [one["key"] for one in inbound["nodes"]] == ["c", "b", "a"]
    paths = walk(graph, a, asOf=then, returnPaths=True, dedupe="path").json()["paths"]
    assert len(paths) == 3
    missing = walk(graph, d, asOf=then)
    assert (missing.status_code, code(missing)) == (404, "object_not_found")


def test_traverse_at_a_past_time(graph: Graph) -> None:
    a = graph.make(key="a")
    leaves = [graph.make(key=str(n)) for n in range(4)]
    then = moment([graph.link(a, leaf) for leaf in leaves][-1])
    deleted_at(graph, "objects", leaves[0])
    graph.link(a, graph.make(key="new"))

    def keys(**more: Any) -> list[str]:
        found, cursor = [], None
        while True:
            body = {"root_ids": [a["id"]], "limit": 2, **more} | ({"cursor": cursor} if cursor else {})
            page = graph.admin.post("/v1/graph/traverse", json=body).json()
            found += [one["key"] for one in page["nodes"]]
            cursor = page["next_cursor"]
            if cursor is None:
                return found

    assert keys() == ["a", "1", "2", "3", "new"]
    assert keys(as_of=then) == ["a", "0", "1", "2", "3"]


@pytest.mark.parametrize("path", ["/v1/graph/objects", "/v1/graph/relationships"])
def test_times_that_cannot_be_asked_for(graph: Graph, path: str) -> None:
    a = graph.make(key="a")
    unscoped = graph.agent.get(path, params={"as_of": moment(a)})
    assert (unscoped.status_code, code(unscoped)) == (403, "missing_scope")
    future = graph.admin.get(path, params={"as_of": "2999-01-01T00:00:00Z"})
    assert (future.status_code, code(future)) == (400, "as_of_future")
    garbled = graph.admin.get(path, params={"as_of": "then"})
    assert (garbled.status_code, code(garbled)) == (400, "as_of_invalid_timestamp")
    unscoped = walk(graph, a, client=graph.agent, asOf=moment(a))
    assert (unscoped.status_code, code(unscoped)) == (403, "missing_scope")
    settings = graph.admin.patch("/v1/admin/projects/one", json={"as_of_floor": "2026-01-01T00:00:00Z"})
    assert settings.status_code == 200, settings.text
    early = {"as_of": "2025-01-01T00:00:00Z"}
    below = graph.admin.get(path, params=early)
    assert (below.status_code, code(below)) == (400, "as_of_before_retention_floor")
    below = walk(graph, a, asOf=early["as_of"])
    assert (below.status_code, code(below)) == (400, "as_of_before_retention_floor")
    below = graph.admin.post("/v1/graph/traverse", json={"root_ids": [a["id"]], **early})
    assert (below.status_code, code(below)) == (400, "as_of_before_retention_floor")


def test_a_branch_and_a_past_time_cannot_be_combined(graph: Graph) -> None:
    made = graph.make(key="a")
    params = {"as_of": moment(made), "branch_id": made["branch_id"]}
    refused = graph.admin.get("/v1/graph/objects", params=params)
    assert refused.status_code == 400
    assert "branch_id" in refused.json()["error"]["message"]


def test_another_tenant_sees_nothing_of_the_past(graph: Graph, rival: Graph) -> None:
    made = graph.make(key="a")
    assert listed(rival, "objects", as_of=moment(rival.make(key="b")))[0]["key"] == "b"
    assert walk(rival, made, asOf=moment(made)).status_code == 404
