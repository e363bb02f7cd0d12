"""What a schema may be, and what it may cost."""

import time
from typing import Any

import pytest

from app.errors import BadRequest
from app.objects.types.validation import compile_schema, depth_of


def nested(levels: int) -> Any:
    document: Any = {}
    for _ in range(levels):
        document = {"c": document}
    return document


def doubling(steps: int) -> dict[str, Any]:
    """A schema that refers to each of its parts twice."""
    parts: dict[str, Any] = {f"d{n}": {"allOf": [{"$ref": f"#/$defs/d{n + 1}"}] * 2} for n in range(steps)}
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
    assert mean.errors(nested(10), depth=10) == []
    began = time.monotonic()
    (error,) = mean.errors(nested(30), depth=30)
    assert error["keyword"] == "depth"
    assert time.monotonic() - began < 1


def test_a_plain_recursive_schema_is_checked_to_any_depth() -> None:
    tree = compile_schema({"type": "object", "additionalProperties": {"$ref": "#"}})
    assert tree.errors(nested(31), depth=31) == []
    assert tree.errors({"c": {"c": 1}}, depth=2)[0]["path"] == "/c/c"


def test_errors_name_their_place_as_json_pointers() -> None:
    checker = compile_schema({"properties": {"a/b": {"items": {"type": "integer"}}}, "required": ["x"]})
    found = {error["path"]: error["keyword"] for error in checker.errors({"a/b": [1, "two"]}, depth=2)}
    assert found == {"/a~1b/1": "type", "": "required"}


def test_depth() -> None:
    assert [depth_of(value) for value in (1, [], {}, [1], {"a": []}, [[], {"b": [0]}])] == [0, 1, 1, 1, 2, 3]
