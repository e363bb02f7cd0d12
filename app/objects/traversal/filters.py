"""Filters of nodes and edges: predicates over columns and properties.

`{"status": {"in": ["accepted"]}, "/properties/rank": {">=": 3}}`, `{"status": "accepted"}`, or a list of
`{"path", "operator", "value"}`; all predicates have to hold.
"""

from typing import Any, Literal, NoReturn, cast

import msgspec

from app.errors import BadRequest
from app.inputs import parse_moment
from app.objects.json_pointer import parse_path

MAX_PREDICATES = 32
MAX_VALUES = 100
MAX_PATH = 256
MAX_TOKENS = 8
MAX_TEXT = 1000
MAX_NUMBER = 10**30

Kind = Literal["node", "edge"]
Scalar = str | int | float | bool | None

_TIMES = frozenset({"effective_from", "effective_to", "valid_from", "valid_to", "created_at", "updated_at"})
COLUMNS: dict[Kind, frozenset[str]] = {
    "node": frozenset(
        {"type", "subtype", "key", "title", "status", "labels", "version", "effective_from", "effective_to"}
        | {"created_at", "updated_at"}
    ),
    "edge": frozenset(
        {"type", "weight", "role_src", "role_dst", "valid_from", "valid_to", "version", "created_at", "updated_at"}
    ),
}
SYMBOLS = {
    "=": "equals",
    "==": "equals",
    "!=": "notEquals",
    ">": "greaterThan",
    ">=": "greaterThanOrEqual",
    "<": "lessThan",
    "<=": "lessThanOrEqual",
}
_COMPARING = ("greaterThan", "greaterThanOrEqual", "lessThan", "lessThanOrEqual")
OPERATORS = ("equals", "notEquals", *_COMPARING, "contains", "startsWith", "endsWith", "in", "notIn", "exists")


class Predicate(msgspec.Struct, frozen=True, kw_only=True):
    """One condition; without a column its path leads into the properties."""

    column: str | None
    path: tuple[str, ...]
    operator: str
    value: Any


def read_filter(given: Any, kind: Kind, where: str) -> list[Predicate]:
    """Return the predicates of a filter; raise BadRequest with the field that is not valid."""
    if given is None:
        return []
    if isinstance(given, dict):
        parsed = _by_path(cast(dict[str, Any], given), where)
    elif isinstance(given, list):
        parsed = _by_list(cast(list[Any], given), where)
    else:
        _refuse(where, "an object of paths, or a list of {path, operator, value}")
    if len(parsed) > MAX_PREDICATES:
        _refuse(where, f"at most {MAX_PREDICATES} predicates")
    return [_predicate(kind, *one) for one in parsed]


def _by_path(given: dict[str, Any], where: str) -> list[tuple[str, str, Any, str]]:
    found: list[tuple[str, str, Any, str]] = []
    for path, condition in given.items():
        place = f"{where}.{path[:MAX_PATH]}"
        if isinstance(condition, dict):
            if not condition:
                _refuse(place, 'an operator and a value, such as {"equals": 1}')
            found += [(path, operator, value, place) for operator, value in cast(dict[str, Any], condition).items()]
        else:
            found.append((path, "equals", condition, place))
    return found


def _by_list(given: list[Any], where: str) -> list[tuple[str, str, Any, str]]:
    found: list[tuple[str, str, Any, str]] = []
    for number, one in enumerate(given):
        place = f"{where}[{number}]"
        if not isinstance(one, dict):
            _refuse(place, "an object {path, operator, value}")
        members = cast(dict[str, Any], one)
        if members.keys() - {"path", "operator", "value"}:
            _refuse(place, "only path, operator and value")
        path, operator = members.get("path"), members.get("operator")
        if not isinstance(path, str) or not isinstance(operator, str):
            _refuse(place, "path and operator, both strings")
        if "value" not in members and operator != "exists":
            _refuse(place, "a value")
        found.append((path, operator, members.get("value", True), place))
    return found


def _predicate(kind: Kind, path: str, operator: str, value: Any, where: str) -> Predicate:
    operator = SYMBOLS.get(operator, operator)
    if operator not in OPERATORS:
        _refuse(where, f"one of the operators {', '.join((*OPERATORS, *SYMBOLS))}")
    tokens = read_path(path, where)
    column = tokens[0] if tokens[0] in COLUMNS[kind] else None
    if column is not None or tokens[0] == "properties":
        tokens = tokens[1:]
    where = f"{where}.{operator}"
    if operator != "exists" and column in _TIMES:
        value = _times(operator, value, where) if not tokens else value
    _check_value(operator, value, where)
    if column in _TIMES and tokens:
        _refuse(where, f"{column} is a time and has no members")
    return Predicate(column=column, path=tokens, operator=operator, value=value)


def read_path(path: str, where: str) -> tuple[str, ...]:
    """Return the tokens of a filter's path; raise BadRequest when it is not valid."""
    if not path or len(path) > MAX_PATH:
        _refuse(where, f"a path of 1 to {MAX_PATH} characters")
    try:
        tokens = parse_path(path)
    except ValueError as problem:
        raise BadRequest(f"{where}: {problem}.", code="filter_invalid") from problem
    if len(tokens) > MAX_TOKENS:
        _refuse(where, f"a path of at most {MAX_TOKENS} names")
    return tokens


def _times(operator: str, value: Any, where: str) -> Any:
    if operator in ("in", "notIn") and isinstance(value, list):
        return [_time(item, where) for item in cast(list[Any], value)]
    if operator not in ("equals", "notEquals", *_COMPARING):
        _refuse(where, "times can only be compared")
    return _time(value, where)


def _time(value: Any, where: str) -> str | None:
    if value is None:
        return None
    moment = parse_moment(value, where, code="filter_invalid") if isinstance(value, str) else None
    if moment is None:
        _refuse(where, "a time such as 2026-01-31T12:00:00Z")
    return moment.isoformat()


def _check_value(operator: str, value: Any, where: str) -> None:
    if operator == "exists":
        if not isinstance(value, bool):
            _refuse(where, "true or false")
    elif operator in ("in", "notIn"):
        if not isinstance(value, list) or not 1 <= len(cast(list[Any], value)) <= MAX_VALUES:
            _refuse(where, f"a list of 1 to {MAX_VALUES} values")
        for item in cast(list[Any], value):
            _check_scalar(item, where)
    else:
        _check_scalar(value, where)
        if operator in ("startsWith", "endsWith") and not isinstance(value, str):
            _refuse(where, "a string")
        if operator in _COMPARING and (isinstance(value, bool) or value is None):
            _refuse(where, "a number or a string")


def _check_scalar(value: Any, where: str) -> None:
    if value is not None and not isinstance(value, str | int | float):
        _refuse(where, "a string, number, boolean or null; nothing nested")
    if isinstance(value, str) and len(value) > MAX_TEXT:
        _refuse(where, f"at most {MAX_TEXT} characters")
    if isinstance(value, int | float) and not (-MAX_NUMBER <= value <= MAX_NUMBER):
        _refuse(where, "a number of at most 30 digits")


def _refuse(where: str, expected: str) -> NoReturn:
    raise BadRequest(f"{where}: {expected}.", code="filter_invalid", details={"field": where})
