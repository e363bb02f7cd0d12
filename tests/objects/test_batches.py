"""Batches of objects and relationships in one transaction."""

from typing import Any

import pytest

from tests.objects.conftest import Graph, code


def send(graph: Graph, **batch: Any) -> Any:
    return graph.agent.post("/v1/graph/batch", json=batch)


def count(graph: Graph) -> tuple[int, int]:
    objects = graph.agent.get("/v1/graph/objects", params={"limit": 200}).json()["objects"]
    links = graph.agent.get("/v1/graph/relationships", params={"limit": 200}).json()["relationships"]
    return len(objects), len(links)


def test_objects_that_refer_to_each_other(graph: Graph) -> None:
    known = graph.make("Person")
    answer = send(
        graph,
        objects=[{"ref": "m", "type": "Meeting"}, {"ref": "d", "type": "Decision", "key": "k"}, {"type": "Loose"}],
        relationships=[
            {"type": "decides", "src_ref": "m", "dst_ref": "d", "weight": 0.5},
            {"type": "attended_by", "src_ref": "m", "dst_id": known["id"]},
            {"type": "decides", "src_ref": "m", "dst_ref": "d", "weight": 0.5},
        ],
    )
    assert answer.status_code == 201, answer.text
    done = answer.json()
    made = {item["ref"]: item["object"]["id"] for item in done["objects"]}
    assert [item["outcome"] for item in done["relationships"]] == ["created", "created", "unchanged"]
    first = done["relationships"][0]["relationship"]
    assert (first["src_id"], first["dst_id"]) == (made["m"], made["d"])
    assert done["relationships"][1]["relationship"]["dst_id"] == known["id"]
    assert count(graph) == (4, 2)


@pytest.mark.parametrize(
    ("batch", "status", "expected", "place"),
    [
        ({"objects": [{"type": "A"}, {"type": ""}]}, 400, "invalid_request", "objects[1]"),
        ({"objects": [{"type": "A", "key": "k"}, {"type": "A", "key": "k"}]}, 409, "object_key_exists", "objects[1]"),
        ({"objects": [{"type": "Strict", "properties": {}}]}, 422, "object_schema_validation_failed", "objects[0]"),
        ({"objects": [{"ref": "a", "type": "A"}, {"ref": "a", "type": "A"}]}, 400, "ref_not_unique", "objects[1]"),
        (
            {"objects": [{"type": "A"}], "relationships": [{"type": "r", "src_ref": "x", "dst_ref": "y"}]},
            400, "ref_unknown", "relationships[0]",
        ),
        (
            {"objects": [{"ref": "a", "type": "A"}], "relationships": [{"type": "r", "src_ref": "a", "dst_ref": "a"}]},
            400, "self_loop_not_allowed", "relationships[0]",
        ),
        (
            {"objects": [{"ref": "a", "type": "A"}], "relationships": [{"type": "r", "src_ref": "a"}]},
            400, "invalid_request", "relationships[0]",
        ),
        (
            {
                "objects": [{"ref": n, "type": "A"} for n in "abc"],
                "relationships": [{"type": "one", "src_ref": "a", "dst_ref": n} for n in "bc"],
            },
            400, "relationship_multiplicity_violation", "relationships[1]",
        ),
        ({}, 400, "batch_empty", "objects"),
        ({"objects": [{"type": "A"}] * 600, "relationships": [{"type": "r"}] * 401}, 400, "batch_too_large", "objects"),
        ({"objects": [{"type": "A"}], "atomic": False}, 400, "invalid_request", "atomic"),
    ],
)  # fmt: skip
def test_the_first_error_undoes_all(graph: Graph, batch: Any, status: int, expected: str, place: str) -> None:
    graph.register("object", "Strict", json_schema={"required": ["x"]})
    graph.register("relationship", "one", multiplicity={"src": "one"})
    answer = send(graph, **batch)
    assert (answer.status_code, code(answer)) == (status, expected), answer.text
    assert answer.json()["error"]["message"].startswith(place)
    assert count(graph) == (0, 0)


def test_a_thousand_at_once(graph: Graph) -> None:
    objects = [{"ref": f"o{n}", "type": "Node", "key": f"k{n}", "properties": {"n": n}} for n in range(500)]
    links = [{"type": "next", "src_ref": f"o{n}", "dst_ref": f"o{(n + 1) % 500}"} for n in range(500)]
    answer = graph.agent.post("/v1/graph/objects/batch", json={"objects": objects, "relationships": links})
    assert answer.status_code == 201, answer.text
    found = graph.agent.get("/v1/graph/objects", params={"key": "k499"}).json()["objects"]
    assert found[0]["properties"] == {"n": 499}
    again = graph.agent.post("/v1/graph/objects/batch", json={"objects": objects[:1]})
    assert code(again) == "object_key_exists"


def test_a_batch_once(graph: Graph) -> None:
    headers = {"idempotency-key": "b"}
    batch = {"objects": [{"type": "A"}]}
    first = graph.agent.post("/v1/graph/batch", json=batch, headers=headers)
    assert graph.agent.post("/v1/graph/batch", json=batch, headers=headers).json() == first.json()
    assert count(graph) == (1, 0)
