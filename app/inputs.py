"""Checks of input that a type alone cannot make."""

import re
from datetime import UTC, datetime
from typing import Any

import msgspec

from app.errors import BadRequest

LOCATION = re.compile(r"^(?P<message>.*?)(?: - at `(?P<kind>key in )?\$(?P<path>.*)`)?$", flags=re.DOTALL)
NAMED_FIELD = re.compile(r"^Object (?:contains unknown|missing required) field `(?P<name>.*)`$", flags=re.DOTALL)


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


def invalid_body(problem: msgspec.ValidationError, kind: Any, *, place: str = "body") -> BadRequest:
    """Return the error for a value that does not fit its type, with the field and what was expected."""
    match = LOCATION.match(str(problem))
    assert match is not None
    message = REWORDED.get(match["message"], match["message"])
    path = (match["path"] or "").lstrip(".")
    message = name_choices(message, kind, path)
    named = NAMED_FIELD.match(message)
    if named is not None:
        path = f"{path}.{named['name']}" if path else named["name"]
    field = path[:200] or place
    fields: list[dict[str, Any]] = [{"field": field, "message": message[:500], "in": place}]
    return BadRequest(f"{field}: {message[:500]}", details={"fields": fields})


def name_choices(message: str, kind: Any, path: str = "") -> str:
    """Return the decoder's message, replaced by the allowed words where a word is not among them."""
    if not message.startswith("Invalid enum value"):
        return message
    words = _choices(msgspec.inspect.type_info(kind), re.findall(r"[^.\[\]]+|\[\.*\d*\]", path))
    return f"one of {', '.join(words)}" if words else message


def _choices(kind: Any, path: list[str]) -> list[str]:
    """Return the words that a type allows at a path within it."""
    if isinstance(kind, msgspec.inspect.Metadata):
        return _choices(kind.type, path)
    if isinstance(kind, msgspec.inspect.UnionType):
        return [word for member in kind.types for word in _choices(member, path)]
    if isinstance(kind, msgspec.inspect.LiteralType) and not path:
        return [str(word) for word in kind.values]
    if isinstance(kind, msgspec.inspect.ListType) and path:
        return _choices(kind.item_type, path[1:])
    if isinstance(kind, msgspec.inspect.StructType) and path:
        return [
            word for field in kind.fields if field.encode_name == path[0] for word in _choices(field.type, path[1:])
        ]
    return []
