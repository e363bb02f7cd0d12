"""Traversal in pages: each node and edge is on exactly one page, forward and backward."""

import json
from typing import Any

import httpx
import pytest

from tests.objects.traversal.shared import Graph, new_id, ordered


def pages(graph: Graph, letters: str, **asked: Any) -> list[dict[str, Any]]:
    """Return all pages, forward."""
    found = [graph.traverse(letters, **asked)]
    while (cursor := found[-1]["next_cursor"]) is not None:
        found.append(graph.traverse(letters, cursor=cursor, **asked))
    return found


def tangle(graph: Graph) -> None:
    letters = "abcdefghijkl"
    for number, letter in enumerate(letters):
        for other in (letters[number // 2], letters[(number * 5 + 3) % len(letters)]):
            if letter != other and f"{letter} knows {other}" not in graph.edges:
                graph.link(f"{letter} knows {other}")


def test_the_answer_as_a_whole(graph: Graph) -> None:
    graph.put("a", type="Meeting", key="m", labels=["x"])
    graph.draw("a knows b")
    assert graph.traverse("a a") == {
        "roots": [graph.ids["a"]],
        "nodes": [
            {"id": graph.ids["a"], "depth": 0, "type": "Meeting", "key": "m", "labels": ["x"]},
            {"id": graph.ids["b"], "depth": 1, "type": "Thing", "key": None, "labels": []},
        ],
        "edges": [
            {"id": graph.edges["a knows b"], "type": "knows", "src_id": graph.ids["a"], "dst_id": graph.ids["b"]}
        ],
        "truncated": False, "max_depth_reached": 1, "total_nodes": 2, "has_next_page": False,
        "has_previous_page": False, "next_cursor": None, "previous_cursor": None, "approx_position_start": 0,
        "approx_position_end": 1,
    }  # fmt: skip


def test_depths_directions_and_filters(graph: Graph) -> None:
    graph.put("d", type="Other", labels=["x"])
    graph.draw("a knows b", "b likes c", "d knows a", "d knows e")

    def near(letters: str, **asked: Any) -> str:
        return " ".join(
            f"{graph.letter(node['id'])}{node['depth']}" for node in graph.traverse(letters, **asked)["nodes"]
        )

    assert near("a", max_depth=0) == "a0"
    assert sorted(near("a").split()) == ["a0", "b1", "c2", "d1", "e2"]
    assert near("a", direction="out") == "a0 b1 c2"
    assert near("a", direction="in") == "a0 d1"
    assert near("a", relationship_types=["knows"], direction="out") == "a0 b1"
    assert near("a", object_types=["Thing"]) == "a0 b1 c2"
    # Filters apply to roots too; who fails is not walked through.
    assert near("a", labels=["x"]) == ""
    assert near("a d", labels=["x"]) == "d0"
    assert near("a", object_types=["Nothing"]) == ""


@pytest.mark.parametrize("limit", [1, 2, 3, 5, 50])
def test_the_pages_together_are_everything_once(graph: Graph, limit: int) -> None:
    tangle(graph)
    whole = graph.traverse("a", max_depth=8, limit=200)
    found = pages(graph, "a", max_depth=8, limit=limit)
    assert [node for page in found for node in page["nodes"]] == whole["nodes"]
    keys = [(node["depth"], node["id"]) for node in whole["nodes"]]
    assert keys == sorted(keys)
    assert ordered([edge["id"] for page in found for edge in page["edges"]]) == ordered(list(graph.edges.values()))
    seen: set[str] = set()
    for number, page in enumerate(found):
        seen |= {node["id"] for node in page["nodes"]}
        assert all({edge["src_id"], edge["dst_id"]} <= seen for edge in page["edges"])
        assert page["total_nodes"] == len(whole["nodes"])
        assert page["approx_position_start"] == number * limit
        assert page["has_previous_page"] == (number > 0)
    back = [found[-1]]
    while (cursor := back[-1]["previous_cursor"]) is not None:
        back.append(graph.traverse("a", max_depth=8, limit=limit, cursor=cursor, page_direction="backward"))
    assert [node for page in reversed(back) for node in page["nodes"]] == whole["nodes"]
    assert back[-1]["has_previous_page"] is False
    assert graph.traverse("a", max_depth=8, limit=limit, page_direction="backward")["nodes"] == whole["nodes"][-limit:]


def test_caps(graph: Graph) -> None:
    tangle(graph)
    few = graph.traverse("a", max_nodes=3)
    assert (few["truncated"], few["total_nodes"]) == (True, 3)
    few = graph.traverse("a", max_edges=2, max_depth=8)
    assert few["truncated"] is True
    assert len(few["edges"]) == 2
    assert graph.traverse("a", max_depth=8)["truncated"] is False


def test_cursors_fit_their_walk_alone(graph: Graph, elsewhere: httpx.Client) -> None:
    tangle(graph)
    cursor = graph.traverse("a", limit=2)["next_cursor"]
    body = {"root_ids": graph.roots("a"), "limit": 2, "cursor": cursor}
    assert graph.client.post("/v1/graph/traverse", json=body).status_code == 200
    for change in (
        {"max_depth": 3},
        {"root_ids": graph.roots("b")},
        {"direction": "out"},
        {"labels": ["x"]},
        {"cursor": "x"},
    ):
        refused = graph.client.post("/v1/graph/traverse", json=body | change)
        assert (refused.status_code, refused.json()["error"]["code"]) == (400, "cursor_invalid"), change
    assert elsewhere.post("/v1/graph/traverse", json=body).status_code == 400


def test_bounds_of_the_request(graph: Graph) -> None:
    graph.put("a")
    for asked in (
        {"max_depth": 9}, {"max_depth": -1}, {"max_nodes": 0}, {"max_nodes": 5001}, {"max_edges": 10_001}, {"limit": 0},
        {"limit": 201}, {"direction": "outbound"}, {"relationship_types": ["x"] * 33}, {"object_types": ["x"] * 65},
        {"labels": ["x"] * 65}, {"root_ids": []}, {"root_ids": [new_id() for _ in range(51)]}, {"page_direction": "up"},
        {"x": 1},
    ):  # fmt: skip
        body = {"root_ids": graph.roots("a"), **asked}
        assert graph.client.post("/v1/graph/traverse", json=body).status_code == 400, asked
    answer = graph.client.post("/v1/graph/traverse", json={"root_ids": [new_id()]})
    assert (answer.status_code, answer.json()["error"]["code"]) == (404, "object_not_found")


def test_what_is_told_of_it(graph: Graph, service: object) -> None:
    tangle(graph)
    marked = {"X-Request-Id": new_id()}
    body = {"root_ids": graph.roots("a"), "limit": 2}
    assert graph.client.post("/v1/graph/traverse", json=body, headers=marked).status_code == 200
    lines = [json.loads(line) for line in service.output().splitlines() if marked["X-Request-Id"] in line]  # type: ignore[attr-defined]
    (told,) = [line for line in lines if line["event"] == "graph.traverse.page"]
    assert told.pop("total_nodes") > 2
    assert told.pop("elapsed_ms") > 0
    assert told.pop("ts") > 1_700_000_000_000
    for name in ("timestamp", "level", "request_id"):
        told.pop(name)
    assert told == {
        "event": "graph.traverse.page", "type": "graph.traverse.page", "tenant": "acme", "roots_count": 1,
        "direction": "both", "page_direction": "forward", "requested_limit": 2, "effective_limit": 2,
        "page_item_count": 2, "has_next_page": True, "has_previous_page": False, "max_depth_requested": 2,
        "max_depth_reached": 2, "truncated": False, "approx_position_start": 0, "approx_position_end": 1,
        "next_cursor_set": True, "prev_cursor_set": False,
    }  # fmt: skip
    assert 'palimpsest_graph_walk_seconds_count{operation="traverse"}' in graph.client.get("/metrics").text
