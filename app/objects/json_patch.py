"""JSON Patch (RFC 6902): operations that change a document, all or none."""

from typing import Any, Literal, cast

import msgspec
from msgspec import UNSET, UnsetType

from app.errors import BadRequest, Conflict, TooLarge
from app.objects.diff import same
from app.objects.json_pointer import MISSING, parse_pointer, point_at

MAX_OPERATIONS = 100
# Copies can double a document each time.
MAX_DOCUMENT_BYTES = 512 * 1024


class PatchOperation(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One operation of a JSON Patch; `from` is for move and copy, `value` for add, replace and test."""

    op: Literal["add", "remove", "replace", "move", "copy", "test"]
    """`add` also replaces what is there; `test` makes the whole patch fail when the value is another."""
    path: str
    """A JSON Pointer, such as /properties/owner or /labels/-."""
    from_: str | None = msgspec.field(default=None, name="from")
    """For move and copy: the JSON Pointer of the value."""
    value: Any | UnsetType = UNSET
    """For add, replace and test; null is a value."""


def apply_operations(document: Any, operations: list[PatchOperation]) -> Any:
    """Return the document after all operations, or raise BadRequest, TooLarge or Conflict with the one that failed."""
    if len(operations) > MAX_OPERATIONS:
        raise BadRequest(f"patch: at most {MAX_OPERATIONS} operations; send several patches.", code="patch_too_long")
    patched = _copy(document)
    for index, operation in enumerate(operations):
        patched = _apply(patched, operation, index)
    return patched


def _apply(document: Any, operation: PatchOperation, index: int) -> Any:
    path, value = _tokens(operation.path, index, "path"), operation.value
    if operation.op in ("move", "copy"):
        if operation.from_ is None:
            raise _invalid(index, "from", f"{operation.op} needs it: a JSON Pointer")
        source = _tokens(operation.from_, index, "from")
        if operation.op == "move" and path[: len(source)] == source and path != source:
            raise _invalid(index, "path", "a value cannot be moved into itself")
        value = _find(document, source, index)
        if operation.op == "move":
            document = _remove(document, source, index)
        else:
            value = _copy(value)
    elif operation.op == "remove":
        return _remove(document, path, index)
    elif value is UNSET:
        raise _invalid(index, "value", f"{operation.op} needs it; null is a value")
    if operation.op == "test":
        if not same(_find(document, path, index), value):
            raise Conflict(
                f"patch[{index}]: the value at {operation.path} is another; read it and send the patch again.",
                code="patch_test_failed",
                details={"operation": index, "path": operation.path},
            )
        return document
    if operation.op == "replace":
        _find(document, path, index)
        document = _put(document, path, value, index, replace=True)
    else:
        document = _put(document, path, value, index)
    if operation.op == "copy" and len(msgspec.json.encode(document)) > MAX_DOCUMENT_BYTES:
        raise TooLarge(f"patch[{index}]: the copies make the document too large.", code="too_large")
    return document


def _put(document: Any, path: tuple[str, ...], value: Any, index: int, *, replace: bool = False) -> Any:
    if not path:
        return value
    parent, last = _find(document, path[:-1], index), path[-1]
    if isinstance(parent, dict):
        parent[last] = value
    elif isinstance(parent, list):
        members = cast(list[Any], parent)
        place = len(members) if last == "-" else _place(members, last, index, path, end=not replace)
        members[place : place + replace] = [value]
    else:
        raise _missing(index, path)
    return document


def _remove(document: Any, path: tuple[str, ...], index: int) -> Any:
    _find(document, path, index)
    if not path:
        raise _invalid(index, "path", "the whole cannot be removed")
    parent, last = _find(document, path[:-1], index), path[-1]
    del parent[last if isinstance(parent, dict) else int(last)]
    return document


def _place(members: list[Any], token: str, index: int, path: tuple[str, ...], *, end: bool) -> int:
    """Return the index that a token names; with `end` also the one after the last member."""
    known = point_at(members, (token,)) is not MISSING
    if not known and not (end and token == str(len(members))):
        raise _missing(index, path)
    return int(token)


def _find(document: Any, path: tuple[str, ...], index: int) -> Any:
    found = point_at(document, path)
    if found is MISSING:
        raise _missing(index, path)
    return found


def _missing(index: int, path: tuple[str, ...]) -> Conflict:
    place = "".join(f"/{token}" for token in path)[:200]
    return Conflict(
        f"patch[{index}]: there is nothing at {place}; read the current version and send the patch again.",
        code="patch_path_missing",
        details={"operation": index, "path": place},
    )


def _tokens(text: str, index: int, field: str) -> tuple[str, ...]:
    try:
        return parse_pointer(text)
    except ValueError as problem:
        raise _invalid(index, field, str(problem)) from problem


def _invalid(index: int, field: str, reason: str) -> BadRequest:
    return BadRequest(f"patch[{index}].{field}: {reason}.", code="patch_invalid", details={"operation": index})


def _copy(value: Any) -> Any:
    return msgspec.json.decode(msgspec.json.encode(value))
