"""Relationships over HTTP: allowed ends, multiplicity and versions."""

import uuid
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from tests.objects.conftest import Graph, code


def body(src: dict[str, Any], dst: dict[str, Any], type: str = "relates_to", **fields: Any) -> dict[str, Any]:
    return {"type": type, "src_id": src["canonical_id"], "dst_id": dst["canonical_id"], **fields}


def test_linked_changed_deleted_restored(graph: Graph) -> None:
    src, dst = graph.make("Meeting"), graph.make("Decision")
    made = graph.link(src, dst, "decides", weight=0.9, role_src="chair", properties={"a": 1}, evidence=["note"])
    assert (made["src_id"], made["dst_id"], made["weight"], made["version"]) == (src["id"], dst["id"], 0.9, 1)
    path = f"/v1/graph/relationships/{made['id']}"
    assert graph.agent.get(path).headers["etag"] == '"1"'
    second = graph.agent.patch(path, json={"weight": None, "properties": {"a": None, "b": 2}}).json()["relationship"]
    assert (second["version"], second["weight"], second["properties"]) == (2, None, {"b": 2})
    assert (second["src_id"], second["dst_id"], second["role_src"]) == (src["id"], dst["id"], "chair")
    same = graph.agent.patch(path, json={"properties": {"b": 2}})
    assert (same.status_code, code(same)) == (409, "no_effective_change")
    stale = graph.agent.patch(path, json={"weight": 1}, headers={"if-match": '"1"'})
    assert (stale.status_code, code(stale)) == (409, "cannot_patch_non_head_version")
    assert graph.agent.delete(path).status_code == 204
    assert code(graph.agent.delete(path)) == "already_deleted"
    assert graph.agent.get(path).status_code == 404
    restored = graph.agent.post(f"{path}/restore").json()["relationship"]
    assert (restored["version"], restored["deleted_at"]) == (4, None)
    assert code(graph.agent.post(f"{path}/restore")) == "not_deleted"
    told = graph.agent.get(f"{path}/versions", params={"includeChangeSummary": "true"}).json()["versions"]
    assert [version["version"] for version in told] == [4, 3, 2, 1]
    assert told[2]["change_summary"]["fields"]["weight"] == {"from": 0.9, "to": None}
    old = graph.agent.get(f"/v1/graph/relationships/{second['id']}").json()
    assert (old["version"], old["is_head"]) == (2, False)
    frozen = graph.agent.patch(f"/v1/graph/relationships/{second['id']}", json={"weight": 1})
    assert code(frozen) == "cannot_patch_non_head_version"


def test_an_edge_survives_new_versions_of_its_ends(graph: Graph) -> None:
    src, dst = graph.make(), graph.make()
    made = graph.link(src, dst)
    newer = graph.patch(src, status="x")
    graph.patch(dst, status="y")
    assert graph.agent.get(f"/v1/graph/relationships/{made['id']}").json()["src_id"] == src["id"]
    # The id of any version names the object.
    other = graph.make()
    answer = graph.agent.post(
        "/v1/graph/relationships", json={"type": "r", "src_id": newer["id"], "dst_id": other["id"]}
    )
    assert answer.json()["relationship"]["src_id"] == src["id"]


def test_the_same_link_again(graph: Graph) -> None:
    src, dst = graph.make(), graph.make()
    made = graph.link(src, dst, weight=0.5, properties={"a": 1})
    again = graph.agent.post("/v1/graph/relationships", json=body(src, dst, weight=0.5, properties={"a": 1}))
    assert (again.status_code, again.json()["created"]) == (200, False)
    assert again.json()["relationship"]["version"] == 1
    newer = graph.agent.post("/v1/graph/relationships", json=body(src, dst, properties={"b": 1}))
    assert (newer.status_code, newer.json()["created"]) == (200, False)
    assert newer.json()["relationship"]["version"] == 2
    assert newer.json()["relationship"]["properties"] == {"b": 1}
    assert newer.json()["relationship"]["weight"] == 0.5
    assert graph.link(dst, src)["id"] != made["id"]
    assert graph.link(src, dst, "other")["id"] != made["id"]
    graph.agent.delete(f"/v1/graph/relationships/{made['id']}")
    fresh = graph.link(src, dst)
    assert fresh["canonical_id"] != made["id"]
    taken = graph.agent.post(f"/v1/graph/relationships/{made['id']}/restore")
    assert (taken.status_code, code(taken)) == (409, "relationship_exists")


def test_at_p0_2_multiplicity(graph: Graph) -> None:
    graph.register("relationship", "owned_by", multiplicity={"src": "one", "dst": "many"})
    thing, first, second = graph.make(), graph.make(), graph.make()
    made = graph.link(thing, first, "owned_by")
    refused = graph.agent.post("/v1/graph/relationships", json=body(thing, second, "owned_by"))
    assert (refused.status_code, code(refused)) == (400, "relationship_multiplicity_violation")
    assert refused.json()["error"]["details"] == {"side": "src", "type": "owned_by"}
    # The other side has no such bound, and neither has another type.
    graph.link(graph.make(), first, "owned_by")
    graph.link(thing, second, "likes")
    graph.agent.delete(f"/v1/graph/relationships/{made['id']}")
    graph.link(thing, second, "owned_by")
    back = graph.agent.post(f"/v1/graph/relationships/{made['id']}/restore")
    assert (back.status_code, code(back)) == (400, "relationship_multiplicity_violation")


def test_multiplicity_of_the_destination_and_of_both(graph: Graph) -> None:
    graph.register("relationship", "leads", multiplicity={"dst": "one"})
    graph.register("relationship", "married_to", multiplicity={"src": "one", "dst": "one"})
    a, b, c = graph.make(), graph.make(), graph.make()
    graph.link(a, b, "leads")
    graph.link(a, c, "leads")
    refused = graph.agent.post("/v1/graph/relationships", json=body(c, b, "leads"))
    assert refused.json()["error"]["details"] == {"side": "dst", "type": "leads"}
    graph.link(a, b, "married_to")
    for pair, side in (((a, c), "src"), ((c, b), "dst")):
        refused = graph.agent.post("/v1/graph/relationships", json=body(*pair, "married_to"))
        assert refused.json()["error"]["details"]["side"] == side
    graph.link(b, a, "married_to")


def test_32_creators_at_once_and_exactly_one_wins(graph: Graph) -> None:
    graph.register("relationship", "owned_by", multiplicity={"src": "one", "dst": "many"})
    thing, owners = graph.make(), [graph.make() for _ in range(32)]

    def link(owner: dict[str, Any]) -> tuple[int, str]:
        answer = graph.agent.post("/v1/graph/relationships", json=body(thing, owner, "owned_by"))
        return answer.status_code, "" if answer.status_code == 201 else code(answer)

    with ThreadPoolExecutor(32) as pool:
        outcomes = sorted(pool.map(link, owners))
    assert outcomes == [(201, "")] + [(400, "relationship_multiplicity_violation")] * 31
    assert len(graph.agent.get("/v1/graph/relationships").json()["relationships"]) == 1


def test_creators_and_a_type_that_changes_at_the_same_time(graph: Graph) -> None:
    """In either order of the two writers, there are never two where the active type allows one."""
    for turn in range(5):
        name = f"owned_{turn}"
        graph.register("relationship", name)
        thing, owners = graph.make(), [graph.make() for _ in range(6)]

        def work(owner: dict[str, Any] | None, name: str = name, thing: dict[str, Any] = thing) -> int:
            if owner is None:
                change = {"type": name, "multiplicity": {"src": "one"}}
                return graph.admin.post("/v1/graph/schemas/relationships", json=change).status_code
            return graph.agent.post("/v1/graph/relationships", json=body(thing, owner, name)).status_code

        with ThreadPoolExecutor(7) as pool:
            outcomes = list(pool.map(work, [*owners[:3], None, *owners[3:]]))
        linked = len(graph.agent.get("/v1/graph/relationships", params={"type": name}).json()["relationships"])
        assert outcomes[3] in (201, 409)
        assert set(outcomes) <= {201, 400, 409}
        if outcomes[3] == 201:
            assert linked <= 1


def test_multiplicity_is_not_promised_where_it_is_broken(graph: Graph) -> None:
    thing, first, second = graph.make(), graph.make(), graph.make()
    graph.link(thing, first, "owned_by")
    extra = graph.link(thing, second, "owned_by")
    change = {"type": "owned_by", "multiplicity": {"src": "one"}}
    refused = graph.admin.post("/v1/graph/schemas/relationships", json=change)
    assert (refused.status_code, code(refused)) == (409, "multiplicity_exceeded")
    assert refused.json()["error"]["details"]["objects"] == [{"side": "src", "object_id": thing["id"], "objects": 1}]
    graph.agent.delete(f"/v1/graph/relationships/{extra['id']}")
    graph.register("relationship", "owned_by", multiplicity={"src": "one"})
    again = graph.agent.post("/v1/graph/relationships", json=body(thing, second, "owned_by"))
    assert code(again) == "relationship_multiplicity_violation"
    # And back: what was bound is free again.
    graph.register("relationship", "owned_by", multiplicity={"src": "many"})
    graph.link(thing, second, "owned_by")


def test_ends_that_cannot_be_linked(graph: Graph) -> None:
    src, dst, nowhere = graph.make(), graph.make(), {"canonical_id": str(uuid.uuid4())}
    for pair, status, expected in (
        ((src, src), 400, "self_loop_not_allowed"),
        ((nowhere, dst), 404, "src_object_not_found"),
        ((src, nowhere), 404, "dst_object_not_found"),
    ):
        answer = graph.agent.post("/v1/graph/relationships", json=body(*pair))
        assert (answer.status_code, code(answer)) == (status, expected)
    gone = graph.make()
    graph.agent.delete(f"/v1/graph/objects/{gone['id']}")
    for pair, expected in (((gone, dst), "src_object_deleted"), ((src, gone), "dst_object_deleted")):
        answer = graph.agent.post("/v1/graph/relationships", json=body(*pair))
        assert (answer.status_code, code(answer)) == (409, expected)
    link = graph.link(src, dst)
    graph.agent.delete(f"/v1/graph/objects/{src['id']}")
    answer = graph.agent.post(f"/v1/graph/relationships/{link['id']}/restore")
    assert (answer.status_code, code(answer)) == (409, "src_object_deleted")


def test_objects_of_two_projects_are_not_linked(graph: Graph) -> None:
    here, there = graph.make(), graph.make(client=graph.other)
    told = graph.admin.post("/v1/graph/relationships", json=body(here, there))
    assert (told.status_code, code(told)) == (400, "relationship_project_mismatch")
    # Who works in one project alone does not learn of the other's.
    hidden = graph.agent.post("/v1/graph/relationships", json=body(here, there))
    assert (hidden.status_code, code(hidden)) == (404, "dst_object_not_found")
    shared = graph.make(client=graph.admin, project_id=None)
    wide = graph.admin.post("/v1/graph/relationships", json=body(here, shared, project_id=None))
    assert (wide.status_code, code(wide)) == (400, "relationship_project_mismatch")
    both = graph.make(client=graph.admin, project_id=None)
    made = graph.admin.post("/v1/graph/relationships", json=body(both, shared, project_id=None))
    assert made.json()["relationship"]["project_id"] is None
    path = f"/v1/graph/relationships/{made.json()['relationship']['id']}"
    assert graph.other.get(path).status_code == 200
    refused = graph.agent.patch(path, json={"weight": 1})
    assert (refused.status_code, code(refused)) == (403, "wrong_key_kind")


def test_what_a_type_allows(graph: Graph) -> None:
    schema = {"type": "object", "properties": {"role": {"enum": ["chair", "guest"]}}, "additionalProperties": False}
    graph.register(
        "relationship",
        "attended_by",
        allowed_src_types=["Meeting"],
        allowed_dst_types=["Person", "Bot"],
        json_schema=schema,
    )
    meeting, person, task = graph.make("Meeting"), graph.make("Person"), graph.make("Task")
    for pair, side in (((task, person), "src"), ((meeting, task), "dst")):
        answer = graph.agent.post("/v1/graph/relationships", json=body(*pair, "attended_by"))
        assert (answer.status_code, code(answer)) == (422, "relationship_schema_validation_failed")
        assert answer.json()["error"]["details"]["side"] == side
    bad = body(meeting, person, "attended_by", properties={"role": "king"})
    answer = graph.agent.post("/v1/graph/relationships", json=bad)
    assert (answer.status_code, code(answer)) == (422, "relationship_schema_validation_failed")
    assert answer.json()["error"]["details"]["errors"][0]["path"] == "/role"
    made = graph.link(meeting, person, "attended_by", properties={"role": "chair"})
    assert made["schema_version"] == 1
    answer = graph.agent.patch(f"/v1/graph/relationships/{made['id']}", json={"properties": {"x": 1}})
    assert (answer.status_code, code(answer)) == (422, "relationship_schema_validation_failed")


def test_other_words_for_the_ends(graph: Graph) -> None:
    a, b = graph.make(), graph.make()
    for names in (("src", "dst"), ("src_object_id", "dst_object_id"), ("src_id", "dst")):
        answer = graph.agent.post("/v1/graph/relationships", json={"type": "r", names[0]: a["id"], names[1]: b["id"]})
        assert answer.status_code in (200, 201), names
        assert answer.json()["relationship"]["dst_id"] == b["id"]
    for wrong in ({"src_id": a["id"]}, {"src_id": a["id"], "src": a["id"], "dst": b["id"]}):
        answer = graph.agent.post("/v1/graph/relationships", json={"type": "r", **wrong})
        assert (answer.status_code, code(answer)) == (400, "invalid_request")


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({"weight": "heavy"}, "invalid_request"),
        ({"valid_from": "2026-02-01T00:00:00Z", "valid_to": "2026-02-01T00:00:00Z"}, "invalid_period"),
        ({"properties": {"n": -(10**301)}}, "number_out_of_range"),
        ({"src_id": "x"}, "invalid_request"),
        ({"nonsense": 1}, "invalid_request"),
    ],
)
def test_what_cannot_be_a_relationship(graph: Graph, fields: dict[str, Any], expected: str) -> None:
    answer = graph.agent.post("/v1/graph/relationships", json={**body(graph.make(), graph.make()), **fields})
    assert (answer.status_code, code(answer)) == (400, expected)


def test_listed_by_their_ends(graph: Graph) -> None:
    a, b, c = graph.make(), graph.make(), graph.make()
    ab, bc, ca = graph.link(a, b, "x"), graph.link(b, c, "x"), graph.link(c, a, "y")

    def ids(**params: Any) -> list[str]:
        return [
            found["id"] for found in graph.agent.get("/v1/graph/relationships", params=params).json()["relationships"]
        ]

    assert ids() == [ca["id"], bc["id"], ab["id"]]
    assert ids(type="x") == [bc["id"], ab["id"]]
    assert ids(src_id=a["id"]) == [ab["id"]]
    assert ids(dst_id=a["id"]) == [ca["id"]]
    assert ids(object_id=b["id"]) == [bc["id"], ab["id"]]
    assert ids(object_id=str(uuid.uuid4())) == []
    graph.agent.delete(f"/v1/graph/relationships/{ab['id']}")
    assert ids(object_id=b["id"]) == [bc["id"]]
    assert len(ids(deleted="true")) == 1
