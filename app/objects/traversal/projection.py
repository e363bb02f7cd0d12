"""The fields of objects and relationships to return: columns from a list, and paths into the properties."""

from collections.abc import Sequence
from typing import Any, Literal, NoReturn, cast

from app.errors import BadRequest
from app.objects.json_pointer import parse_path

MAX_PATHS = 64
MAX_PATH = 256
MAX_TOKENS = 8

Kind = Literal["object", "edge"]
FIELDS: dict[Kind, tuple[str, ...]] = {
    "object": (
        "version", "type", "subtype", "key", "title", "status", "labels", "effective_from", "effective_to",
        "created_at", "updated_at", "evidence",
    ),
    "edge": (
        "type", "weight", "role_src", "role_dst", "valid_from", "valid_to", "created_at", "evidence", "version",
    ),
}  # fmt: skip
# Always returned, and may be named too.
ALWAYS: dict[Kind, frozenset[str]] = {
    "object": frozenset({"id", "depth"}),
    "edge": frozenset({"id", "src", "dst"}),
}
DEFAULTS: dict[Kind, tuple[str, ...]] = {
    "object": ("version", "type", "key", "title", "status", "labels"),
    "edge": ("type", "weight"),
}
# Columns of an edge that the walk has read already; all others are read from the table.
WALK_COLUMNS = frozenset({"type", "weight"})


def read_include(paths: Sequence[str] | None, kind: Kind) -> dict[str, Any]:
    """Return the projection for the SQL function; raise BadRequest for a field that cannot be returned."""
    if paths is None:
        return {"fields": DEFAULTS[kind]}
    fields: set[str] = set()
    properties: dict[str, Any] | bool = {}
    for number, path in enumerate(paths):
        where = f"include.{kind}[{number}]"
        first, *rest = _tokens(path, where)
        if first == "properties":
            properties = _add_path(properties, rest)
        elif rest or (first not in FIELDS[kind] and first not in ALWAYS[kind]):
            _refuse(where, f"one of {', '.join(FIELDS[kind])}, properties, or a path such as properties.name")
        else:
            fields.add(first)
    made: dict[str, Any] = {"fields": [field for field in FIELDS[kind] if field in fields]}
    if properties:
        made["properties"] = properties
    if kind == "edge" and (properties or not fields <= WALK_COLUMNS | ALWAYS[kind]):
        made["stored"] = True
    return made


def _tokens(path: str, where: str) -> tuple[str, ...]:
    try:
        tokens = parse_path(path[: MAX_PATH + 1])
    except ValueError as problem:
        raise BadRequest(f"{where}: {problem}.", code="include_not_allowed") from problem
    if len(path) > MAX_PATH or len(tokens) > MAX_TOKENS:
        _refuse(where, f"at most {MAX_PATH} characters and {MAX_TOKENS} names")
    return tokens


def _add_path(tree: dict[str, Any] | bool, tokens: list[str]) -> dict[str, Any] | bool:
    """Return the tree of paths with one more; True stands for a whole value, to which deeper paths add nothing."""
    if tree is True or not tokens:
        return True
    members = cast(dict[str, Any], tree)
    return {**members, tokens[0]: _add_path(members.get(tokens[0], {}), tokens[1:])}


def _refuse(where: str, expected: str) -> NoReturn:
    raise BadRequest(f"{where}: {expected}.", code="include_not_allowed", details={"field": where})
