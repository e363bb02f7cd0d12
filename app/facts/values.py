"""Values of facts: their types, the one text each is stored as, and its form in a fact's hash."""

import hashlib
import math
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any, Literal

import msgspec

from app.errors import BadRequest, TooLarge

ValueType = Literal["string", "text", "number", "boolean", "datetime", "ref", "null"]
MAX_TEXT_BYTES = 64 * 1024
# A longer string is of type text: compared and hashed alike, but shown differently.
LONG_STRING = 512
MAX_DIGITS = 400


class Value(msgspec.Struct, frozen=True):
    """A value as it is stored, compared and hashed."""

    type: ValueType
    text: str
    json: str
    """The value in RFC 8785 form."""
    hash: str
    """SHA-256 of type and text, in hex."""


def read_value(value: Any, kind: ValueType | None, field: str) -> Value:
    """Return a value of the given type, or of the type it evidently has; raise BadRequest when it does not fit."""
    wanted = kind or _evident_type(value, field)
    if wanted == "null":
        _expect(value is None, field, "null", "null")
        return _value("null", "", "null")
    if wanted == "boolean":
        _expect(isinstance(value, bool), field, "true or false", wanted)
        return _value("boolean", str(value).lower(), str(value).lower())
    if wanted == "number":
        _expect(isinstance(value, int | float) and not isinstance(value, bool), field, "a number", wanted)
        return _value("number", *_number(value, field))
    _expect(isinstance(value, str), field, "text", wanted)
    text = _moment(value, field) if wanted == "datetime" else value
    if wanted in ("string", "text", "ref") and not text.strip():
        raise BadRequest(f"{field}.value: empty after white space is trimmed; give a text, or use type null.")
    if len(text.encode()) > MAX_TEXT_BYTES:
        raise TooLarge(f"{field}.value: over 64 KiB; store it as a note and cite it.", code="value_too_large")
    return _value(wanted, text, msgspec.json.encode(text).decode())


def show_value(kind: str, text: str) -> Any:
    """Return a stored value as responses show it."""
    if kind == "null":
        return None
    if kind == "boolean":
        return text == "true"
    return msgspec.Raw(text.encode()) if kind == "number" else text


def _value(kind: ValueType, text: str, json: str) -> Value:
    digest = hashlib.sha256(f"{'string' if kind == 'text' else kind}\n{text}".encode()).hexdigest()
    return Value(kind, text, json, digest)


def _evident_type(value: Any, field: str) -> ValueType:
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "boolean"
    if isinstance(value, int | float):
        return "number"
    if isinstance(value, str):
        return "text" if len(value) > LONG_STRING else "string"
    raise BadRequest(f"{field}.value: must be text, a number, true, false or null, not a list or object.")


def _expect(fits: bool, field: str, expected: str, kind: str) -> None:
    if not fits:
        raise BadRequest(f"{field}.value: must be {expected} for type {kind}.")


def _number(value: int | float, field: str) -> tuple[str, str]:
    """Return the text of a number and its RFC 8785 form; equal numbers have the same text, whole ones all digits."""
    if isinstance(value, int):
        if abs(value) >= 10**MAX_DIGITS:
            raise BadRequest(f"{field}.value: a number must have at most {MAX_DIGITS} digits.")
        if not _is_double(value):
            return str(value), str(value)
        value = float(value)
    if not math.isfinite(value):
        raise BadRequest(f"{field}.value: the number is too large.")
    shortest = _shortest(value)
    return (str(int(value)) if value.is_integer() and abs(value) < 1e21 else shortest), shortest


def _shortest(value: float) -> str:
    """Return the shortest decimal form that reads back as the same number, as JavaScript writes it."""
    if value.is_integer() and abs(value) < 1e21:
        return format(Decimal(repr(value)), "f").removesuffix(".0") if value else "0"
    mantissa, _, exponent = repr(value).partition("e")
    power = int(exponent or 0)
    if -7 < power < 0:
        digits = mantissa.replace(".", "").lstrip("-")
        return ("-" if value < 0 else "") + "0." + "0" * (-power - 1) + digits
    return f"{mantissa}e{power:+d}" if exponent else mantissa


def _is_double(value: int) -> bool:
    try:
        return int(float(value)) == value
    except OverflowError:
        return False


def _moment(text: str, field: str) -> str:
    try:
        moment = datetime.fromisoformat(text.strip())
        if moment.tzinfo is None:
            raise BadRequest(f"{field}.value: must have a time zone, such as 2026-01-31T12:00:00Z.")
        return moment.astimezone(UTC).isoformat().replace("+00:00", "Z")
    except (ValueError, OverflowError) as problem:
        raise BadRequest(f"{field}.value: not a time such as 2026-01-31T12:00:00Z.") from problem
