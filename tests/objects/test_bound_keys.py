"""Keys that are bound to one project: they act in it, and change nothing that other projects share."""

from tests.objects.conftest import Graph, code


def test_an_administrator_of_one_project_cannot_write_shared_objects(graph: Graph) -> None:
    shared = graph.make(client=graph.admin, project_id=None, key="shared")
    peer = graph.make(client=graph.admin, project_id=None, key="peer")
    own = graph.make(client=graph.bound_admin, key="own")
    path = f"/v1/graph/objects/{shared['id']}"
    body = {"type": "rel", "src_id": shared["id"], "dst_id": peer["id"], "project_id": None}
    link = graph.admin.post("/v1/graph/relationships", json=body).json()["relationship"]
    for refused in (
        graph.bound_admin.patch(path, json={"status": "mine"}),
        graph.bound_admin.delete(path),
        graph.bound_admin.post("/v1/graph/objects", json={"type": "Thing", "project_id": None}),
        graph.bound_admin.post("/v1/graph/relationships", json={**body, "type": "other"}),
        graph.bound_admin.patch(f"/v1/graph/relationships/{link['id']}", json={"weight": 1}),
        graph.bound_admin.delete(f"/v1/graph/relationships/{link['id']}"),
    ):
        assert (refused.status_code, code(refused)) == (403, "project_forbidden"), refused.text
    assert graph.admin.delete(path).status_code == 204
    refused = graph.bound_admin.post(f"{path}/restore")
    assert (refused.status_code, code(refused)) == (403, "project_forbidden")
    # It reads and links what is shared, and writes its own project.
    assert graph.bound_admin.get(f"/v1/graph/objects/{peer['id']}").status_code == 200
    own_link = {"type": "rel", "src_id": own["id"], "dst_id": peer["id"]}
    assert graph.bound_admin.post("/v1/graph/relationships", json=own_link).status_code == 201
    assert graph.bound_admin.patch(f"/v1/graph/objects/{own['id']}", json={"status": "mine"}).status_code == 200


def test_an_administrator_of_one_project_cannot_bind_shared_objects(graph: Graph) -> None:
    shared = graph.make(client=graph.admin, project_id=None, key="shared")
    entity = graph.admin.post("/v1/entities", json={"canonical": "Alice"}).json()
    path = f"/v1/entities/{(entity.get('entity') or entity)['entity_id']}/object"
    refused = graph.bound_admin.put(path, json={"object_id": shared["id"]})
    assert (refused.status_code, code(refused)) == (403, "wrong_key_kind")
    assert graph.admin.put(path, json={"object_id": shared["id"]}).status_code == 200
    assert graph.bound_admin.delete(path).status_code == 403


def test_an_administrator_of_one_project_cannot_change_types_that_others_use(graph: Graph) -> None:
    graph.make("Used", client=graph.other)
    for kind in ("object", "relationship"):
        graph.register(kind, "Used")
    a, b = graph.make(client=graph.other), graph.make(client=graph.other)
    body = {"type": "Used", "src_id": a["id"], "dst_id": b["id"]}
    assert graph.other.post("/v1/graph/relationships", json=body).status_code == 201
    for kind in ("objects", "relationships"):
        path = f"/v1/graph/schemas/{kind}"
        for refused in (
            graph.bound_admin.post(path, json={"type": "Used", "json_schema": {"required": ["x"]}}),
            graph.bound_admin.patch(f"{path}/Used", json={"version": 1, "status": "retired"}),
        ):
            assert (refused.status_code, code(refused)) == (403, "type_used_elsewhere"), refused.text
        assert graph.bound_admin.post(path, json={"type": "Own"}).status_code == 201
        assert graph.admin.post(path, json={"type": "Used", "description": "new"}).status_code == 201
