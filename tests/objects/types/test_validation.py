"""Which schemas are accepted, and the limits of their cost."""

import time
from typing import Any

import msgspec
import pytest

from app.errors import BadRequest
from app.objects.types.schemas import Pointer
from app.objects.types.validation import compile_schema, measure


def nested(levels: int) -> Any:
    document: Any = {}
    for _ in range(levels):
        document = {"c": document}
    return document


def doubling(steps: int, reference: str = "#/$defs/d{}") -> dict[str, Any]:
    """Return a schema that refers to each of its parts twice, in one of several notations."""
    parts: dict[str, Any] = {f"d{n}": {"allOf": [{"$ref": reference.format(n + 1)}] * 2} for n in range(steps)}
    return {"$defs": {**parts, f"d{steps}": {"type": "object"}}, "$ref": "#/$defs/d0"}


@pytest.mark.parametrize(
    ("schema", "code"),
    [
        ({"type": "nonsense"}, "schema_invalid"),
        ({"properties": {"a": {"pattern": "("}}}, "schema_invalid"),
        ({"$ref": "#/$defs/nowhere"}, "schema_invalid"),
        ({"$ref": "http://localhost:1/schema.json"}, "schema_invalid"),
        ({"$ref": "file:///etc/passwd"}, "schema_invalid"),
        ({"description": "x" * 200_000}, "schema_too_large"),
        (doubling(40), "schema_too_complex"),
        (doubling(40, "#/$defs/%64{}"), "schema_too_complex"),
        ({"$id": "http://x/s", **doubling(40, "http://x/s#/$defs/d{}")}, "schema_too_complex"),
        ({"$id": "http://x/s", **doubling(40, "s#/$defs/d{}")}, "schema_too_complex"),
        ({"properties": nested(80)}, "schema_too_complex"),
    ],
)
def test_schemas_that_are_refused(schema: Any, code: str) -> None:
    with pytest.raises(BadRequest) as caught:
        compile_schema(schema)
    assert caught.value.code == code
    assert caught.value.message.startswith("json_schema: ")


def test_a_schema_that_returns_to_itself_twice_is_checked_to_a_depth() -> None:
    mean = compile_schema({"properties": {"c": {"allOf": [{"$ref": "#"}, {"$ref": "#"}]}}})
    assert mean.errors(nested(10)) == []
    began = time.monotonic()
    (error,) = mean.errors(nested(30))
    assert error["keyword"] == "depth"
    assert time.monotonic() - began < 5


def test_a_plain_recursive_schema_is_checked_to_any_depth() -> None:
    tree = compile_schema({"type": "object", "additionalProperties": {"$ref": "#"}})
    assert tree.errors(nested(31)) == []
    assert tree.errors({"c": {"c": 1}})[0]["path"] == "/c/c"


def test_errors_name_their_place_as_json_pointers() -> None:
    checker = compile_schema({"properties": {"a/b": {"items": {"type": "integer"}}}, "required": ["x"]})
    found = {error["path"]: error["keyword"] for error in checker.errors({"a/b": [1, "two"]})}
    assert found == {"/a~1b/1": "type", "": "required"}


def test_how_deep_and_how_much() -> None:
    documents: list[Any] = [1, [], {}, [1], {"a": []}, [[], {"b": [0]}]]
    assert [measure(document) for document in documents] == [(0, 1), (1, 1), (1, 1), (1, 2), (2, 2), (3, 5)]


def test_a_check_is_over_soon_whatever_the_document() -> None:
    listed = compile_schema({"items": {"enum": [f"value {n}" for n in range(5000)]}})
    began = time.monotonic()
    (error,) = listed.errors(["x"] * 20_000)
    assert (error["path"], error["keyword"]) == ("/0", "enum")
    many = compile_schema({"patternProperties": {f"^{n}x": {} for n in range(2000)}})
    assert many.errors({f"k{n}": n for n in range(20_000)})[0]["keyword"] == "size"
    assert time.monotonic() - began < 5


@pytest.mark.parametrize("pointer", ["/" * 200 + "~", "/a~2", "no", "~"])
def test_pointers_are_read_in_no_time(pointer: str) -> None:
    began = time.monotonic()
    with pytest.raises(msgspec.ValidationError):
        msgspec.convert(pointer, Pointer)
    assert time.monotonic() - began < 3
