"""The OpenAPI document and its page: complete, resolvable, and served without anything from elsewhere."""

import re
from typing import Any

import httpx
import pytest

from app.web.descriptions import FIELDS
from app.web.reference import OPERATION_IDS


@pytest.fixture
def document(client: httpx.Client) -> dict[str, Any]:
    return client.get("/schema/openapi.json").json()


def operations(document: dict[str, Any]) -> list[tuple[str, str, dict[str, Any]]]:
    return [(path, method, operation) for path, item in document["paths"].items() for method, operation in item.items()]


def test_every_operation_says_what_it_is(document: dict[str, Any]) -> None:
    tags = {tag["name"] for tag in document["tags"]}
    for path, method, operation in operations(document):
        where = f"{method} {path}"
        assert operation["summary"], where
        assert operation["description"], where
        assert set(operation["tags"]) <= tags, where


def test_every_operation_under_v1_documents_our_envelope(document: dict[str, Any]) -> None:
    for path, method, operation in operations(document):
        if not path.startswith("/v1"):
            continue
        for status in ("400", "401", "403", "404", "408", "409", "429"):
            content = operation["responses"][status]["content"]["application/json"]["schema"]
            assert content == {"$ref": "#/components/schemas/ErrorEnvelope"}, (method, path, status)


def test_everything_that_writes_documents_422(document: dict[str, Any]) -> None:
    for path, method in (("/v1/facts/{fact_id}", "patch"), ("/v1/graph/objects", "post"), ("/v1/notes", "post")):
        content = document["paths"][path][method]["responses"]["422"]["content"]["application/json"]["schema"]
        assert content == {"$ref": "#/components/schemas/ErrorEnvelope"}, (method, path)
    for path, method, operation in operations(document):
        if path.startswith("/v1") and method in ("put", "patch"):
            assert "422" in operation["responses"], (method, path)
    assert "422" not in document["paths"]["/v1/recall"]["post"]["responses"]


def test_every_reference_resolves(document: dict[str, Any]) -> None:
    def walk(node: Any) -> None:
        if isinstance(node, dict):
            if "$ref" in node:
                found: Any = document
                for part in node["$ref"].removeprefix("#/").split("/"):
                    found = found[part]
            for item in node.values():
                walk(item)
        elif isinstance(node, list):
            for item in node:
                walk(item)

    walk(document)


def test_the_page_loads_nothing_from_elsewhere(client: httpx.Client) -> None:
    page = client.get("/schema")
    assert page.headers["content-type"].startswith("text/html")
    assert "default-src 'none'" in page.headers["content-security-policy"]
    assert re.findall(r"(?:src|href)\s*=\s*[\"']?(?:https?:)?//", page.text) == []
    assert "innerHTML" not in page.text


def test_fields_are_described_in_the_words_of_the_code(document: dict[str, Any]) -> None:
    schemas = document["components"]["schemas"]
    assert schemas["FactCreate"]["description"].startswith("A fact: a subject")
    assert "relation" in schemas["FactCreate"]["properties"]["predicate"]["description"]
    assert "goes into" in schemas["EntityMerge"]["properties"]["from"]["description"]
    assert "64 KiB" in schemas["NoteCreate"]["properties"]["content"]["description"]


def test_only_health_needs_no_key(document: dict[str, Any], client: httpx.Client) -> None:
    for path, method, operation in operations(document):
        if path.startswith("/v1"):
            url = re.sub(r"\{[^}]*\}", "018f0000-0000-7000-8000-000000000000", path)
            assert client.request(method, url).status_code == 401, path
        else:
            assert operation["security"] == [{}], path


def test_the_headers_are_parameters_where_they_count(document: dict[str, Any]) -> None:
    def headers(path: str, method: str) -> set[str]:
        return {
            item["name"].lower() for item in document["paths"][path][method]["parameters"] if item["in"] == "header"
        }

    assert headers("/v1/notes", "post") == {"x-project-id", "x-user-id", "idempotency-key"}
    assert headers("/v1/notes", "get") == {"x-project-id", "x-user-id"}
    assert "idempotency-key" in headers("/v1/admin/tenants", "post")


def test_a_create_that_may_find_the_thing_documents_both_answers(document: dict[str, Any]) -> None:
    for path in ("/v1/notes", "/v1/admin/tenants", "/v1/admin/projects"):
        assert {"200", "201"} <= set(document["paths"][path]["post"]["responses"])
    assert {"200", "201"} <= set(document["paths"]["/v1/gardens/{garden_id}/members/{agent}"]["put"]["responses"])


def test_operation_ids_are_short_and_unique(document: dict[str, Any]) -> None:
    ids = [operation["operationId"] for _, _, operation in operations(document)]
    assert len(ids) == len(set(ids))
    assert {"createNote", "listNotes", "recall", "createFact", "createGraphBatch"} <= set(ids)
    assert [name for name in ids if not re.fullmatch(r"[a-z]+([A-Z][a-z]+){0,4}", name)] == []


def test_names_given_to_operations_are_used(document: dict[str, Any]) -> None:
    known = {f"{method.upper()} {path}": operation["operationId"] for path, method, operation in operations(document)}
    assert {operation: known[operation] for operation in OPERATION_IDS} == OPERATION_IDS


def test_what_people_need_first_comes_first_and_administration_last(document: dict[str, Any]) -> None:
    tags = [tag["name"] for tag in document["tags"]]
    assert tags[:5] == ["notes", "recall", "users", "facts", "entities"]
    assert tags[-1] == "administration"
    paths = list(document["paths"])
    assert paths[0] == "/v1/notes"
    assert next(path for path in paths if path.startswith(("/v1/recall", "/v1/cards"))) == "/v1/recall"
    assert paths[-1].startswith("/v1/admin")
    assert next(iter(document["paths"]["/v1/notes"])) == "post"


def test_items_of_batches_are_typed(document: dict[str, Any]) -> None:
    schemas = document["components"]["schemas"]
    assert schemas["NoteBatch"]["properties"]["notes"]["items"] == {"$ref": "#/components/schemas/NoteCreate"}
    assert schemas["FactBatch"]["properties"]["facts"]["items"] == {"$ref": "#/components/schemas/FactCreate"}
    assert schemas["GraphBatch"]["properties"]["objects"]["items"] == {"$ref": "#/components/schemas/BatchObject"}
    assert "ref" in schemas["BatchObject"]["properties"]
    assert "src_ref" in schemas["BatchRelationship"]["properties"]


def test_every_field_is_described(document: dict[str, Any]) -> None:
    schemas = document["components"]["schemas"]
    bare = [
        f"{name}.{field}"
        for name, schema in schemas.items()
        for field, about in schema.get("properties", {}).items()
        if not about.get("description")
    ]
    assert bare == []


def test_every_shared_description_is_used(document: dict[str, Any]) -> None:
    schemas = document["components"]["schemas"]
    fields = {field for schema in schemas.values() for field in schema.get("properties", {})}
    whole = {f"{name}.{field}" for name, schema in schemas.items() for field in schema.get("properties", {})}
    assert [name for name in FIELDS if name not in fields | whole] == []
