"""Entities are bound to objects and unbound, only where the caller may see both."""

from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any
from uuid import uuid4

import httpx
import pytest

from tests.conftest import Tenancy
from tests.erasure.shared import revoke, tombstone
from tests.facts.shared import entity, error, new
from tests.objects.entity_links.shared import Objects, Superuser


def bind(client: httpx.Client, entity_id: str, object_id: str) -> httpx.Response:
    return client.put(f"/v1/entities/{entity_id}/object", json={"object_id": object_id})


def bound(client: httpx.Client, entity_id: str, **params: Any) -> str | None:
    answer = client.get(f"/v1/entities/{entity_id}", params=params)
    assert answer.status_code == 200, answer.text
    return answer.json()["object_canonical_id"]


def test_an_entity_is_bound_shown_bound_anew_and_unbound(objects: Objects, robin: httpx.Client) -> None:
    made = entity(robin)
    entity_id = made["entity_id"]
    assert made["object_canonical_id"] is None
    one, two = objects.put("one"), objects.put("two")
    objects.change(two, title="two again")
    version = objects.one("SELECT version_id FROM graph_objects WHERE canonical_id = %s", two)["version_id"]
    answer = bind(robin, entity_id, one)
    assert (answer.status_code, answer.json()["entity"]["object_canonical_id"]) == (200, one)
    assert answer.json()["entity"]["entity_id"] == entity_id
    assert bound(robin, entity_id) == one
    (found,) = robin.get("/v1/entities", params={"name": made["canonical"]}).json()["entities"]
    assert found["object_canonical_id"] == one
    again = robin.post("/v1/entities", json={"canonical": made["canonical"]}).json()["entity"]
    assert again["object_canonical_id"] == one
    assert bind(robin, entity_id, str(version)).json()["entity"]["object_canonical_id"] == two, "by the id of a version"
    taken = robin.delete(f"/v1/entities/{entity_id}/object")
    assert (taken.status_code, taken.content) == (204, b"")
    assert robin.delete(f"/v1/entities/{entity_id}/object").status_code == 204
    assert bound(robin, entity_id) is None
    lines = objects.rows(
        "SELECT details ->> 'action' AS action, details ->> 'object_id' AS object FROM audit_log "
        "WHERE event_type = 'object_write' AND details ->> 'entity_id' = %s ORDER BY created_at",
        entity_id,
    )
    assert [(line["action"], line["object"]) for line in lines] == [
        ("entity_bind", one), ("entity_bind", two), ("entity_unbind", two),
    ]  # fmt: skip


def test_at_a_past_time_only_an_object_that_was_there(
    objects: Objects, robin: httpx.Client, admin: httpx.Client
) -> None:
    entity_id = entity(robin)["entity_id"]
    between = datetime.now(UTC).isoformat()
    bind(robin, entity_id, objects.put("later"))
    assert bound(admin, entity_id, as_of=between) is None
    assert bound(admin, entity_id, as_of=datetime.now(UTC).isoformat()) is not None


def test_a_merged_entity_binds_what_it_became(objects: Objects, robin: httpx.Client) -> None:
    source, target = entity(robin)["entity_id"], entity(robin)["entity_id"]
    one, two = objects.put("one"), objects.put("two")
    bind(robin, source, one)
    merged = robin.post(f"/v1/entities/{source}/merge", json={"into": target}).json()["entity"]
    assert merged["object_canonical_id"] == one
    assert bind(robin, source, two).json()["entity"]["entity_id"] == target
    assert bound(robin, target) == two


def test_one_of_every_project_may_be_bound_and_one_of_another_not(
    objects: Objects, robin: httpx.Client, admin: httpx.Client, elsewhere: httpx.Client, superuser: Superuser
) -> None:
    entity_id = entity(robin)["entity_id"]
    everybodys = objects.put("everybody's", project=None)
    # What hides the entity hides the object for all: not for an agent of one project to decide.
    assert error(bind(robin, entity_id, everybodys)) == (403, "wrong_key_kind")
    assert bind(admin, entity_id, everybodys).status_code == 200
    deleted, hidden = objects.put("deleted"), objects.put("hidden")
    superuser.execute("UPDATE graph_objects SET deleted_at = now() WHERE canonical_id = %s", (deleted,))
    for table in ("graph_objects", "graph_object_versions"):
        superuser.execute(f"UPDATE {table} SET suppression = 1 WHERE canonical_id = %s".encode(), (hidden,))
    foreign = Objects(superuser, tenant="rival").put("foreign")
    answers = [
        bind(robin, entity_id, object_id)
        for object_id in (objects.put("theirs", project="other"), deleted, hidden, foreign, str(uuid4()))
    ]
    assert {error(answer) for answer in answers} == {(404, "object_not_found")}
    assert len({answer.json()["error"]["message"] for answer in answers}) == 1
    assert bound(robin, entity_id) is not None, "what was bound stays"


def test_entities_that_are_hidden_foreign_or_unknown_are_all_alike(
    objects: Objects, robin: httpx.Client, elsewhere: httpx.Client, rival: httpx.Client, admin: httpx.Client
) -> None:
    one = objects.put("one")
    gone = entity(robin)
    tombstone(admin, gone["canonical"])
    others = [entity(elsewhere)["entity_id"], entity(rival)["entity_id"], gone["entity_id"], str(uuid4())]
    for answer in [bind(robin, other, one) for other in others] + [
        robin.delete(f"/v1/entities/{other}/object") for other in others
    ]:
        assert error(answer) == (404, "entity_not_found")


def test_a_hidden_object_is_not_shown(objects: Objects, robin: httpx.Client, admin: httpx.Client) -> None:
    other = entity(robin, new("Zebulon"))
    entity_id = entity(robin)["entity_id"]
    both = objects.put(f"about {other['canonical']}")
    bind(robin, entity_id, both)
    made = tombstone(admin, other["canonical"])
    assert bound(robin, entity_id) is None
    revoke(admin, made)
    assert bound(robin, entity_id) == both


def test_about_what_is_hidden_in_part_an_agent_learns_nothing_and_an_administrator_is_told(
    objects: Objects, robin: httpx.Client, admin: httpx.Client
) -> None:
    made = entity(robin)
    first, second = objects.put("first"), objects.put("second")
    bind(robin, made["entity_id"], first)
    stone = tombstone(admin, made["canonical"], scope="project_shared")
    assert objects.levels(first) == {1}
    answer = bind(robin, made["entity_id"], second)
    assert (answer.status_code, answer.json()["entity"]["object_canonical_id"]) == (200, second)
    assert objects.levels(first) == objects.levels(second) == {1}, "what was hidden stays hidden"
    assert error(bind(admin, made["entity_id"], objects.put("third"))) == (409, "entity_tombstoned")
    revoke(admin, stone)
    assert objects.levels(first) == objects.levels(second) == {0}
    assert bound(robin, made["entity_id"]) == second


def test_it_takes_the_scope_and_a_well_formed_body(
    objects: Objects, robin: httpx.Client, tenancy: Tenancy, as_key: Callable[..., httpx.Client]
) -> None:
    entity_id = entity(robin)["entity_id"]
    reader = as_key(tenancy.key("acme", scopes=["facts:read", "facts:write", "graph:read"]))
    assert bind(reader, entity_id, objects.put("one")).status_code == 403
    assert reader.delete(f"/v1/entities/{entity_id}/object").status_code == 403
    for body in ({}, {"object_id": "x"}, {"object_id": None}, {"object_id": str(uuid4()), "more": 1}):
        assert robin.put(f"/v1/entities/{entity_id}/object", json=body).status_code == 400


@pytest.mark.parametrize("path", ["/v1/entities/{entity_id}/object"])
def test_it_is_in_the_reference(robin: httpx.Client, path: str) -> None:
    document = robin.get("/schema/openapi.json").json()
    assert set(document["paths"][path]) >= {"put", "delete"}
    assert "object_canonical_id" in document["components"]["schemas"]["EntityRead"]["properties"]
