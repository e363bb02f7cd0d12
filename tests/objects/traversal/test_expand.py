"""Expand: levels, directions, filters, limits, paths, phases, times and fields."""

import json
from datetime import UTC, datetime
from uuid import UUID, uuid4

import httpx
import pytest

from tests.conftest import Tenancy
from tests.objects.traversal.shared import Graph, Superuser, moment, new_id, ordered


def test_levels_and_directions(graph: Graph) -> None:
    graph.draw("a knows b", "b knows c", "c knows d", "e knows a")
    assert graph.near("a") == "a0 b1 e1 c2"
    assert graph.near("a", maxDepth=1) == "a0 b1 e1"
    assert graph.near("a", maxDepth=6) == "a0 b1 e1 c2 d3"
    assert graph.near("a", direction="outbound", maxDepth=6) == "a0 b1 c2 d3"
    assert graph.near("a", direction="inbound", maxDepth=6) == "a0 e1"
    assert graph.near("b d", maxDepth=1) == "b0 d0 a1 c1"


def test_the_answer_as_a_whole(graph: Graph) -> None:
    graph.put("a", type="Meeting", key="m-1", title='Review "34"', status="done", labels=["x", "y"])
    graph.link("a decides b", weight=0.5)
    found = graph.expand("a")
    assert found["nodes"] == [
        {"id": graph.ids["a"], "version": 1, "type": "Meeting", "key": "m-1", "title": 'Review "34"', "status": "done",
         "labels": ["x", "y"], "depth": 0},
        {"id": graph.ids["b"], "version": 1, "type": "Thing", "key": None, "title": None, "status": None, "labels": [],
         "depth": 1},
    ]  # fmt: skip
    assert found["edges"] == [
        {
            "id": graph.edges["a decides b"],
            "type": "decides",
            "src": graph.ids["a"],
            "dst": graph.ids["b"],
            "weight": 0.5,
        }
    ]
    meta = found["meta"]
    assert meta.pop("executionMs") > 0
    assert meta == {
        "depthReached": 1, "truncated": False, "overflowType": None, "nodesReturned": 2, "edgesReturned": 1,
    }  # fmt: skip
    assert "paths" not in found


def test_order_is_by_depth_and_id_and_of_edges_by_id(graph: Graph) -> None:
    graph.draw("a knows d", "a knows c", "a knows b", "b knows f", "d knows e", "c knows e")
    found = graph.expand("a")
    for depth in (0, 1, 2):
        ids = [node["id"] for node in found["nodes"] if node["depth"] == depth]
        assert ids == ordered(ids)
    assert [node["depth"] for node in found["nodes"]] == [0, 1, 1, 1, 2, 2]
    ids = [edge["id"] for edge in found["edges"]]
    assert ids == ordered(ids)
    assert len(ids) == 6


def test_edges_are_all_that_were_crossed(graph: Graph) -> None:
    graph.draw("a knows b", "a likes b", "b knows c", "b owes a", "c knows d", "a knows e", "e knows b")
    assert graph.crossed("a", maxDepth=1) == ["a knows b", "a knows e", "a likes b", "b owes a"]
    # Between two on the last level none is crossed.
    assert graph.crossed("a", maxDepth=1, direction="outbound") == ["a knows b", "a knows e", "a likes b"]
    assert graph.crossed("a", direction="outbound") == [
        "a knows b", "a knows e", "a likes b", "b knows c", "b owes a", "e knows b",
    ]  # fmt: skip
    assert len(graph.crossed("a", distinctNodes=True)) == len(graph.expand("a")["nodes"]) - 1


def test_distinct_nodes_keeps_the_heaviest_edge_from_the_lowest_id(graph: Graph) -> None:
    graph.link("a knows b", weight=0.1)
    graph.link("a likes b", weight=0.9)
    graph.link("a owes b")
    assert graph.crossed("a", distinctNodes=True) == ["a likes b"]


def test_types_and_labels(graph: Graph) -> None:
    graph.put("m", type="Meeting", labels=["hot"])
    graph.put("p", type="Person", labels=["cold", "hot"])
    graph.put("d", type="Decision")
    graph.put("q", type="Person")
    graph.draw("m decides d", "m attended_by p", "q attends m")
    # The example of the seed: roots are exempt from node filters.
    assert graph.near("d", edgeTypes=["decides", "attended_by"], nodeTypes=["Meeting", "Person"]) == "d0 m1 p2"
    assert graph.near("d", nodeTypes=["Person"]) == "d0"
    assert graph.near("d", edgeTypes=["decides"]) == "d0 m1"
    assert graph.near("d", labels=["hot"]) == "d0 m1 p2"
    assert graph.near("d", labels=["cold", "none"]) == "d0"
    assert graph.near("d", edgeTypes=[], nodeTypes=[]) == "d0 m1 p2 q2"


def test_unknown_types_are_refused(graph: Graph, superuser: Superuser) -> None:
    graph.draw("a knows b")
    assert graph.refused("a", edgeTypes=["knows", "kwons"])[:2] == (400, "type_unknown")
    assert "Thign" in graph.refused("a", nodeTypes=["Thign"])[2]
    assert graph.refused("a", phases=[{"nodeTypes": ["Thign"]}])[:2] == (400, "type_unknown")
    registered = (
        "INSERT INTO object_type_schemas (tenant_id, type, version, status, created_by, created_at) "
        "VALUES ('acme', 'Rarity', 1, 'active', 'robin', now())"
    )
    superuser.execute(registered.encode())
    assert graph.near("a", nodeTypes=["Rarity", "Thing"]) == "a0 b1"
    everywhere = (
        "INSERT INTO global_relationship_type_schemas (type, version, status, created_by, created_at, "
        "allowed_src_types, allowed_dst_types, multiplicity_src, multiplicity_dst) "
        "VALUES ('rarely', 1, 'active', 'operator', now(), '{}', '{}', 'many', 'many')"
    )
    superuser.execute(everywhere.encode())
    assert graph.near("a", edgeTypes=["rarely"]) == "a0"


def test_roots_by_any_version_once(graph: Graph) -> None:
    graph.put("a", versions=3)
    graph.draw("a knows b")
    for root in ("a", "a1", "a2", "a3", "a a1 a2"):
        assert graph.near(root) == "a0 b1"
    assert graph.expand("a")["nodes"][0]["version"] == 3


def test_missing_roots(graph: Graph) -> None:
    graph.draw("a knows b")
    graph.put("z", deleted_at=datetime.now(UTC))
    graph.ids["nobody"] = new_id()
    assert graph.refused("nobody z")[:2] == (404, "object_not_found")
    found = graph.expand("a nobody z")
    assert set(found["meta"]["missingRoots"]) == {graph.ids["nobody"], graph.ids["z"]}
    assert "missingRoots" not in graph.expand("a")["meta"]


def test_what_is_deleted_is_not_crossed(graph: Graph) -> None:
    graph.draw("a knows b", "b knows c")
    graph.link("a likes d", deleted_at=datetime.now(UTC))
    graph.put("e", deleted_at=datetime.now(UTC))
    graph.draw("a knows e", "e knows f")
    assert graph.near("a") == "a0 b1 c2"
    assert graph.crossed("a") == ["a knows b", "b knows c"]


def test_time(graph: Graph) -> None:
    early, late = moment("2020-01-01T00:00:00Z"), moment("2021-01-01T00:00:00Z")
    graph.put("b", effective_from=early, effective_to=late)
    graph.put("c", effective_from=late)
    graph.link("a knows b")
    graph.link("a knows c")
    graph.link("a knows d", valid_from=early, valid_to=late)
    graph.link("a knows e", valid_from=late)
    assert graph.near("a") == "a0 b1 c1 d1 e1"
    assert graph.near("a", time="2019-06-01T00:00:00Z") == "a0"
    assert graph.near("a", time="2020-01-01T00:00:00Z") == "a0 b1 d1"
    assert graph.near("a", time="2020-12-31T23:59:59Z") == "a0 b1 d1"
    assert graph.near("a", time="2021-01-01T01:00:00+01:00") == "a0 c1 e1"
    # What is not in effect is no root either.
    assert graph.refused("b", time="2022-01-01T00:00:00Z")[:2] == (404, "object_not_found")
    assert graph.refused("a", time="2022-01-01T00:00:00")[0] == 400


def test_the_hub_guard_keeps_the_heaviest(graph: Graph) -> None:
    for number, letter in enumerate("bcdef"):
        graph.link(f"a knows {letter}", weight=number / 10)
    graph.link("g knows a", weight=0.35)
    graph.link("a knows h")
    found = graph.expand("a", limitEdgesPerNode=3)
    assert graph.near("a", limitEdgesPerNode=3, maxDepth=1) == "a0 e1 f1 g1"
    assert found["meta"]["truncated"] is True
    assert found["meta"]["overflowType"] == "edge"
    assert graph.expand("a", limitEdgesPerNode=7)["meta"]["truncated"] is False
    assert graph.near("a", limitEdgesPerNode=0) == "a0 b1 c1 d1 e1 f1 g1 h1"
    # Those without a weight come last, and of equal weight the highest id first.
    assert graph.near("a", limitEdgesPerNode=6) == "a0 b1 c1 d1 e1 f1 g1"
    # Only what passes the filters counts.
    few = graph.expand("a", limitEdgesPerNode=3, filters={"edge": {"weight": {"<=": 0.2}}})
    assert few["meta"]["truncated"] is False
    assert len(few["edges"]) == 3


def test_limits(graph: Graph) -> None:
    graph.draw("a knows b", "a knows c", "a knows d", "b knows e")
    found = graph.expand("a", limitNodes=3)
    lowest = ordered([graph.ids[letter] for letter in "bcd"])[:2]
    assert [node["id"] for node in found["nodes"]] == [graph.ids["a"], *lowest]
    assert (found["meta"]["truncated"], found["meta"]["overflowType"]) == (True, "node")
    assert len(found["edges"]) == 2
    assert graph.expand("a", limitNodes=5)["meta"]["truncated"] is False
    assert graph.expand("a", limitNodes=4)["meta"]["overflowType"] == "node"
    assert graph.expand("a", limitNodes=4, maxDepth=1)["meta"]["truncated"] is False
    few = graph.expand("a", limitEdges=2)
    assert [edge["id"] for edge in few["edges"]] == ordered([graph.edges[f"a knows {x}"] for x in "bcd"])[:2]
    assert (few["meta"]["truncated"], few["meta"]["overflowType"]) == (True, "edge")
    assert graph.expand("a", limitEdges=4)["meta"]["truncated"] is False
    assert graph.refused("a", limitNodes=10_000, maxDepth=6)[:2] == (400, "expand_too_large")
    assert graph.refused("a", limitNodes=10_000, phases=[{}] * 6)[:2] == (400, "expand_too_large")
    assert graph.near("a", limitNodes=9_999, maxDepth=6) == "a0 b1 c1 d1 e2"


def test_paths(graph: Graph) -> None:
    graph.draw("a knows b", "a knows c", "b knows d", "c knows d", "d knows a", "a likes b")
    assert graph.paths("a", direction="outbound") == ["a", "ab", "abd", "ac"]
    assert graph.paths("a", direction="outbound", maxDepth=3, dedupe="edge") == ["ab", "ab", "abd", "abda", "ac", "acd"]
    assert graph.paths("a", direction="outbound", maxDepth=3, dedupe="path") == ["a", "ab", "abd", "ac", "acd"]
    assert graph.crossed("a", direction="outbound", maxDepth=3, dedupe="path") == [
        "a knows b", "a knows c", "a likes b", "b knows d", "c knows d",
    ]  # fmt: skip
    both = graph.paths("a", maxDepth=3, dedupe="path")
    assert both == ["a", "ab", "abd", "abdc", "ac", "acd", "acdb", "ad", "adb", "adc"]
    found = graph.expand("a b", returnPaths=True)["paths"]
    assert found[:2] == [[root] for root in ordered([graph.ids["a"], graph.ids["b"]])]


def test_the_guard_of_paths(graph: Graph) -> None:
    for one in "bcdefghijk":
        for other in "bcdefghijk":
            if one < other:
                graph.link(f"{one} knows {other}")
    found = graph.expand("b", maxDepth=6, dedupe="path", returnPaths=True, limitNodes=100)
    assert len(found["paths"]) == 10_000
    assert found["meta"]["overflowType"] == "path"
    lengths = [len(path) for path in found["paths"]]
    assert lengths == sorted(lengths)


def test_phases(graph: Graph) -> None:
    graph.put("d", type="Decision")
    graph.put("m", type="Meeting")
    graph.put("n", type="Meeting")
    graph.put("p", type="Person")
    graph.put("r", type="Risk")
    graph.draw("m decides d", "n mentions d", "m attended_by p", "m attended_by r", "d addresses r", "n attended_by p")
    phases = [
        {"edgeTypes": ["decides"], "direction": "inbound", "nodeTypes": ["Meeting"]},
        {"edgeTypes": ["attended_by"], "direction": "outbound", "nodeTypes": ["Person"]},
    ]
    assert graph.near("d", phases=phases) == "d0 m1 p2"
    assert graph.crossed("d", phases=phases) == ["m attended_by p", "m decides d"]
    assert graph.paths("d", phases=phases) == ["d", "dm", "dmp"]
    halted = [{"edgeTypes": ["mentions"], "direction": "outbound"}, *phases]
    assert graph.near("d", phases=halted) == "d0"
    assert graph.near("d", phases=phases, maxDepth=1) == "d0 m1"
    # What a phase does not say is as it is said for all.
    assert graph.near("d", phases=[{"edgeTypes": ["decides"]}], direction="inbound") == "d0 m1"
    assert graph.near("d", phases=[{"edgeTypes": ["decides"]}], direction="outbound") == "d0"
    assert graph.near("d", phases=[{"direction": "inbound"}], edgeTypes=["decides"], nodeTypes=["Meeting"]) == "d0 m1"
    assert graph.near("d", phases=phases, nodeTypes=["Person"]) == "d0 m1 p2"
    # A phase goes on from all that the one before has reached, also from where the walk has been.
    back = [{"edgeTypes": ["decides"]}, {"edgeTypes": ["decides"]}, {"edgeTypes": ["addresses"]}]
    assert graph.near("d", phases=back) == "d0 m1 r3"
    assert graph.near("d", phases=phases, filters={"node": {"type": {"!=": "Person"}}}) == "d0 m1"
    assert graph.refused("d", phases=[{}] * 7)[0] == 400


def test_paths_begin_at_roots_that_are_told(graph: Graph) -> None:
    graph.draw("a knows b", "c knows d")
    for dedupe in ("node", "path"):
        found = graph.expand("a c", limitNodes=1, returnPaths=True, dedupe=dedupe)
        assert len(found["nodes"]) == len(found["paths"]) == 1


def test_paths_through_a_funnel_are_not_made_in_vain(superuser: Superuser) -> None:
    """The graph has 48 million paths; no more are built than are returned."""
    one, two = [[str(UUID(int=100 * level + n)) for n in range(70)] for level in (1, 2)]
    root, hub, leaves = str(UUID(int=1)), str(UUID(int=2)), [str(UUID(int=10_000 + n)) for n in range(9800)]
    pairs = [(root, a) for a in one] + [(a, b) for a in one for b in two] + [(b, hub) for b in two]
    pairs += [(hub, leaf) for leaf in leaves]
    row = superuser.execute(
        "SELECT cardinality(paths) AS paths, cardinality(from_ids) AS pairs FROM simple_paths("
        "ARRAY[%s::uuid], %s::uuid[], %s::uuid[], array_fill(1, ARRAY[%s]), 4, false, 10000)",
        (root, [here for here, _ in pairs], [there for _, there in pairs], len(pairs)),
    ).fetchone()
    assert row == {"paths": 10_001, "pairs": 9999}


def test_an_answer_has_an_end(graph: Graph) -> None:
    long = "x" * 250_000
    for n in range(140):
        graph.put(f"n{n}", properties={"long": long, "short": n})
    graph.draw(*(f"n0 to n{n}" for n in range(1, 140)))
    whole = graph.expand("n0", limitEdgesPerNode=0, include={"object": ["properties"]})
    assert 100 < len(whole["nodes"]) < 140
    assert (whole["meta"]["truncated"], whole["meta"]["overflowType"]) == (True, "node")
    part = graph.expand("n0", limitEdgesPerNode=0, include={"object": ["properties.short"]})
    assert (len(part["nodes"]), part["meta"]["truncated"]) == (140, False)


def test_null_is_as_if_absent(graph: Graph) -> None:
    graph.draw("a knows b")
    names = ["direction", "maxDepth", "edgeTypes", "nodeTypes", "labels", "filters", "include", "time", "phases"]
    assert graph.near("a", **dict.fromkeys(names)) == graph.near("a") == "a0 b1"


def test_fields(graph: Graph) -> None:
    graph.put(
        "a", title="Äther", properties={"summary": "s", "deep": {"er": [1, {"x": None}]}, "other": 1},
        evidence=[{"chunk": "c"}], subtype="sub", effective_from=moment("2020-01-01T01:00:00.5+01:00"),
    )  # fmt: skip
    graph.link("a knows b", weight=1.5, role_src="boss", properties={"since": 2020, "x": {"y": 1}}, evidence=["e"])

    def of(*paths: str) -> dict[str, object]:
        (node,) = graph.expand("a", include={"object": paths}, maxDepth=1, limitNodes=1)["nodes"]
        assert node.pop("id") == graph.ids["a"]
        assert node.pop("depth") == 0
        return node

    assert of() == {}
    assert of("title", "type", "id") == {"title": "Äther", "type": "Thing"}
    assert of("properties.summary", "properties.deep.er") == {
        "properties": {"summary": "s", "deep": {"er": [1, {"x": None}]}}
    }
    assert of("/properties/deep/er/1/x", "properties.none") == {"properties": {"deep": {"er": {"1": {"x": None}}}}}
    assert of("properties.none") == {"properties": {}}
    assert of("properties.summary", "properties")["properties"]["other"] == 1  # type: ignore[index]
    assert of("effective_from", "effective_to", "evidence", "subtype") == {
        "effective_from": "2020-01-01T00:00:00.500000Z", "effective_to": None, "evidence": [{"chunk": "c"}],
        "subtype": "sub",
    }  # fmt: skip
    (edge,) = graph.expand("a", include={"edge": ["properties.since", "role_src", "evidence", "weight", "version"]})[
        "edges"
    ]
    assert edge == {
        "id": graph.edges["a knows b"], "src": graph.ids["a"], "dst": graph.ids["b"], "weight": 1.5, "role_src": "boss",
        "evidence": ["e"], "version": 1, "properties": {"since": 2020},
    }  # fmt: skip


@pytest.mark.parametrize(
    "path",
    ["tenant_id", "content_hash", "properties..x", "title.x", "$.properties", "", "properties.*.", "/tenant_id",
     "properties~2x", "/properties/~2", "terms", "deleted_at", "x" * 300, "src"],
)  # fmt: skip
def test_fields_on_no_list(graph: Graph, path: str) -> None:
    graph.put("a")
    status, code, _ = graph.refused("a", include={"object": [path]})
    assert (status, code) in {(400, "include_not_allowed"), (400, "invalid_request")}


def test_bounds_of_the_request(graph: Graph) -> None:
    graph.put("a")
    for asked in (
        {"maxDepth": 0}, {"maxDepth": 7}, {"limitNodes": 0}, {"limitNodes": 10_001}, {"limitEdges": 100_001},
        {"limitEdgesPerNode": -1}, {"direction": "out"}, {"dedupe": "all"}, {"edgeTypes": ["x"] * 65}, {"labels": "x"},
        {"unknown": 1}, {"phases": []}, {"filters": {"any": {}}}, {"roots": []}, {"roots": ["x"]},
        {"roots": [str(uuid4()) for _ in range(51)]}, {"time": "yesterday"}, {"returnPaths": "yes"},
    ):  # fmt: skip
        assert graph.refused("a", **asked)[0] == 400, asked


def test_scope_and_rate(graph: Graph, noter: httpx.Client, tenancy: Tenancy) -> None:
    graph.draw("a knows b")
    body = {"roots": graph.roots("a")}
    assert noter.post("/v1/graph/expand", json=body).status_code == 403
    assert noter.post("/v1/graph/traverse", json={"root_ids": body["roots"]}).status_code == 403
    limited = tenancy.key("acme", agent_id="wren", rate_limits={"expand": 3})
    headers = {"Authorization": f"Bearer {limited}"}
    answers = [graph.client.post("/v1/graph/expand", json=body, headers=headers) for _ in range(5)]
    assert [answer.status_code for answer in answers] == [200, 200, 200, 429, 429]
    assert answers[-1].json()["error"]["details"] == {"work": "expand", "limit_per_minute": 3}
    traversed = graph.client.post("/v1/graph/traverse", json={"root_ids": body["roots"]}, headers=headers)
    assert traversed.status_code == 200
    usual = tenancy.key("acme", agent_id="wren")
    headers = {"Authorization": f"Bearer {usual}"}
    statuses = [graph.client.post("/v1/graph/expand", json=body, headers=headers).status_code for _ in range(31)]
    assert statuses == [200] * 31, "a person who explores a graph is not stopped"


def test_what_is_told_of_it(graph: Graph, service: object) -> None:
    graph.draw("a knows b", "a knows c")
    marked = {"X-Request-Id": new_id()}
    body = {
        "roots": graph.roots("a a"), "maxDepth": 3, "edgeTypes": ["knows"], "labels": ["x"], "limitNodes": 500,
        "include": {"object": ["title"], "edge": ["properties.x"]},
    }  # fmt: skip
    assert graph.client.post("/v1/graph/expand", json=body, headers=marked).status_code == 200
    lines = [json.loads(line) for line in service.output().splitlines() if marked["X-Request-Id"] in line]  # type: ignore[attr-defined]
    (told,) = [line for line in lines if line["event"] == "graph.expand"]
    assert told.pop("elapsed_ms") > 0
    assert told.pop("ts") > 1_700_000_000_000
    for name in ("timestamp", "level", "request_id"):
        told.pop(name)
    assert told == {
        "event": "graph.expand", "type": "graph.expand", "tenant": "acme", "roots_count": 1,
        "requested": {"max_depth": 3, "max_nodes": 500, "max_edges": 50_000, "direction": "both"},
        "node_count": 1, "edge_count": 0, "max_depth_reached": 0, "truncated": False,
        "filters": {"relationship_types": 1, "object_types": 0, "labels": 1,
                    "projection_include": 1, "projection_exclude": 0, "include_relationship_properties": True},
    }  # fmt: skip
    metrics = graph.client.get("/metrics").text
    for name in ("seconds", "depth", "nodes", "edges"):
        assert f'palimpsest_graph_walk_{name}_count{{operation="expand"}}' in metrics
    assert 'palimpsest_graph_walks_truncated_total{bound="' in metrics


def test_fields_are_taken_in_snake_case_and_in_the_older_camel_case(graph: Graph) -> None:
    graph.put("m", type="Meeting")
    graph.draw("a knows m", "m knows b", "b knows c")
    assert graph.near("a", max_depth=1) == graph.near("a", maxDepth=1) == "a0 m1"
    assert graph.crossed("a", edge_types=["knows"], distinct_nodes=True, limit_nodes=3, max_depth=6) == graph.crossed(
        "a", edgeTypes=["knows"], distinctNodes=True, limitNodes=3, maxDepth=6
    )
    assert "paths" in graph.expand("a", return_paths=True)
    older = {"phases": [{"edgeTypes": ["knows"], "nodeTypes": ["Meeting"]}]}
    newer = {"phases": [{"edge_types": ["knows"], "node_types": ["Meeting"]}]}
    assert graph.near("a", **older) == graph.near("a", **newer) == "a0 m1"


@pytest.mark.parametrize(
    ("fields", "named"),
    [
        ({"max_depth": 1, "maxDepth": 1}, "maxDepth: the older form of max_depth"),
        ({"phases": [{}, {"edge_types": [], "edgeTypes": []}]}, "phases[1].edgeTypes: the older form of edge_types"),
        # What is wrong is named as it was given.
        ({"max_depth": 7}, "max_depth: "),
        ({"maxDepth": 7}, "maxDepth: "),
        ({"phases": [{"nodeTypes": [1]}]}, "phases[0].nodeTypes[0]: "),
        ({"MaxDepth": 1}, "MaxDepth: unknown field; allowed here: roots, direction, max_depth"),
    ],
)
def test_a_field_in_both_forms_is_refused(graph: Graph, fields: dict[str, object], named: str) -> None:
    graph.put("a")
    answer = graph.client.post("/v1/graph/expand", json={"roots": graph.roots("a"), **fields})
    assert answer.status_code == 400
    assert answer.json()["error"]["message"].startswith(named)
