"""Concurrent writers: no update is lost, constraints hold, and conflicts are retried."""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import httpx
import pytest

from tests.objects.conftest import Graph, code


def both(*work: Callable[[], httpx.Response]) -> list[int]:
    with ThreadPoolExecutor(len(work)) as pool:
        return [answer.status_code for answer in pool.map(lambda one: one(), work)]


def live(graph: Graph, link: dict[str, Any]) -> bool:
    return graph.agent.get(f"/v1/graph/relationships/{link['canonical_id']}").status_code == 200


def delete(graph: Graph, thing: dict[str, Any]) -> httpx.Response:
    return graph.agent.delete(f"/v1/graph/objects/{thing['canonical_id']}")


def restore(graph: Graph, thing: dict[str, Any]) -> httpx.Response:
    return graph.agent.post(f"/v1/graph/objects/{thing['canonical_id']}/restore")


def link(graph: Graph, src: dict[str, Any], dst: dict[str, Any], type: str = "relates_to") -> httpx.Response:
    body = {"type": type, "src_id": src["canonical_id"], "dst_id": dst["canonical_id"]}
    return graph.agent.post("/v1/graph/relationships", json=body)


def test_a_type_that_became_stricter_while_an_object_was_away(graph: Graph) -> None:
    a, b, c = graph.make(), graph.make(), graph.make()
    links = [graph.link(a, b, "m"), graph.link(a, c, "m")]
    delete(graph, a)
    graph.register("relationship", "m", multiplicity={"src": "one"})
    assert restore(graph, a).status_code == 200
    assert [live(graph, one) for one in links].count(True) == 1


def test_links_come_back_once_both_ends_are_there(graph: Graph) -> None:
    a, b = graph.make(), graph.make()
    made = graph.link(a, b)
    delete(graph, a)
    delete(graph, b)
    restore(graph, a)
    assert not live(graph, made)
    restore(graph, b)
    assert live(graph, made)
    # And one that was made anew meanwhile stays the only one.
    delete(graph, a)
    delete(graph, b)
    restore(graph, b)
    restore(graph, a)
    assert live(graph, made)
    graph.agent.delete(f"/v1/graph/relationships/{made['id']}")
    again = graph.link(a, b)
    delete(graph, a)
    assert restore(graph, a).status_code == 200
    assert (live(graph, again), live(graph, made)) == (True, False)


def test_a_link_that_was_deleted_by_itself_stays_so(graph: Graph) -> None:
    a, b = graph.make(), graph.make()
    made = graph.link(a, b)
    graph.agent.delete(f"/v1/graph/relationships/{made['id']}")
    delete(graph, a)
    restore(graph, a)
    assert not live(graph, made)


def test_objects_of_every_project_go_with_all_their_links(graph: Graph) -> None:
    shared, there = graph.make(client=graph.admin, project_id=None), graph.make(client=graph.other)
    body = {"type": "r", "src_id": there["id"], "dst_id": shared["id"]}
    path = (
        f"/v1/graph/relationships/{graph.other.post('/v1/graph/relationships', json=body).json()['relationship']['id']}"
    )
    assert graph.admin.delete(f"/v1/graph/objects/{shared['id']}").status_code == 204
    assert graph.other.get(path).status_code == 404
    assert graph.admin.post(f"/v1/graph/objects/{shared['id']}/restore").status_code == 200
    assert graph.other.get(path).status_code == 200


def test_what_is_hidden_does_not_come_back_without_its_end(graph: Graph) -> None:
    a, b = graph.make("A"), graph.make("B")
    made = graph.link(a, b)
    entity = graph.admin.post("/v1/entities", json={"canonical": "Zorblax"}).json()["entity"]["entity_id"]
    assert graph.admin.put(f"/v1/entities/{entity}/object", json={"object_id": b["id"]}).status_code == 200
    tombstone = graph.admin.post("/v1/tombstones", json={"entity": "Zorblax", "reason": "asked"}).json()["tombstone"]
    assert not live(graph, made)
    delete(graph, a)
    path = f"/v1/tombstones/{tombstone['tombstone_id']}/revoke"
    assert graph.admin.post(path, json={"reason": "mistake"}).status_code in (200, 201)
    assert not live(graph, made)
    restore(graph, a)
    assert live(graph, made)


def test_restored_beside_a_link_that_takes_the_place(graph: Graph) -> None:
    graph.register("relationship", "one", multiplicity={"dst": "one"})
    for _ in range(10):
        a, b, x = graph.make(), graph.make(), graph.make()
        made = graph.link(a, b, "one")
        delete(graph, a)
        outcomes = both(lambda a=a: restore(graph, a), lambda x=x, b=b: link(graph, x, b, "one"))
        assert outcomes[0] == 200
        assert outcomes[1] in (201, 400)
        into = graph.agent.get("/v1/graph/relationships", params={"dst_id": b["id"]}).json()["relationships"]
        assert len(into) == 1
        assert live(graph, made) is (outcomes[1] == 400)


def test_restored_beside_a_deletion_of_the_other_end(graph: Graph) -> None:
    for _ in range(12):
        a, b = graph.make(), graph.make()
        made = graph.link(a, b)
        delete(graph, a)
        assert both(lambda a=a: restore(graph, a), lambda b=b: delete(graph, b)) == [200, 204]
        assert not live(graph, made)


def test_linked_beside_a_deletion_of_an_end(graph: Graph) -> None:
    for _ in range(10):
        a, b = graph.make(), graph.make()
        outcomes = both(lambda a=a, b=b: link(graph, a, b), lambda b=b: delete(graph, b))
        assert outcomes[0] in (201, 409)
        assert outcomes[1] == 204
        assert graph.agent.get("/v1/graph/relationships", params={"object_id": a["id"]}).json()["relationships"] == []


def test_the_first_registration_of_a_type_beside_its_writers(graph: Graph) -> None:
    for turn in range(8):
        name = f"first_{turn}"
        a, ends = graph.make(), [graph.make() for _ in range(3)]

        def register(name: str = name) -> httpx.Response:
            return graph.admin.post(
                "/v1/graph/schemas/relationships", json={"type": name, "multiplicity": {"src": "one"}}
            )

        outcomes = both(
            *(lambda a=a, end=end, name=name: link(graph, a, end, name) for end in ends[:2]),
            register,
            lambda a=a, end=ends[2], name=name: link(graph, a, end, name),
        )
        linked = graph.agent.get("/v1/graph/relationships", params={"type": name}).json()["relationships"]
        assert outcomes[2] in (201, 409)
        assert outcomes[2] == 409 or len(linked) == 1


def test_versions_of_a_type_chosen_at_once(graph: Graph) -> None:
    for n in range(3):
        graph.register("object", "T", json_schema={"description": str(n)})

    def choose(n: int) -> int:
        body = {"version": 1 + n % 3, "status": "active"}
        return graph.admin.patch("/v1/graph/schemas/objects/T", json=body).status_code

    with ThreadPoolExecutor(6) as pool:
        assert set(pool.map(choose, range(18))) == {200}
    versions = graph.agent.get("/v1/graph/schemas/objects", params={"type": "T"}).json()["schemas"]
    assert [one["status"] for one in versions].count("active") == 1


def test_batches_that_meet_in_opposite_order(graph: Graph) -> None:
    things = [graph.make() for _ in range(6)]
    pairs = [(one, other) for one in things for other in things if one is not other][:20]
    for turn in range(4):

        def send(order: int, turn: int = turn) -> httpx.Response:
            links = [
                {"type": "r", "src_id": a["id"], "dst_id": b["id"], "properties": {"turn": turn, "by": order}}
                for a, b in pairs[::order]
            ]
            return graph.agent.post("/v1/graph/batch", json={"relationships": links})

        assert both(lambda: send(1), lambda: send(-1)) == [201, 201]


def test_made_beside_a_deletion_of_the_same_link(graph: Graph) -> None:
    for _ in range(10):
        a, b = graph.make(), graph.make()
        made = graph.link(a, b)
        outcomes = both(
            lambda a=a, b=b: link(graph, a, b),
            lambda made=made: graph.agent.delete(f"/v1/graph/relationships/{made['id']}"),
        )
        assert outcomes[0] in (200, 201)
        assert outcomes[1] == 204


def test_relationship_and_object_restored_at_once(graph: Graph) -> None:
    for _ in range(10):
        a, b = graph.make(), graph.make()
        made = graph.link(a, b)
        delete(graph, a)
        outcomes = both(
            lambda a=a: restore(graph, a),
            lambda made=made: graph.agent.post(f"/v1/graph/relationships/{made['id']}/restore"),
        )
        assert outcomes[0] == 200
        assert outcomes[1] in (200, 409)
        assert live(graph, made)


def test_a_key_cannot_be_taken_on_a_branch_of_others(graph: Graph) -> None:
    shared = graph.make("Person", client=graph.admin, project_id=None)
    body = {"type": "T", "key": "k", "branch_id": shared["branch_id"]}
    refused = graph.agent.post("/v1/graph/objects", json=body)
    assert (refused.status_code, code(refused)) == (400, "branch_mismatch")
    own = graph.make()
    refused = graph.admin.post("/v1/graph/objects", json={**body, "project_id": None, "branch_id": own["branch_id"]})
    assert (refused.status_code, code(refused)) == (400, "branch_mismatch")


def test_the_same_link_with_less_said(graph: Graph) -> None:
    graph.register("relationship", "r", json_schema={"type": "object"})
    a, b = graph.make(), graph.make()
    made = graph.link(a, b, "r", properties={"a": 1}, schema_version=1)
    assert link(graph, a, b, "r").json()["relationship"]["properties"] == {"a": 1}
    graph.register("relationship", "r", json_schema={"required": ["z"]})
    body = {"type": "r", "src_id": a["id"], "dst_id": b["id"], "schema_version": 1, "properties": {"a": 1}}
    again = graph.agent.post("/v1/graph/relationships", json=body)
    assert (again.status_code, again.json()["relationship"]["version"]) == (200, made["version"])


def test_numbers_keep_their_hash(graph: Graph) -> None:
    made = graph.make(properties={"x": 1e16, "y": 1.0, "z": [2.5, -3.0]})
    path = f"/v1/graph/objects/{made['id']}"
    read = graph.agent.get(path).json()
    assert graph.patch(made, status="s")["content_hash"] != made["content_hash"]
    assert graph.patch(made, status=None)["content_hash"] == made["content_hash"] == read["content_hash"]
    big = graph.agent.post("/v1/graph/objects", json={"type": "T", "properties": {"x": 1e305}})
    assert (big.status_code, code(big)) == (400, "number_out_of_range")


def test_a_type_that_others_use_is_not_changed_from_one_project(graph: Graph) -> None:
    graph.make("Mine")
    own = graph.agent.post("/v1/graph/schemas/objects", json={"type": "Mine", "json_schema": {"type": "object"}})
    assert own.status_code == 201
    graph.make("Ours", client=graph.other)
    refused = graph.agent.post("/v1/graph/schemas/objects", json={"type": "Ours", "json_schema": False})
    assert (refused.status_code, code(refused)) == (403, "type_used_elsewhere")
    assert graph.admin.post("/v1/graph/schemas/objects", json={"type": "Ours"}).status_code == 201


def test_a_link_with_very_many_properties_goes_with_a_short_summary(graph: Graph) -> None:
    a, b = graph.make(), graph.make()
    made = graph.link(a, b, properties={f"a name of a property {n}": n for n in range(3000)})
    delete(graph, a)
    path = f"/v1/graph/relationships/{made['id']}/versions"
    told = graph.agent.get(path, params={"includeChangeSummary": "true"}).json()["versions"][0]["change_summary"]
    assert told["paths"] == [""]
    assert told["meta"]["removed"] == 3000
    assert told["meta"]["propBytesAfter"] == 2


@pytest.mark.parametrize("name", ["type", "status", "key", "subtype"])
def test_an_empty_filter_finds_nothing(graph: Graph, name: str) -> None:
    graph.make(status="s", key="k", subtype="u")
    assert graph.agent.get("/v1/graph/objects", params={name: ""}).json()["objects"] == []


def test_filters_take_the_id_of_any_version(graph: Graph) -> None:
    a, b = graph.make(), graph.make()
    made = graph.link(a, b)
    newer = graph.patch(a, status="x")
    for params in ({"src_id": newer["id"]}, {"object_id": newer["id"]}):
        found = graph.agent.get("/v1/graph/relationships", params=params).json()["relationships"]
        assert [one["id"] for one in found] == [made["id"]]


def test_agents_do_not_bind_what_belongs_to_every_project(graph: Graph) -> None:
    shared = graph.make("Person", client=graph.admin, project_id=None)
    entity = graph.admin.post("/v1/entities", json={"canonical": "Quark"}).json()["entity"]["entity_id"]
    path = f"/v1/entities/{entity}/object"
    refused = graph.agent.put(path, json={"object_id": shared["id"]})
    assert (refused.status_code, code(refused)) == (403, "wrong_key_kind")
    assert graph.admin.put(path, json={"object_id": shared["id"]}).status_code == 200
    assert graph.agent.delete(path).status_code == 403


@pytest.mark.parametrize(
    "fields",
    [
        {"labels": ["zebu-quark"]},
        {"key": "zebu%20quark"},
        {"properties": {"mail": "zebu.quark@example.com"}},
        {"properties": {"zebu_quark": 1}},
        {"title": "about Zebu Quark"},
        {"type": "Zebu_Quark"},
    ],
)
def test_names_are_found_however_they_are_joined(graph: Graph, fields: dict[str, Any]) -> None:
    named = graph.make(**{"type": "Thing", **fields})
    graph.admin.post("/v1/entities", json={"canonical": "Zebu Quark"})
    graph.admin.post("/v1/tombstones", json={"entity": "Zebu Quark", "reason": "asked"})
    assert graph.agent.get(f"/v1/graph/objects/{named['id']}").status_code == 404
