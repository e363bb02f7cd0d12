"""Every example body of the reference can be sent as it is, once what it speaks of exists."""

import re
from itertools import count
from typing import Any

import httpx
import psycopg
import pytest
import uuid_utils

from app.web.examples import ENTITY_ID, EXAMPLES, OBJECT_ID, OTHER_OBJECT_ID
from tests.conftest import PLATFORM_KEY, TestDatabase

NUMBERS = count(1)
ADMINISTRATIVE = (
    "/v1/admin",
    "/v1/lint",
    "/v1/tombstones",
    "/v1/decay",
    "/v1/sources",
    "/v1/projects",
    "/v1/predicates/",
)
Json = dict[str, Any]


class Place:
    """A tenant of its own, with what the examples need."""

    def __init__(self, client: httpx.Client, database: TestDatabase) -> None:
        self.client = client
        self.database = database
        self.tenant = f"example-{next(NUMBERS)}"
        self._platform("tenants", {"tenant_id": self.tenant})
        self._platform("projects", {"tenant_id": self.tenant, "project_id": "default"})
        keys = {
            "agent": {"kind": "agent", "agent_id": "robin", "project_id": "default"},
            "admin": {"kind": "admin"},
        }
        self.keys = {
            name: self._platform("keys", {"tenant_id": self.tenant, **body})["key"] for name, body in keys.items()
        }

    def _platform(self, what: str, body: Json) -> Json:
        answer = self.client.post(f"/v1/admin/{what}", json=body, headers={"Authorization": f"Bearer {PLATFORM_KEY}"})
        assert answer.is_success, answer.text
        return answer.json()

    def send(self, method: str, path: str, body: Any = None) -> httpx.Response:
        if path == "/v1/admin/tenants":
            headers = {"Authorization": f"Bearer {PLATFORM_KEY}"}
        else:
            kind = "admin" if path.startswith(ADMINISTRATIVE) else "agent"
            headers = {"Authorization": f"Bearer {self.keys[kind]}", "X-Project-Id": "default"}
        return self.client.request(method, path, json=body, headers=headers)

    def make(self, path: str, body: Any = None) -> Json:
        answer = self.send("POST", path, EXAMPLES[f"POST {path}"] if body is None else body)
        assert answer.is_success, answer.text
        return answer.json()

    def id_of(self, parameter: str, operation: str) -> str:
        """Make what a path speaks of, and return its id."""
        return getattr(self, f"_{parameter}")(operation)

    def _note_id(self, operation: str) -> str:
        note_id = self.make("/v1/notes")["note"]["note_id"]
        if operation.endswith("/recover"):
            assert self.send("DELETE", f"/v1/notes/{note_id}?reason=a+mistake").is_success
        return note_id

    def _fact_id(self, _: str) -> str:
        return self.make("/v1/facts")["fact"]["fact_id"]

    def _entity_id(self, _: str) -> str:
        return self.make("/v1/entities")["entity"]["entity_id"]

    def _predicate_id(self, _: str) -> str:
        return self.make("/v1/facts")["fact"]["predicate"]["predicate_id"]

    def _conflict_id(self, _: str) -> str:
        body: Json = {"subject": "Alice", "predicate": "favourite_colour"}
        self.make("/v1/facts", body | {"object": {"value": "red"}})
        return self.make("/v1/facts", body | {"object": {"value": "green"}})["conflicts"][0]

    def _tombstone_id(self, _: str) -> str:
        self.make("/v1/facts")
        return self.make("/v1/tombstones", {"entity": "Alice", "reason": "she asked"})["tombstone"]["tombstone_id"]

    def _garden_id(self, _: str) -> str:
        return self.make("/v1/gardens")["garden"]["garden_id"]

    def _agent(self, _: str) -> str:
        return "wren"

    def _name(self, operation: str) -> str:
        path = operation.split()[1].removesuffix("/{name}")
        return self.make(path)["schema"]["type"]

    def _object_id(self, _: str) -> str:
        return self.make("/v1/graph/objects")["object"]["canonical_id"]

    def _relationship_id(self, _: str) -> str:
        return self.make("/v1/graph/batch")["relationships"][0]["relationship"]["canonical_id"]

    def _review_id(self, _: str) -> str:
        review_id, note_id = str(uuid_utils.uuid7()), self._note_id("")
        with psycopg.connect(self.database.superuser, autocommit=True) as connection:
            connection.execute(
                "INSERT INTO memory_reviews (tenant_id, review_id, project_id, agent_id, scope, note_id, "
                "target_note_id, target_version, action, content, content_type, confidence, reason, "
                "extraction_model, created_at) VALUES (%s, %s, 'default', 'robin', 'project_shared', %s, %s, 1, "
                "'update', 'I moved to Milan.', 'fact', 0.9, 'she moved', 'test', now())",
                (self.tenant, review_id, note_id, note_id),
            )
        return review_id

    def _project_id(self, _: str) -> str:
        return "default"

    def _key_id(self, _: str) -> str:
        return self.make("/v1/admin/keys")["key_id"]

    def body(self, operation: str) -> Any:
        """Return the example with ids that exist."""
        example = EXAMPLES[operation]
        text = str(example)
        if OBJECT_ID not in text and ENTITY_ID not in text:
            if operation == "POST /v1/tombstones":
                self.make("/v1/facts")
            return example
        made = self.make("/v1/graph/batch") if "{" not in operation else None
        ids = {
            OBJECT_ID: made["objects"][0]["object"]["canonical_id"] if made else self._object_id(operation),
            OTHER_OBJECT_ID: made["objects"][1]["object"]["canonical_id"] if made else "",
            ENTITY_ID: self.make("/v1/entities", {"canonical": "Somebody else"})["entity"]["entity_id"],
        }
        return _replaced(example, ids)


def _replaced(value: Any, ids: dict[str, str]) -> Any:
    if isinstance(value, dict):
        return {name: _replaced(item, ids) for name, item in value.items()}
    if isinstance(value, list):
        return [_replaced(item, ids) for item in value]
    return ids.get(value, value) if isinstance(value, str) else value


@pytest.fixture
def place(client: httpx.Client, database: TestDatabase) -> Place:
    return Place(client, database)


@pytest.fixture(scope="module")
def document(service: Any) -> Json:
    return httpx.get(f"{service.url}/schema/openapi.json", timeout=30).json()


def bodies(document: Json) -> dict[str, Json]:
    return {
        f"{method.upper()} {path}": operation["requestBody"]["content"]["application/json"]
        for path, item in document["paths"].items()
        for method, operation in item.items()
        if "requestBody" in operation
    }


def test_every_body_of_the_reference_has_an_example(document: Json) -> None:
    found = bodies(document)
    assert sorted(found) == sorted(EXAMPLES)
    assert {operation: media["example"] for operation, media in found.items()} == EXAMPLES


@pytest.mark.parametrize("operation", EXAMPLES)
def test_an_example_can_be_sent(operation: str, place: Place) -> None:
    method, template = operation.split()
    path = re.sub(r"\{(\w+)\}", lambda match: place.id_of(match[1], operation), template)
    answer = place.send(method, path, place.body(operation))
    assert answer.is_success, answer.text
