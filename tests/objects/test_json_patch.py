"""JSON Patches of objects and relationships."""

from typing import Any

import httpx
import msgspec
import pytest

from app.errors import AppError, TooLarge
from app.objects.json_patch import PatchOperation, apply_operations
from tests.objects.conftest import Graph, code

HEADERS = {"content-type": "application/json-patch+json"}


def send(graph: Graph, thing: dict[str, Any], *operations: dict[str, Any], kind: str = "objects") -> httpx.Response:
    path = f"/v1/graph/{kind}/{thing['canonical_id']}"
    return graph.agent.patch(path, content=msgspec.json.encode(operations), headers=HEADERS)


def run(document: Any, *operations: dict[str, Any]) -> Any:
    return apply_operations(document, msgspec.convert(list(operations), list[PatchOperation]))


def test_a_property_can_be_set_to_null(graph: Graph) -> None:
    made = graph.make(properties={"owner": "core", "n": 1}, labels=["a"], status="open", key="k", title="Thing")
    patched = send(
        graph, made, {"op": "add", "path": "/properties/owner", "value": None},
        {"op": "add", "path": "/labels/-", "value": "b"}, {"op": "remove", "path": "/status"},
        {"op": "test", "path": "/properties/n", "value": 1},
    )  # fmt: skip
    assert patched.status_code == 200, patched.text
    now = patched.json()["object"]
    assert (now["properties"], now["labels"], now["status"]) == ({"owner": None, "n": 1}, ["a", "b"], None)
    assert (now["key"], now["title"], now["version"]) == ("k", "Thing", 2)
    stored = graph.agent.get(f"/v1/graph/objects/{made['id']}").json()
    assert stored["properties"] == {"owner": None, "n": 1}
    same = send(graph, made, {"op": "replace", "path": "/properties/owner", "value": None})
    assert (same.status_code, code(same)) == (409, "no_effective_change")
    # A merge patch removes what is null.
    assert graph.patch(made, properties={"owner": None})["properties"] == {"n": 1}


def test_a_json_patch_of_a_relationship(graph: Graph) -> None:
    link = graph.link(graph.make(), graph.make(), weight=0.5, properties={"a": [1, 2]})
    patched = send(
        graph, link, {"op": "replace", "path": "/properties/a/1", "value": None},
        {"op": "copy", "from": "/properties/a", "path": "/properties/b"},
        {"op": "move", "from": "/weight", "path": "/properties/w"}, kind="relationships",
    )  # fmt: skip
    assert patched.status_code == 200, patched.text
    now = patched.json()["relationship"]
    assert now["properties"] == {"a": [1, None], "b": [1, None], "w": 0.5}
    assert (now["weight"], now["src_id"]) == (None, link["src_id"])


@pytest.mark.parametrize(
    ("operation", "expected"),
    [
        ({"op": "test", "path": "/properties/n", "value": 2}, (409, "patch_test_failed")),
        ({"op": "remove", "path": "/properties/x"}, (409, "patch_path_missing")),
        ({"op": "replace", "path": "/labels/5", "value": "a"}, (409, "patch_path_missing")),
        ({"op": "add", "path": "properties", "value": 1}, (400, "patch_invalid")),
        ({"op": "add", "path": "/properties/n"}, (400, "patch_invalid")),
        ({"op": "move", "path": "/properties/n"}, (400, "patch_invalid")),
        ({"op": "move", "from": "/properties", "path": "/properties/n"}, (400, "patch_invalid")),
        ({"op": "add", "path": "/type", "value": "Other"}, (400, "patch_invalid")),
        ({"op": "replace", "path": "/status", "value": 5}, (400, "patch_invalid")),
        ({"op": "replace", "path": "", "value": []}, (400, "patch_invalid")),
        ({"op": "sort", "path": ""}, (400, "invalid_request")),
    ],
)
def test_a_json_patch_that_fails_changes_nothing(
    graph: Graph, operation: dict[str, Any], expected: tuple[int, str]
) -> None:
    made = graph.make(properties={"n": 1}, status="open")
    refused = send(graph, made, {"op": "add", "path": "/properties/m", "value": 2}, operation)
    assert (refused.status_code, code(refused)) == expected
    assert graph.agent.get(f"/v1/graph/objects/{made['id']}").json()["version"] == 1


def test_a_json_patch_is_checked_by_the_type(graph: Graph) -> None:
    graph.register("object", "T", json_schema={"properties": {"n": {"type": "integer"}}})
    made = graph.make("T", properties={"n": 1})
    refused = send(graph, made, {"op": "replace", "path": "/properties/n", "value": None})
    assert (refused.status_code, code(refused)) == (422, "object_schema_validation_failed")


@pytest.mark.parametrize(
    ("document", "operations", "expected"),
    [
        # Examples of RFC 6902, appendix A.
        ({"foo": "bar"}, [{"op": "add", "path": "/baz", "value": "qux"}], {"baz": "qux", "foo": "bar"}),
        ({"foo": ["bar", "baz"]}, [{"op": "add", "path": "/foo/1", "value": "qux"}], {"foo": ["bar", "qux", "baz"]}),
        ({"foo": ["bar", "qux", "baz"]}, [{"op": "remove", "path": "/foo/1"}], {"foo": ["bar", "baz"]}),
        ({"foo": [1, 2, 3, 4]}, [{"op": "move", "from": "/foo/1", "path": "/foo/3"}], {"foo": [1, 3, 4, 2]}),
        ({"foo": ["bar"]}, [{"op": "add", "path": "/foo/-", "value": ["abc"]}], {"foo": ["bar", ["abc"]]}),
        ({"/": 9, "~1": 10}, [{"op": "test", "path": "/~01", "value": 10}], {"/": 9, "~1": 10}),
        ({"foo": None}, [{"op": "replace", "path": "/foo", "value": [1]}], {"foo": [1]}),
        ({"a": {"b": 1}}, [{"op": "move", "from": "/a/b", "path": "/a/b"}], {"a": {"b": 1}}),
        ({"a": 1}, [{"op": "add", "path": "", "value": [2]}], [2]),
    ],
)
def test_operations(document: Any, operations: list[dict[str, Any]], expected: Any) -> None:
    assert run(document, *operations) == expected


def test_copies_do_not_grow_without_bound() -> None:
    doubling = [{"op": "copy", "from": "/a", "path": f"/a/{n}"} for n in range(60)]
    with pytest.raises(TooLarge):
        run({"a": {"x": "y" * 100}}, *doubling)
    with pytest.raises(AppError) as caught:
        run({}, *[{"op": "add", "path": "/a", "value": 1}] * 101)
    assert caught.value.code == "patch_too_long"


def test_who_wrote_a_version_is_shown(graph: Graph) -> None:
    made = graph.make(properties={"n": 1})
    path = f"/v1/graph/objects/{made['id']}"
    assert made["written_by"] == "robin"
    by_admin = graph.admin.patch(path, json={"status": "done"})
    name = by_admin.json()["object"]["written_by"]
    assert name != "robin"
    assert graph.agent.get(path).json()["written_by"] == name
    assert graph.agent.get("/v1/graph/objects").json()["objects"][0]["written_by"] == name
    versions = graph.agent.get(f"{path}/versions").json()["versions"]
    assert [version["written_by"] for version in versions] == [name, "robin"]
    link = graph.link(made, graph.make())
    listed = graph.agent.get("/v1/graph/relationships").json()["relationships"]
    assert (link["written_by"], listed[0]["written_by"]) == ("robin", "robin")
