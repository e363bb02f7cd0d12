"""Checks of input that a type alone cannot make."""

import re
from collections.abc import Iterator
from datetime import UTC, datetime
from functools import cache
from typing import Any, cast

import msgspec

from app.errors import BadRequest

LOCATION = re.compile(r"^(?P<message>.*?)(?: - at `(?P<kind>key in )?\$(?P<path>.*)`)?$", flags=re.DOTALL)
UNKNOWN_FIELD = "contains unknown"
NAMED_FIELD = re.compile(
    rf"^Object (?P<problem>{UNKNOWN_FIELD}|missing required) field `(?P<name>.*)`$", flags=re.DOTALL
)
MALFORMED = re.compile(r"^JSON is malformed: (?P<reason>.*) \(byte (?P<byte>\d+)\)$")
# Problems for which the decoder reports the byte after the one it means.
COUNTED_AFTER = ("trailing characters", "invalid escape character in string")
MAX_MESSAGE_LENGTH = 1000

# Clearer wording for messages of the decoder.
REWORDED = {
    "Invalid RFC3339 encoded datetime": "not a time such as 2026-01-31T12:00:00Z",
    "Expected `datetime` with a timezone component": "a time with a zone, such as 2026-01-31T12:00:00Z",
}


def as_utc(moment: datetime, field: str, *, code: str | None = None) -> datetime:
    """Return the time in UTC, or raise BadRequest outside the years 1 to 9999."""
    try:
        return moment.astimezone(UTC)
    except OverflowError as problem:
        raise BadRequest(f"{field}: must be within the years 1 to 9999.", code=code) from problem


def parse_moment(text: str | None, field: str, *, code: str | None = None) -> datetime | None:
    """Parse a time of a query string, or raise BadRequest; a time zone is required."""
    if text is None:
        return None
    try:
        # A plus sign in a query string arrives as a space unless it was escaped.
        moment = datetime.fromisoformat(text.strip().replace(" ", "+"))
    except ValueError as problem:
        raise BadRequest(f"{field}: not a time such as 2026-01-31T12:00:00Z.", code=code) from problem
    if moment.tzinfo is None:
        raise BadRequest(f"{field}: a time with a zone, such as 2026-01-31T12:00:00Z.", code=code)
    return as_utc(moment, field, code=code)


def to_camel(name: str) -> str:
    """Return a snake_case name in camelCase."""
    first, *rest = name.split("_")
    return first + "".join(word.title() for word in rest)


def read_camel_case(value: Any, kind: type[msgspec.Struct]) -> tuple[Any, dict[str, str]]:
    """Return a body with the fields of `kind` in snake_case, and by their names those that were given in camelCase.

    Raise BadRequest for a field that is given in both forms.
    """
    renamed: dict[str, str] = {}
    return _snake_cased(value, _type_info(kind), "", renamed), renamed


_type_info = cache(msgspec.inspect.type_info)


def _snake_cased(value: Any, kind: Any, path: str, renamed: dict[str, str]) -> Any:
    for found in _types_at(kind, []):
        if isinstance(found, msgspec.inspect.ListType) and isinstance(value, list):
            items = enumerate(cast(list[Any], value))
            return [_snake_cased(item, found.item_type, f"{path}[{place}]", renamed) for place, item in items]
        if isinstance(found, msgspec.inspect.StructType) and isinstance(value, dict):
            given = dict(cast(dict[str, Any], value))
            for field in found.fields:
                name, older = field.encode_name, to_camel(field.encode_name)
                if older != name and older in given:
                    if name in given:
                        where = f"{path}.{older}".lstrip(".")
                        raise BadRequest(f"{where}: the older form of {name}; give only one of the two.")
                    given[name] = given.pop(older)
                    renamed[name] = older
                if name in given:
                    given[name] = _snake_cased(given[name], field.type, f"{path}.{name}".lstrip("."), renamed)
            return given
    return value


def malformed_json(body: bytes, problem: Exception) -> BadRequest:
    """Return the error for a body that is not JSON, with the line and column where reading it failed."""
    match = MALFORMED.match(str(problem))
    if match is not None:
        reason, place = match["reason"], int(match["byte"]) - (match["reason"] in COUNTED_AFTER)
    elif isinstance(problem, UnicodeDecodeError):
        reason, place = "not valid UTF-8", _first_invalid_byte(body)
    elif isinstance(problem, RecursionError):
        return BadRequest("The body is not valid JSON: nested too deeply.", code="malformed_json")
    else:
        reason, place = "it ends too early", len(body)
    before = body[:place].decode(errors="replace")
    line, column = before.count("\n") + 1, len(before) - (before.rfind("\n") + 1) + 1
    return BadRequest(
        f"The body is not valid JSON: {reason} at line {line}, column {column}.",
        code="malformed_json",
        details={"line": line, "column": column},
    )


def _first_invalid_byte(body: bytes) -> int:
    # The decoder counts from the start of a string, not of the body.
    try:
        body.decode()
    except UnicodeDecodeError as problem:
        return problem.start
    return len(body)


def invalid_body(
    problem: msgspec.ValidationError, kind: Any, *, place: str = "body", renamed: dict[str, str] | None = None
) -> BadRequest:
    """Return the error for a value that does not fit its type, with the field and what was expected.

    `renamed` are the names of fields as they were given, where these differ.
    """
    match = LOCATION.match(str(problem))
    assert match is not None
    message = REWORDED.get(match["message"], match["message"])
    path = (match["path"] or "").lstrip(".")
    message = name_choices(message, kind, path)
    details: dict[str, Any] = {}
    named = NAMED_FIELD.match(message)
    if named is not None:
        if named["problem"] == UNKNOWN_FIELD:
            details["allowed"] = allowed = field_names(kind, path)
            message = f"unknown field; allowed here: {', '.join(allowed)}"
        path = f"{path}.{named['name']}" if path else named["name"]
    if renamed:
        path = re.sub(r"\w+", lambda word: renamed.get(word[0], word[0]), path)
    field = path[:200] or place
    message = message[:MAX_MESSAGE_LENGTH]
    details["fields"] = [{"field": field, "message": message, "in": place}]
    return BadRequest(f"{field}: {message}", details=details)


def name_choices(message: str, kind: Any, path: str = "") -> str:
    """Return the decoder's message, replaced by the allowed words where a word is not among them."""
    if not message.startswith("Invalid enum value"):
        return message
    words = [
        str(word)
        for found in _types_at(msgspec.inspect.type_info(kind), _steps(path))
        if isinstance(found, msgspec.inspect.LiteralType)
        for word in found.values
    ]
    return f"one of {', '.join(words)}" if words else message


def field_names(kind: Any, path: str = "") -> list[str]:
    """Return the names of the fields that a type allows at a path within it, in the order of their declaration."""
    names = [
        field.encode_name
        for found in _types_at(msgspec.inspect.type_info(kind), _steps(path))
        if isinstance(found, msgspec.inspect.StructType)
        for field in found.fields
    ]
    return list(dict.fromkeys(names))


def _steps(path: str) -> list[str]:
    return re.findall(r"[^.\[\]]+|\[\.*\d*\]", path)


def _types_at(kind: Any, path: list[str]) -> Iterator[Any]:
    """Yield the types that a value may have at a path within a type."""
    if isinstance(kind, msgspec.inspect.Metadata):
        yield from _types_at(kind.type, path)
    elif isinstance(kind, msgspec.inspect.UnionType):
        for member in kind.types:
            yield from _types_at(member, path)
    elif not path:
        yield kind
    elif isinstance(kind, msgspec.inspect.ListType):
        yield from _types_at(kind.item_type, path[1:])
    elif isinstance(kind, msgspec.inspect.DictType):
        yield from _types_at(kind.value_type, path[1:])
    elif isinstance(kind, msgspec.inspect.StructType):
        for field in kind.fields:
            if field.encode_name == path[0]:
                yield from _types_at(field.type, path[1:])
