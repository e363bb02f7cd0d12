"""Objects and relationships written and traversed over HTTP."""

from typing import Any

import psycopg

from tests.objects.conftest import Graph, code


def expand(graph: Graph, *roots: dict[str, Any], **fields: Any) -> dict[str, Any]:
    body = {"roots": [root["canonical_id"] for root in roots], **fields}
    answer = graph.agent.post("/v1/graph/expand", json=body)
    assert answer.status_code == 200, answer.text
    return answer.json()


def ids(found: list[dict[str, Any]]) -> set[str]:
    return {one["id"] for one in found}


def decided(graph: Graph) -> dict[str, dict[str, Any]]:
    """A decision, two meetings that made it, their participants, and a task assigned to one of them."""
    made = {name: graph.make(kind, key=name, title=name) for name, kind in (
        ("flags", "Decision"), ("sprint", "Meeting"), ("board", "Meeting"), ("ada", "Person"), ("bob", "Person"),
        ("task", "Task"),
    )}  # fmt: skip
    for src, kind, dst in (
        ("sprint", "decides", "flags"), ("board", "decides", "flags"), ("sprint", "attended_by", "ada"),
        ("sprint", "attended_by", "bob"), ("board", "attended_by", "ada"), ("task", "assigned_to", "bob"),
    ):  # fmt: skip
        made[f"{src}-{dst}"] = graph.link(made[src], made[dst], kind)
    return made


def test_at_p0_3_depth_2_returns_the_same_nodes_and_edges_each_time(graph: Graph) -> None:
    made = decided(graph)
    first = expand(graph, made["flags"], maxDepth=2)
    assert ids(first["nodes"]) == {made[name]["id"] for name in ("flags", "sprint", "board", "ada", "bob")}
    assert (first["meta"]["nodesReturned"], first["meta"]["edgesReturned"]) == (5, 5)
    assert (first["meta"]["depthReached"], first["meta"]["truncated"]) == (2, False)
    again = expand(graph, made["flags"], maxDepth=2)
    assert (again["nodes"], again["edges"]) == (first["nodes"], first["edges"])


def test_the_decision_with_all_who_were_there(graph: Graph) -> None:
    made = decided(graph)
    found = expand(
        graph,
        made["flags"],
        phases=[
            {"edgeTypes": ["decides"], "direction": "inbound", "nodeTypes": ["Meeting"]},
            {"edgeTypes": ["attended_by"], "direction": "outbound", "nodeTypes": ["Person"]},
        ],
    )
    people = {node["id"] for node in found["nodes"] if node["type"] == "Person"}
    assert people == {made["ada"]["id"], made["bob"]["id"]}
    assert made["task"]["id"] not in ids(found["nodes"])


def test_what_is_changed_deleted_and_restored_is_walked_as_it_is(graph: Graph) -> None:
    made = decided(graph)
    newer = graph.patch(made["sprint"], status="done", properties={"room": 4})
    for root in (made["flags"]["id"], graph.patch(made["flags"], status="accepted")["id"]):
        # Any version names the object.
        found = graph.agent.post(
            "/v1/graph/expand", json={"roots": [root], "include": {"object": ["status", "version"]}}
        )
        nodes = {node["id"]: node for node in found.json()["nodes"]}
        assert nodes[made["flags"]["id"]]["status"] == "accepted" or root == made["flags"]["id"]
        assert nodes[made["sprint"]["id"]]["version"] == newer["version"]
    graph.agent.delete(f"/v1/graph/objects/{made['sprint']['id']}")
    assert ids(expand(graph, made["flags"])["nodes"]) == {made[name]["id"] for name in ("flags", "board", "ada")}
    graph.agent.post(f"/v1/graph/objects/{made['sprint']['id']}/restore")
    assert len(expand(graph, made["flags"])["nodes"]) == 5
    graph.agent.delete(f"/v1/graph/relationships/{made['board-flags']['id']}")
    assert made["board"]["id"] not in ids(expand(graph, made["flags"], maxDepth=1)["nodes"])
    graph.agent.delete(f"/v1/graph/objects/{made['flags']['id']}")
    missing = graph.agent.post("/v1/graph/expand", json={"roots": [made["flags"]["id"]]})
    assert (missing.status_code, code(missing)) == (404, "object_not_found")


def test_objects_of_every_project_are_walked_in_each(graph: Graph) -> None:
    shared = graph.make("Person", client=graph.admin, project_id=None)
    here, there = graph.make("Task"), graph.make("Task", client=graph.other)
    graph.link(here, shared, "assigned_to")
    body = {"type": "assigned_to", "src_id": there["id"], "dst_id": shared["id"]}
    assert graph.other.post("/v1/graph/relationships", json=body).status_code == 201
    assert ids(expand(graph, shared)["nodes"]) == {shared["id"], here["id"]}
    other = graph.other.post("/v1/graph/expand", json={"roots": [shared["id"]]}).json()
    assert ids(other["nodes"]) == {shared["id"], there["id"]}


def test_at_p0_6_walking_looks_at_no_history(graph: Graph, superuser: psycopg.Connection[Any]) -> None:
    """Heads are read without their versions; the benchmark measures the time."""
    made = decided(graph)
    for turn in range(20):
        for name in ("flags", "sprint", "board", "ada", "bob"):
            graph.patch(made[name], properties={"turn": turn})

    def looked_at() -> dict[str, int]:
        rows = superuser.execute(
            "SELECT relname, coalesce(seq_tup_read, 0) + coalesce(idx_tup_fetch, 0) FROM pg_stat_xact_user_tables "
            "WHERE relname LIKE 'graph_%_versions'"
        ).fetchall()
        return {name: int(count) for name, count in rows}

    with superuser.transaction():
        superuser.execute("SET LOCAL ROLE palimpsest_app")
        superuser.execute("SELECT set_scope(%s, 'one', 'robin', NULL, '')", (graph.tenant,))
        before = looked_at()
        (found,) = superuser.execute(
            "SELECT node_count FROM expand_objects(%s, 'one', ARRAY[%s::uuid], %s, %s, %s)",
            (
                graph.tenant,
                made["flags"]["id"],
                '[{"direction": "both"}]',
                '{"object": {"fields": ["title"]}, "edge": {"fields": ["type"]}}',
                '{"branch": "main", "phased": false, "depth": 2, "edges_per_node": 100, "max_nodes": 2000, '
                '"max_edges": 20000, "dedupe": "node", "distinct": false, "paths": false, "max_paths": 10000}',
            ),
        ).fetchone() or (None,)
        after = looked_at()
    assert found == 5
    # The one version that the root's id names, and not one more.
    assert after["graph_object_versions"] - before["graph_object_versions"] <= 1
    assert after["graph_relationship_versions"] == before["graph_relationship_versions"]
