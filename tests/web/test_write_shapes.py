"""What a write answers: the thing under its singular name with the outcome beside it, whatever the method."""

from collections.abc import Iterator
from typing import Any

import httpx
import pytest

Json = dict[str, Any]
# A read that is sent as a POST, and settings that are read and replaced as one document.
BARE = {"POST /v1/recall", "PUT /v1/projects/{project_id}/settings"}


@pytest.fixture(scope="module")
def document(service: Any) -> Json:
    return httpx.get(f"{service.url}/schema/openapi.json", timeout=30).json()


def answers(document: Json, *methods: str) -> Iterator[tuple[str, str]]:
    """Yield the operations with these methods, and the schema of their first successful answer."""
    for path, operations in document["paths"].items():
        for method in methods:
            responses: Json = operations.get(method, {}).get("responses", {})
            for status in sorted(code for code in responses if code.startswith("2")):
                schema: Json = responses[status].get("content", {}).get("application/json", {}).get("schema", {})
                if "$ref" in schema:
                    yield f"{method.upper()} {path}", schema["$ref"].rsplit("/", 1)[1]
                    break


def test_no_write_answers_what_a_read_answers(document: Json) -> None:
    read = {schema for _, schema in answers(document, "get")}
    bare = {operation for operation, schema in answers(document, "post", "put", "patch") if schema in read}
    assert bare == BARE


def test_a_change_is_answered_as_the_create_is(document: Json) -> None:
    created = dict(answers(document, "post"))
    changed = dict(answers(document, "patch"))
    assert len(changed) >= 9
    for operation, schema in changed.items():
        collection = operation.removeprefix("PATCH ").rsplit("/", 1)[0]
        assert schema == created[f"POST {collection}"], operation


def test_what_is_changed_again_is_answered_the_same(document: Json) -> None:
    """Restoring, recovering and binding answer as the create of the same thing does."""
    created = dict(answers(document, "post", "put"))
    for again, create in {
        "POST /v1/notes/{note_id}/recover": "POST /v1/notes",
        "POST /v1/graph/objects/{object_id}/restore": "POST /v1/graph/objects",
        "POST /v1/graph/relationships/{relationship_id}/restore": "POST /v1/graph/relationships",
        "PUT /v1/entities/{entity_id}/object": "POST /v1/entities",
    }.items():
        assert created[again] == created[create]


def test_a_thing_has_one_name_beside_its_outcome(document: Json) -> None:
    """The schema of an answer that has an outcome also has the thing, under a name of its own."""
    schemas = document["components"]["schemas"]
    for operation, schema in answers(document, "post", "put", "patch"):
        fields = schemas[schema]["properties"]
        if {"created", "deduplicated"} & set(fields):
            things = [name for name, field in fields.items() if "$ref" in field]
            assert len(things) == 1, (operation, things)
