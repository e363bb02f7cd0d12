"""Which schemas are accepted, and the limits of their cost."""

import time
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.errors import BadRequest
from app.objects.types.patterns import match_size
from app.objects.types.schemas import Pointer
from app.objects.types.validation import compile_schema, measure


def nested(levels: int) -> Any:
    document: Any = {}
    for _ in range(levels):
        document = {"c": document}
    return document


def doubling(steps: int, reference: str = "#/$defs/d{}", leaf: Any = None) -> dict[str, Any]:
    """Return a schema that refers to each of its parts twice, in one of several notations."""
    parts: dict[str, Any] = {f"d{n}": {"allOf": [{"$ref": reference.format(n + 1)}] * 2} for n in range(steps)}
    return {"$defs": {**parts, f"d{steps}": leaf or {"type": "object"}}, "$ref": "#/$defs/d0"}


def unevaluated(steps: int) -> dict[str, Any]:
    """Return a schema each of whose parts looks for the members that the next one leaves out."""
    schema: dict[str, Any] = {"type": "object"}
    for _ in range(steps):
        schema = {"allOf": [schema], "unevaluatedProperties": {"type": "integer"}}
    return schema


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
        # A name of a property is not a keyword, whatever it is called.
        ({**doubling(40), "$ref": "#/$defs/d39", "properties": {"enum": {"$ref": "#/$defs/d0"}}}, "schema_too_complex"),
        ({"pattern": "a[ab]{10000}c"}, "schema_too_complex"),
        ({"pattern": "[^c]{2500}"}, "schema_too_complex"),
        ({"properties": {"a": {"pattern": "^(?!x)"}}}, "schema_invalid"),
        ({"properties": {"a": {"pattern": r"^(a+)\1$"}}}, "schema_invalid"),
        ({"patternProperties": {f"^{n}x": {} for n in range(1000)}}, "schema_too_complex"),
        ({"allOf": [{"pattern": rf"^\p{{L}}{{{n},60}}$"} for n in range(20)]}, "schema_too_complex"),
        (unevaluated(12), "schema_too_complex"),
        (doubling(14, leaf={"enum": [n + 0.5 for n in range(1000)]}), "schema_too_complex"),
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
    many = compile_schema({"patternProperties": {f"^{n}x": {} for n in range(150)}})
    assert many.errors({f"k{n}": n for n in range(20_000)})[0]["keyword"] in ("size", "pattern")
    assert time.monotonic() - began < 5


def test_a_refused_pattern_is_named_with_its_place() -> None:
    with pytest.raises(BadRequest) as caught:
        compile_schema({"properties": {"a/b": {"items": [{"pattern": "a[ab]{10000}c"}]}}})
    assert caught.value.details == {"path": "/properties/a~1b/items/0/pattern"}


@pytest.mark.parametrize(
    ("schema", "document"),
    [
        ({"pattern": "a[ab]{1000}c"}, "ab" * 60_000),
        ({"properties": {"t": {"allOf": [{"pattern": "a[ab]{60}c"}] * 50}}}, {"t": "ab" * 10_000}),
        ({"items": {"pattern": "a[ab]{60}c"}}, ["ab" * 500] * 100),
        ({"patternProperties": {"a[ab]{200}c": {}}}, {"ab" * 50 + str(n): 1 for n in range(500)}),
        ({"propertyNames": {"pattern": "a[ab]{200}c"}}, {"ab" * 50 + str(n): 1 for n in range(500)}),
        ({"pattern": "a[ab]{60}c", "items": {"$ref": "#"}}, [[["ab" * 30_000]]]),
        ({"$defs": {"p": {"pattern": "a[ab]{60}c"}}, "items": {"$ref": "#/$defs/p"}}, ["ab" * 30_000]),
        ({"allOf": [{"minLength": 1}] * 6000}, "a" * 250_000),
        ({"$schema": "http://json-schema.org/draft-07/schema#", "format": "uri-template"}, "a" * 250_000),
        ({"allOf": [{"uniqueItems": True}] * 50}, list(range(20_000))),
    ],
)
def test_texts_that_take_too_long_are_not_checked(schema: Any, document: Any) -> None:
    (error,) = compile_schema(schema).errors(document)
    assert (error["path"], error["keyword"]) in (("", "pattern"), ("", "size"))


@pytest.mark.parametrize(
    ("schema", "document"),
    [
        ({"items": {"not": {"enum": [n + 0.5 for n in range(1000)]}}}, [0.25] * 5000),
        ({"items": {"not": {"enum": [[n] for n in range(1000)]}}}, [[-1]] * 5000),
        ({"items": {"not": {"const": {"a": [0] * 1000}}}}, [{"a": [0] * 999}] * 200),
        ({"items": {"multipleOf": 0.3333333}}, [1e-300] * 20_000),
        ({"items": {"dependentRequired": {f"p{n}": ["a"] for n in range(5000)}}}, [{}] * 50_000),
        ({"items": {"properties": {f"p{n}": True for n in range(5000)}}}, [{}] * 50_000),
    ],
)
def test_values_that_take_too_long_are_not_checked(schema: Any, document: Any) -> None:
    (error,) = compile_schema(schema).errors(document)
    assert (error["path"], error["keyword"]) == ("", "size")


def test_long_texts_pass_where_no_pattern_matches_them() -> None:
    named = {f"p{n}": {"pattern": r"^[\p{L} .'-]{1,20}$"} for n in range(3)}
    person = compile_schema({"properties": {**named, "code": {"pattern": "^[A-Z]{2,3}-[0-9]{1,6}$"}, "body": {}}})
    assert person.errors({"p0": "Ada", "p2": "Zoë", "code": "AB-12", "body": "x" * 200_000}) == []
    assert person.errors({"p0": "1", "body": "x" * 200_000})[0]["path"] == "/p0"
    plain = compile_schema({"properties": {"body": {"pattern": "^[a-z0-9 ]+$", "maxLength": 250_000}}})
    assert plain.errors({"body": "x" * 180_000}) == []
    bounded = compile_schema({"pattern": r"^.{1,500}$"})
    assert bounded.errors("é" * 400) == []


def test_errors_of_a_large_document_are_few() -> None:
    """All errors contain their part of the document, so that thousands of a long text would take gigabytes."""
    failing = compile_schema({"allOf": [{"type": "number"}] * 5000})
    assert [error["keyword"] for error in failing.errors("a" * 250_000)] == ["type"]
    either = compile_schema({"anyOf": [{"items": {"anyOf": [{"type": "string"}] * 60}}] * 60})
    (error,) = either.errors([1] * 500)
    assert (error["path"], error["keyword"]) == ("", "size")
    few = compile_schema({"items": {"type": "string"}})
    assert len(few.errors([1] * 100)) == 20


@given(
    parts=st.lists(st.sampled_from(["a", "[ab]", ".", "[^c]", r"\w", r"\p{L}", "(a|b)", "é"]), min_size=1, max_size=4),
    times=st.integers(20, 60),
)
def test_the_size_of_a_pattern_grows_with_its_repetitions(parts: list[str], times: int) -> None:
    once = match_size(f"x(?:{'|'.join(parts)}|[xy]z)y")
    assert match_size(f"x(?:{'|'.join(parts)}|[xy]z){{{times}}}y") >= times / 4 * min(once, 64)


@pytest.mark.parametrize("pointer", ["/" * 200 + "~", "/a~2", "no", "~"])
def test_pointers_are_read_in_no_time(pointer: str) -> None:
    began = time.monotonic()
    with pytest.raises(msgspec.ValidationError):
        msgspec.convert(pointer, Pointer)
    assert time.monotonic() - began < 3
