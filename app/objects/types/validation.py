"""JSON Schemas of types: compiled once and kept by their content, bounded in what they cost, fetched from nowhere."""

import hashlib
import math
from functools import lru_cache
from typing import Any, cast

import jsonschema_rs
import msgspec

from app.errors import BadRequest, Unprocessable
from app.objects.pointers import escape
from app.objects.types.cost import Cost, measure_schema

MAX_SCHEMA_BYTES = 128 * 1024
MAX_ERRORS = 20
# Steps that one check may take, as far as the form of a schema tells: some tenths of a second.
MAX_STEPS = 10_000_000
MAX_MESSAGE = 300
MAX_NESTING = 64

Schema = dict[str, Any] | bool


class Checker(msgspec.Struct, frozen=True):
    """A compiled schema, and how deep a document may be that it checks."""

    validator: Any
    max_depth: int | None

    def errors(self, document: Any, *, depth: int) -> list[dict[str, str]]:
        """Where a document fails, and why; empty when it is valid."""
        if self.max_depth is not None and depth > self.max_depth:
            message = f"nested {depth} levels deep; this schema refers to itself and is checked to {self.max_depth}"
            return [{"path": "", "message": message, "keyword": "depth"}]
        found: list[dict[str, str]] = []
        for error in self.validator.iter_errors(document):
            path = "".join(f"/{escape(str(part))}" for part in error.instance_path)
            found.append({"path": path, "message": error.message[:MAX_MESSAGE], "keyword": error.kind.name})
            if len(found) == MAX_ERRORS:
                break
        return found


def compile_schema(schema: Schema, field: str = "json_schema", *, resources: Any = None) -> Checker:
    """The checker of a schema; one that is no JSON Schema, or could cost too much, is refused.

    What it refers to stands within it (under `$defs`, by its `$id`) or among the resources; nothing is fetched.
    """
    encoded = msgspec.json.encode(schema, order="sorted")
    if len(encoded) > MAX_SCHEMA_BYTES:
        raise BadRequest(f"{field}: over {MAX_SCHEMA_BYTES // 1024} KiB; split the type.", code="schema_too_large")
    try:
        cost = Cost(MAX_STEPS + 1, 0) if depth_of(schema) > MAX_NESTING else measure_schema(schema)
    except RecursionError:
        cost = Cost(MAX_STEPS + 1, 0)
    if cost.steps > MAX_STEPS:
        raise BadRequest(
            f"{field}: nested or referring too deep, or to over {MAX_STEPS:,} steps for one check; make it flatter.",
            code="schema_too_complex",
        )
    depth = None if cost.returns < 2 else max(1, math.floor(math.log(MAX_STEPS) / math.log(cost.returns)))
    try:
        return Checker(_compile(encoded, resources), depth)
    except ValueError as problem:
        message = str(problem).partition("\n")[0][:MAX_MESSAGE]
        raise BadRequest(f"{field}: not a JSON Schema: {message}", code="schema_invalid") from problem


def stored_checker(text: str) -> Checker:
    """The checker of a schema as it is stored; compiled when it is first used."""
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


def depth_of(value: Any) -> int:
    """How many objects and arrays lie within each other."""
    depth, level = 0, _nested([value])
    while level:
        depth += 1
        members = (cast(dict[str, Any], item).values() if isinstance(item, dict) else item for item in level)
        level = [inner for part in members for inner in _nested(part)]
    return depth


def _nested(values: Any) -> list[Any]:
    return [value for value in values if isinstance(value, (dict, list))]


def schema_failed(errors: list[dict[str, str]], *, code: str, field: str, name: str, version: int) -> Unprocessable:
    """The error for properties that do not fit their type."""
    first = errors[0]
    return Unprocessable(
        f"{field}{first['path']}: {first['message']} (type {name}, schema version {version}).",
        code=code,
        details={"errors": errors, "type": name, "schema_version": version},
    )
