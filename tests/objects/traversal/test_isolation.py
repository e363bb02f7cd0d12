"""Walks never reach other tenants, other projects or hidden rows; rows of no project are in every project."""

from typing import Any

import httpx
import pytest

from tests.objects.traversal.shared import Graph, Superuser


def statuses(client: httpx.Client, roots: list[str]) -> set[int]:
    return {
        client.post("/v1/graph/expand", json={"roots": roots}).status_code,
        client.post("/v1/graph/traverse", json={"root_ids": roots}).status_code,
    }


def test_other_tenants_and_projects(graph: Graph, elsewhere: httpx.Client, rival: httpx.Client) -> None:
    graph.draw("a knows b")
    graph.put("v", versions=2)
    for client in (elsewhere, rival):
        assert statuses(client, graph.roots("a b v v2")) == {404}
        refused = client.post("/v1/graph/expand", json={"roots": graph.roots("a")}).json()["error"]
        missing = client.post("/v1/graph/expand", json={"roots": ["00000000-0000-7000-8000-000000000000"]}).json()[
            "error"
        ]
        assert (refused["code"], refused["message"]) == (missing["code"], missing["message"])


def test_edges_into_other_places_lead_nowhere(graph: Graph, superuser: Superuser, rival: httpx.Client) -> None:
    other = Graph(superuser, graph.client, project="other")
    theirs = Graph(superuser, rival, tenant="rival")
    graph.ids |= {"o": other.put("o"), "t": theirs.put("t")}
    graph.draw("a knows b", "a knows o", "a knows t", "o knows c", "t knows d")
    assert graph.near("a") == "a0 b1"
    assert graph.crossed("a") == ["a knows b"]
    # And relationships of others to one's own objects are not followed.
    other.ids["b"] = theirs.ids["b"] = graph.ids["b"]
    other.draw("b knows o")
    theirs.draw("b knows t")
    assert graph.crossed("b", maxDepth=1) == ["a knows b"]


@pytest.mark.parametrize("level", [1, 2])
def test_what_is_suppressed_is_not_there(graph: Graph, level: int) -> None:
    graph.put("s", suppression=level)
    graph.draw("a knows s", "s knows b", "a knows c")
    graph.link("a knows d", suppression=level)
    assert graph.near("a") == "a0 c1"
    assert graph.crossed("a") == ["a knows c"]
    assert graph.refused("s")[:2] == (404, "object_not_found")
    found = graph.traverse("a")
    assert {node["id"] for node in found["nodes"]} == set(graph.roots("a c"))


def test_what_belongs_to_no_project_is_in_each(
    graph: Graph, elsewhere: httpx.Client, rival: httpx.Client, superuser: Superuser
) -> None:
    shared = Graph(superuser, graph.client, project=None)
    shared.draw("x knows y")
    graph.ids |= shared.ids
    graph.edges |= shared.edges
    graph.draw("a knows x", "a knows b")
    assert graph.near("a") == "a0 b1 x1 y2"
    assert graph.crossed("a") == ["a knows b", "a knows x", "x knows y"]
    assert graph.near("y", nodeTypes=["Thing"], filters={"edge": {"weight": {"exists": False}}}) == "y0 x1 a2"
    # From another project the relationship of this one is not seen.
    answer = elsewhere.post("/v1/graph/expand", json={"roots": graph.roots("x")}).json()
    assert {node["id"] for node in answer["nodes"]} == set(graph.roots("x y"))
    assert statuses(rival, graph.roots("x y")) == {404}


def test_the_heaviest_of_both_branches_together(graph: Graph, superuser: Superuser) -> None:
    shared = Graph(superuser, graph.client, project=None)
    shared.link("x knows y", weight=0.5)
    shared.link("z knows x", weight=0.9)
    graph.ids |= shared.ids
    graph.edges |= shared.edges
    graph.link("a knows x", weight=0.7)
    graph.link("x knows b", weight=0.3)
    told: dict[str, Any] = graph.expand("x", maxDepth=1, limitEdgesPerNode=2)
    assert {graph.edge(edge["id"]) for edge in told["edges"]} == {"z knows x", "a knows x"}
    assert told["meta"]["overflowType"] == "edge"
