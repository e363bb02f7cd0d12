"""JSON Schemas of types: compiled once, cached by content, limited in cost, and never fetched over the network."""

import hashlib
import math
from collections.abc import Iterator
from functools import lru_cache
from itertools import islice
from typing import Any, cast

import jsonschema_rs
import msgspec

from app.errors import BadRequest, Unprocessable
from app.objects.json_pointer import escape
from app.objects.types.cost import Cost, UnknownReference, measure_schema

MAX_SCHEMA_BYTES = 128 * 1024
MAX_ERRORS = 20
# Steps of one check as computed from the schema's structure; this many take some tenths of a second.
MAX_STEPS = 10_000_000
# The steps times the values of a document.
MAX_WORK = 20_000_000
# The bytes of a schema times the values of a document; beyond this only the first error is reported.
MAX_ERROR_WORK = 50_000_000
MAX_MESSAGE = 300
MAX_NESTING = 64

Schema = dict[str, Any] | bool


class Checker(msgspec.Struct, frozen=True):
    """A compiled schema with the cost of one check and the depth of documents that it can check."""

    validator: Any
    steps: int
    size: int
    max_depth: int | None

    def errors(self, document: Any) -> list[dict[str, str]]:
        """Return where a document fails and why; an empty list when it is valid."""
        depth, values = measure(document)
        if self.max_depth is not None and depth > self.max_depth:
            message = f"nested {depth} levels deep; this schema refers to itself and allows {self.max_depth} levels"
            return [{"path": "", "message": message, "keyword": "depth"}]
        if self.steps * values > MAX_WORK:
            message = f"{values} values are too many for a schema of {self.steps} parts; split it"
            return [{"path": "", "message": message, "keyword": "size"}]
        if self.validator.is_valid(document):
            return []
        # The validator builds all errors before it yields the first, each with its part of the schema.
        several = values * self.size <= MAX_ERROR_WORK
        return [_describe_error(error) for error in islice(self._failures(document, several), MAX_ERRORS)]

    def _failures(self, document: Any, several: bool) -> Iterator[Any]:
        if several:
            yield from self.validator.iter_errors(document)
            return
        try:
            self.validator.validate(document)
        except jsonschema_rs.ValidationError as error:
            yield error


def _describe_error(error: Any) -> dict[str, str]:
    path = "".join(f"/{escape(str(part))}" for part in error.instance_path)
    return {"path": path, "message": error.message[:MAX_MESSAGE], "keyword": error.kind.name}


def compile_schema(schema: Schema, field: str = "json_schema", *, resources: Any = None) -> Checker:
    """Return the checker of a schema; raise BadRequest when it is not a JSON Schema or could cost too much.

    References lead into the schema (under `$defs`, by `$id`) or to the resources; nothing is fetched.
    """
    encoded = msgspec.json.encode(schema, order="sorted")
    if len(encoded) > MAX_SCHEMA_BYTES:
        raise BadRequest(f"{field}: over {MAX_SCHEMA_BYTES // 1024} KiB; split the type.", code="schema_too_large")
    try:
        deep = measure(schema)[0] > MAX_NESTING
        cost = Cost(MAX_STEPS + 1, 0) if deep else measure_schema(schema, outside=resources is not None)
    except RecursionError:
        cost = Cost(MAX_STEPS + 1, 0)
    except UnknownReference as problem:
        raise BadRequest(
            f"{field}: {str(problem)[:MAX_MESSAGE]} is not within the schema; put it under $defs, with its $id.",
            code="schema_invalid",
        ) from problem
    if cost.steps > MAX_STEPS:
        raise BadRequest(
            f"{field}: nested too deep, or one check takes over {MAX_STEPS:,} steps; make it flatter.",
            code="schema_too_complex",
        )
    depth = None if cost.returns < 2 else max(1, math.floor(math.log(MAX_STEPS) / math.log(cost.returns)))
    try:
        return Checker(_compile(encoded, resources), cost.steps, len(encoded), depth)
    except ValueError as problem:
        message = str(problem).partition("\n")[0][:MAX_MESSAGE]
        raise BadRequest(f"{field}: not a JSON Schema: {message}", code="schema_invalid") from problem


def stored_checker(text: str) -> Checker:
    """Return the checker of a stored schema, which is compiled when it is first used."""
    return _stored(hashlib.sha256(text.encode()).digest(), text)


@lru_cache(maxsize=2000)
def _stored(_hash: bytes, text: str) -> Checker:
    return compile_schema(msgspec.json.decode(text))


@lru_cache(maxsize=2000)
def _compile(encoded: bytes, resources: Any) -> Any:
    return jsonschema_rs.validator_for(
        msgspec.json.decode(encoded),
        offline=True,
        registry=resources,
        pattern_options=jsonschema_rs.FancyRegexOptions(backtrack_limit=100_000, size_limit=10_000_000),
    )


def measure(document: Any) -> tuple[int, int]:
    """Return how deep a document is nested, and how many values it contains."""
    depth, values, level = 0, 1, _nested([document])
    while level:
        depth += 1
        parts: list[Any] = [list(cast(Any, item).values()) if isinstance(item, dict) else item for item in level]
        values += sum(len(part) for part in parts)
        level = [inner for part in parts for inner in _nested(part)]
    return depth, values


def _nested(values: Any) -> list[Any]:
    return [value for value in values if isinstance(value, (dict, list))]


def schema_failed(errors: list[dict[str, str]], *, code: str, field: str, name: str, version: int) -> Unprocessable:
    """Return the error for properties that fail the schema of their type."""
    first = errors[0]
    return Unprocessable(
        f"{field}{first['path']}: {first['message']} (type {name}, schema version {version}).",
        code=code,
        details={"errors": errors, "type": name, "schema_version": version},
    )
