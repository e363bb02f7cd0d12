"""JSON Schemas of types: compiled once, cached by content, limited in cost, and never fetched over the network."""

import hashlib
import math
from functools import lru_cache
from itertools import islice
from typing import Any, cast

import jsonschema_rs
import msgspec

from app.errors import BadRequest, Unprocessable
from app.objects.json_pointer import escape
from app.objects.types.cost import SchemaCost, UnknownReference, find_patterns
from app.objects.types.patterns import ENGINE, MAX_MATCH_BYTES, compiled_size, match_size

MAX_SCHEMA_BYTES = 128 * 1024
MAX_ERRORS = 20
# Steps of one check as computed from the schema's structure; this many take a tenth of a second.
MAX_STEPS = 10_000_000
# Nanoseconds of one check as computed from the schema and the document; nobody else is served meanwhile.
MAX_TIME = 100_000_000
_STEP_TIME = 10
# Dividing takes longer for fractions, and longest for numbers with hundreds of digits.
_INTEGER_TIME = 1_000
_FRACTION_TIME = 15_000
_LONG_NUMBER_TIME = 70_000
# The validator builds all errors before it yields the first, each with its part of the document and of the schema.
MAX_ERROR_STEPS = 20_000
MAX_ERROR_BYTES = 5_000_000
MAX_ERROR_WORK = 50_000_000
MAX_MESSAGE = 300
MAX_NESTING = 64
MAX_PATTERNS = 200
# The bytes of all compiled patterns of a schema.
MAX_PATTERNS_BYTES = 6_000_000

Schema = dict[str, Any] | bool


class Checker(msgspec.Struct, frozen=True):
    """A compiled schema with the cost of one check and the depth of documents that it can check."""

    validator: Any
    costs: SchemaCost
    size: int
    max_depth: int | None

    def errors(self, document: Any) -> list[dict[str, str]]:
        """Return where a document fails and why; an empty list when it is valid.

        A document whose check could take longer than a tenth of a second fails as a whole.
        """
        depth, values = measure(document)
        if self.max_depth is not None and depth > self.max_depth:
            message = f"nested {depth} levels deep; this schema refers to itself and allows {self.max_depth} levels"
            return [{"path": "", "message": message, "keyword": "depth"}]
        cost, size = self.costs.total, len(msgspec.json.encode(document))
        time = cost.steps * values * _STEP_TIME + (cost.multiples and cost.multiples * _number_time(document))
        if time > MAX_TIME:
            message = f"{values} values are too many for a schema of {cost.steps} parts; split it"
            return [{"path": "", "message": message, "keyword": "size"}]
        if self._too_slow(document, size * (depth if cost.returns else 1), MAX_TIME - time):
            message = "its texts are too long for the patterns of the schema; shorten them or simplify the patterns"
            return [{"path": "", "message": message, "keyword": "pattern"}]
        if self.validator.is_valid(document):
            return []
        return self._failures(document, cost.steps * values, size * max(1, depth) * cost.steps, values)

    def _too_slow(self, document: Any, size: int, limit: float) -> bool:
        """Return whether the texts take too long: by a bound on all of them, or else by those that are matched."""
        if self.costs.total.text * size <= limit:
            return False
        return self.costs.text_time(document, limit=limit) > limit

    def _failures(self, document: Any, steps: int, size: int, values: int) -> list[dict[str, str]]:
        small = steps <= MAX_ERROR_STEPS and size <= MAX_ERROR_BYTES and values * self.size <= MAX_ERROR_WORK
        if small:
            return [_describe_error(error) for error in islice(self.validator.iter_errors(document), MAX_ERRORS)]
        if self.costs.total.alternatives:
            message = "does not fit the schema; it is too large to say where, so check its parts one by one"
            return [{"path": "", "message": message, "keyword": "size"}]
        try:
            self.validator.validate(document)
        except jsonschema_rs.ValidationError as error:
            return [_describe_error(error)]
        return []


def _number_time(document: Any) -> int:
    """Return the nanoseconds to divide every number of a document once."""
    time = 0
    waiting: list[Any] = [document]
    while waiting:
        value = waiting.pop()
        if isinstance(value, (dict, list)):
            waiting += cast(Any, value).values() if isinstance(value, dict) else cast(list[Any], value)
        elif isinstance(value, float):
            time += _FRACTION_TIME if not value or 1e-9 < abs(value) < 1e18 else _LONG_NUMBER_TIME
        elif isinstance(value, int):
            time += _INTEGER_TIME if abs(value) < 2**63 else _LONG_NUMBER_TIME
    return time


def _describe_error(error: Any) -> dict[str, str]:
    path = "".join(f"/{escape(str(part))}" for part in error.instance_path)
    return {"path": path, "message": error.message[:MAX_MESSAGE], "keyword": error.kind.name}


def compile_schema(schema: Schema, field: str = "json_schema", *, resources: Any = None) -> Checker:
    """Return the checker of a schema; raise BadRequest when it is not a JSON Schema or could cost too much.

    References lead into the schema (under `$defs`, by `$id`) or to the resources; nothing is fetched.
    """
    encoded = msgspec.json.encode(schema, order="sorted")
    # Costs are kept by the identity of the schema's parts, which may be shared in the one that is given.
    schema = msgspec.json.decode(encoded)
    if len(encoded) > MAX_SCHEMA_BYTES:
        raise BadRequest(f"{field}: over {MAX_SCHEMA_BYTES // 1024} KiB; split the type.", code="schema_too_large")
    _check_patterns(schema, field)
    try:
        deep = measure(schema)[0] > MAX_NESTING
        costs = None if deep else SchemaCost(schema, outside=resources is not None)
    except RecursionError:
        costs = None
    except UnknownReference as problem:
        raise BadRequest(
            f"{field}: {str(problem)[:MAX_MESSAGE]} is not within the schema; put it under $defs, with its $id.",
            code="schema_invalid",
        ) from problem
    if costs is None or costs.total.steps > MAX_STEPS:
        raise BadRequest(
            f"{field}: nested too deep, or one check takes over {MAX_STEPS:,} steps; make it flatter.",
            code="schema_too_complex",
        )
    returns = costs.total.returns
    depth = None if returns < 2 else max(1, math.floor(math.log(MAX_STEPS) / math.log(returns)))
    try:
        return Checker(_compile(encoded, resources), costs, len(encoded), depth)
    except ValueError as problem:
        message = str(problem).partition("\n")[0][:MAX_MESSAGE]
        raise BadRequest(f"{field}: not a JSON Schema: {message}", code="schema_invalid") from problem


def _check_patterns(schema: Schema, field: str) -> None:
    """Raise BadRequest for a pattern that cannot run in linear time, or that is too large to match a short text."""
    total = 0
    for count, (place, pattern) in enumerate(find_patterns(schema)):
        size = compiled_size(pattern)
        if size is None:
            raise BadRequest(
                f"{field}: {place}: {pattern[:MAX_MESSAGE]} is not a regular expression, is too large, or uses "
                "look-around or back-references, which cannot run in linear time.",
                code="schema_invalid",
                details={"path": place},
            )
        total += size
        if match_size(pattern) > MAX_MATCH_BYTES:
            raise BadRequest(
                f"{field}: {place}: {pattern[:MAX_MESSAGE]} repeats its parts too often; use maxLength for long texts.",
                code="schema_too_complex",
                details={"path": place},
            )
        if count >= MAX_PATTERNS or total > MAX_PATTERNS_BYTES:
            raise BadRequest(
                f"{field}: {place}: the patterns are too many or too large together; at most {MAX_PATTERNS}.",
                code="schema_too_complex",
                details={"path": place},
            )


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
        pattern_options=ENGINE,
    )


def measure(document: Any) -> tuple[int, int]:
    """Return how deep a document is nested, and how many values it contains."""
    depth, values, level = 0, 1, _nested([document])
    while level:
        depth += 1
        inner: list[Any] = []
        for item in level:
            if item:
                values += len(item)
                inner += _nested(item.values() if isinstance(item, dict) else item)
        level = inner
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
