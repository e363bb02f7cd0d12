"""Totals of lists, on request: exact up to 10,000, then a lower bound."""

from collections.abc import Callable, Iterator
from typing import Any
from uuid import uuid4

import httpx
import psycopg
import pytest

from app.access import Principal
from app.db import counts
from app.paging import CursorSigner, Page, Total
from tests.conftest import PLATFORM_KEY, Tenancy, TestDatabase

# Every list that pages, and the field with its items.
LISTS = {
    "/v1/admin/audit-log": "events",
    "/v1/admin/keys": "keys",
    "/v1/admin/projects": "projects",
    "/v1/admin/redactions": "redactions",
    "/v1/admin/tenants": "tenants",
    "/v1/cards": "cards",
    "/v1/conflicts": "conflicts",
    "/v1/decay/policies": "policies",
    "/v1/documents": "documents",
    "/v1/documents/{document_id}/notes": "notes",
    "/v1/entities": "entities",
    "/v1/facts": "facts",
    "/v1/gardens": "gardens",
    "/v1/gardens/{garden_id}/members": "members",
    "/v1/graph/neighbors": "neighbors",
    "/v1/graph/objects": "objects",
    "/v1/graph/objects/{object_id}/versions": "versions",
    "/v1/graph/relationships": "relationships",
    "/v1/graph/relationships/{relationship_id}/versions": "versions",
    "/v1/graph/schemas/objects": "schemas",
    "/v1/graph/schemas/relationships": "schemas",
    "/v1/jobs": "jobs",
    "/v1/notes": "notes",
    "/v1/notes/{note_id}/history": "events",
    "/v1/predicates": "predicates",
    "/v1/reviews": "reviews",
    "/v1/sources": "sources",
    "/v1/threads": "threads",
    "/v1/threads/{thread_id}": "notes",
    "/v1/tombstones": "tombstones",
    "/v1/users": "users",
}
# What narrows a list, and leaves something of it.
FILTERS: dict[str, dict[str, str]] = {
    "/v1/admin/audit-log": {"event_type": "garden_write"},
    "/v1/conflicts": {"entity": "nobody"},
    "/v1/documents": {"source_type": "markdown"},
    "/v1/entities": {"name": "Alice"},
    "/v1/facts": {"entity": "Alice", "include_contradicted": "false"},
    "/v1/graph/objects": {"properties": '{"n": 1}'},
    "/v1/graph/relationships": {"type": "other"},
    "/v1/graph/schemas/objects": {"type": "T1"},
    "/v1/jobs": {"kind": "trust"},
    "/v1/notes": {"tag": "odd"},
    "/v1/predicates": {"prefix": "likes"},
    "/v1/tombstones": {"active": "false"},
}
Json = dict[str, Any]


@pytest.fixture(scope="module")
def key(tenancy: Tenancy) -> str:
    return tenancy.key(tenancy.tenant("acme"))


@pytest.fixture
def robin(key: str, as_key: Callable[..., httpx.Client]) -> httpx.Client:
    return as_key(key)


@pytest.fixture(scope="module")
def superuser(database: TestDatabase) -> Iterator[psycopg.Connection[Any]]:
    with psycopg.connect(database.superuser, autocommit=True) as connection:
        yield connection


class Filled:
    """A tenant with at least three of everything that is listed."""

    def __init__(self, url: str, tenancy: Tenancy, superuser: psycopg.Connection[Any]) -> None:
        self.tenant = tenancy.tenant("filled", "default", "two", "three")
        for number in range(2):
            tenancy.tenant(f"filled-{number}")
        self._superuser = superuser
        keys = {
            "agent": tenancy.key(self.tenant),
            "admin": tenancy.key(self.tenant, kind="admin"),
            "third": tenancy.key(self.tenant, agent_id="wren"),
            "platform": PLATFORM_KEY,
        }
        self._clients = {
            name: httpx.Client(
                base_url=url,
                timeout=30,
                headers={"Authorization": f"Bearer {value}"} | ({"X-Project-Id": "default"} if name == "admin" else {}),
            )
            for name, value in keys.items()
        }
        self.ids: dict[str, str] = {}
        self._write_memory()
        self._write_graph()
        self._write_administration()
        self._insert_rows()

    def close(self) -> None:
        for client in self._clients.values():
            client.close()

    def make(self, path: str, body: Json, *, admin: bool = False, method: str = "POST") -> Json:
        answer = self._clients["admin" if admin else "agent"].request(method, path, json=body)
        assert answer.is_success, answer.text
        return answer.json()

    def get(self, path: str, params: Json) -> Json:
        administrative = path.startswith(("/v1/admin", "/v1/tombstones"))
        client = self._clients["platform" if path == "/v1/admin/tenants" else "admin" if administrative else "agent"]
        if path == "/v1/graph/neighbors":
            params = {**params, "entity": "Alice"}
        answer = client.get(path.format(**self.ids), params=params)
        assert answer.is_success, answer.text
        return answer.json()

    def _write_memory(self) -> None:
        for number in range(3):
            note = {"content": f"note {number}", "tags": ["odd"] * (number % 2)}
            self.ids["note_id"] = self.make("/v1/notes", note)["note"]["note_id"]
            source_type = "text" if number else "markdown"
            document = self.make("/v1/documents", {"content": f"document {number}", "source_type": source_type})
            self.ids["document_id"] = document["document"]["document_id"]
            friend: Json = {"subject": "Alice", "predicate": f"knows {number}", "object": {"entity": f"Bob {number}"}}
            self.make("/v1/facts", friend)
            self.make("/v1/facts", {"subject": "Alice", "predicate": "likes", "object": {"value": f"tea {number}"}})
            self.make("/v1/facts", {"subject": f"Bob {number}", "predicate": "has", "object": {"value": "a card"}})
            self.get("/v1/cards", {"entity": f"Bob {number}", "force_refresh": "true"})
        self.ids["thread_id"] = "chat"
        for number in range(3):
            turn = {"content": f"turn {number}", "thread_id": "chat", "position": number}
            self.make("/v1/notes", turn)
            self.make("/v1/notes", {**turn, "user_id": f"user {number}"})
        for text in ("changed", "changed again"):
            self.make(f"/v1/notes/{self.ids['note_id']}", {"content": text, "reason": "r"}, method="PATCH")

    def _write_graph(self) -> None:
        made = [self.make("/v1/graph/objects", {"type": "T", "properties": {"n": n}})["object"] for n in range(4)]
        self.ids["object_id"] = made[0]["canonical_id"]
        for number in range(3):
            self.make(f"/v1/graph/objects/{self.ids['object_id']}", {"status": f"s{number}"}, method="PATCH")
            self.make("/v1/graph/schemas/objects", {"type": f"T{number}"})
            self.make("/v1/graph/schemas/relationships", {"type": f"R{number}"})
            ends = {"src_id": made[0]["canonical_id"], "dst_id": made[number + 1]["canonical_id"]}
            link = self.make("/v1/graph/relationships", {"type": "links" if number else "other", **ends})
            self.ids["relationship_id"] = link["relationship"]["canonical_id"]
        for weight in (0.1, 0.2):
            path = f"/v1/graph/relationships/{self.ids['relationship_id']}"
            self.make(path, {"weight": weight}, method="PATCH")

    def _write_administration(self) -> None:
        for number in range(3):
            garden = self.make("/v1/gardens", {"slug": f"garden-{number}"})["garden"]
            self.ids["garden_id"] = garden["garden_id"]
            self.make("/v1/admin/redactions", {"pattern": f"secret-{number}"}, admin=True)
            self.make("/v1/sources", {"source": f"source {number}"}, admin=True, method="PUT")
            self.make(
                "/v1/decay/policies",
                {"relation": f"knows {number}", "mode": "confidence", "half_life_s": 1000},
                admin=True,
            )
            self.make("/v1/tombstones", {"entity": f"Carol {number}", "reason": "asked"}, admin=True)
        for agent in ("wren", "lark"):
            self.make(f"/v1/gardens/{self.ids['garden_id']}/members/{agent}", {"role": "reader"}, method="PUT")

    def _insert_rows(self) -> None:
        """Insert what only a worker makes."""
        place = {"tenant": self.tenant, **self.ids}
        for number in range(3):
            self._superuser.execute(
                "INSERT INTO memory_reviews (tenant_id, review_id, project_id, agent_id, scope, note_id, "
                "target_note_id, target_version, action, content, content_type, confidence, reason, "
                "extraction_model, created_at) VALUES (%(tenant)s, %(id)s, 'default', 'robin', 'project_shared', "
                "%(note_id)s, %(note_id)s, 1, 'update', 'I moved.', 'fact', 0.9, 'she moved', 'test', now())",
                {**place, "id": str(uuid4())},
            )
            self._superuser.execute(
                "INSERT INTO document_notes (tenant_id, document_id, chunk_index, note_id, project_id, agent_id, "
                "scope, owned) VALUES (%(tenant)s, %(document_id)s, %(number)s, %(note_id)s, 'default', 'robin', "
                "'project_shared', false)",
                {**place, "number": number},
            )
        with self._superuser.transaction():
            self._superuser.execute("SELECT set_scope(%s, '', '', '{}', '')", (self.tenant,))
            self._superuser.execute("SELECT * FROM seal_audit(1000)")


@pytest.fixture(scope="module")
def filled(service: Any, tenancy: Tenancy, superuser: psycopg.Connection[Any]) -> Iterator[Filled]:
    made = Filled(service.url, tenancy, superuser)
    yield made
    made.close()


def test_every_list_that_pages_offers_a_total(client: httpx.Client) -> None:
    document = client.get("/schema/openapi.json").json()
    paging = dict[str, set[str]]()
    for path, operations in document["paths"].items():
        parameters = {one["name"] for one in operations.get("get", {}).get("parameters", ()) if one["in"] == "query"}
        if "cursor" in parameters:
            paging[path] = parameters
    assert sorted(paging) == sorted(LISTS)
    assert [path for path, parameters in paging.items() if "include_total" not in parameters] == []


@pytest.mark.parametrize("path", LISTS)
def test_a_total_counts_all_pages(filled: Filled, path: str) -> None:
    name = LISTS[path]
    assert "total" not in filled.get(path, {"limit": 1})
    seen, cursor, totals = 0, None, list[Json]()
    while cursor is not None or not totals:
        page = filled.get(path, {"limit": 2, "include_total": "true", **({"cursor": cursor} if cursor else {})})
        seen, cursor = seen + len(page[name]), page["next_cursor"]
        totals.append(page["total"])
    assert seen >= 3
    assert totals == [{"count": seen, "exact": True}] * len(totals)


@pytest.mark.parametrize("path", FILTERS)
def test_a_total_keeps_to_the_filters(filled: Filled, path: str) -> None:
    every = filled.get(path, {"include_total": "true"})["total"]["count"]
    found = filled.get(path, {**FILTERS[path], "include_total": "true"})
    assert found["total"] == {"count": len(found[LISTS[path]]), "exact": True}
    assert found["total"]["count"] < every
    assert found[LISTS[path]] or path in ("/v1/conflicts", "/v1/tombstones")


@pytest.mark.parametrize("path", ["/v1/graph/objects", "/v1/graph/relationships"])
def test_totals_of_objects_at_a_past_time(filled: Filled, path: str) -> None:
    every = filled.get(path, {})[LISTS[path]]
    then = filled.get(path, {"limit": 1, "as_of": every[1]["created_at"], "include_total": "true"})
    assert then["total"] == {"count": len(every) - 1, "exact": True}


def test_totals_of_cards_at_a_past_time(filled: Filled) -> None:
    asked = {"include_total": "true", "valid_at": "2100-01-01T00:00:00Z"}
    for name, count in (("Alice", 1), ("nobody", 0)):
        assert filled.get("/v1/cards", {**asked, "entity": name})["total"] == {"count": count, "exact": True}


def test_a_total_of_what_a_walk_left_out_is_a_lower_bound() -> None:
    who = Principal(tenant_id="acme", key_id="", kind="agent")
    page = Page(CursorSigner(b"secret"), who, "neighbors", limit=1, cursor=None, include_total=True)
    assert page.total_of(7, complete=False) == Total(count=7, exact=False)


def test_totals_of_a_past_time(robin: httpx.Client) -> None:
    first = robin.post("/v1/notes", json={"content": "the first", "thread_id": "past"}).json()["note"]
    robin.post("/v1/notes", json={"content": "the second", "thread_id": "past"}).raise_for_status()
    asked = {"thread_id": "past", "include_total": "true"}
    assert robin.get("/v1/notes", params=asked).json()["total"]["count"] == 2
    then = robin.get("/v1/notes", params={**asked, "as_of": first["created_at"]}).json()
    assert then["total"] == {"count": 1, "exact": True}


def test_more_than_ten_thousand_are_a_lower_bound(robin: httpx.Client, superuser: psycopg.Connection[Any]) -> None:
    robin.post("/v1/notes", json={"content": "many", "thread_id": "many"}).raise_for_status()
    superuser.execute("""
        INSERT INTO memory_notes (tenant_id, note_id, project_id, agent_id, scope, owner_key, type, content,
            content_hash, tags, pinned, occurred_at, thread_id, position, created_at, updated_at)
        SELECT n.tenant_id, gen_random_uuid(), n.project_id, n.agent_id, n.scope, n.owner_key, n.type, n.content,
               n.content_hash, n.tags, false, n.occurred_at, n.thread_id, i, n.created_at, n.updated_at
        FROM memory_notes n, generate_series(1, 10000) i WHERE n.thread_id = 'many'""")
    asked = {"thread_id": "many", "limit": 1, "include_total": "true"}
    assert robin.get("/v1/notes", params=asked).json()["total"] == {"count": 10_000, "exact": False}
    superuser.execute("DELETE FROM memory_notes WHERE thread_id = 'many' AND position = 1")
    assert robin.get("/v1/notes", params=asked).json()["total"] == {"count": 10_000, "exact": True}


def test_the_bound() -> None:
    assert counts.MAX_COUNTED == 10_000
