"""Differences between versions: merge patches, summaries by JSON Pointer, and hashes of content.

Pure functions over JSON values. Numbers are equal when their values are (1 and 1.0); true is not 1.
"""

import hashlib
from collections.abc import Iterable, Iterator
from typing import Any, cast

import msgspec

from app.objects.json_pointer import escape

# A summary shows larger values by their hash.
MAX_STRING = 256
MAX_VALUE_BYTES = 2048
MAX_SUMMARY_BYTES = 16 * 1024

Json = Any


def encode_canonical(value: Json) -> bytes:
    """Return JSON with sorted keys and without whitespace."""
    return msgspec.json.encode(value, order="sorted")


def hash_value(value: Json) -> str:
    """Return the hash of a value."""
    return f"sha256:{hashlib.sha256(encode_canonical(_plain_numbers(value))).hexdigest()}"


def _plain_numbers(value: Json) -> Json:
    """Return the value with whole floats as integers: the database returns 1e16 as 10000000000000000."""
    if isinstance(value, dict):
        return {name: _plain_numbers(member) for name, member in cast(dict[str, Json], value).items()}
    if isinstance(value, list):
        return [_plain_numbers(member) for member in cast(list[Json], value)]
    return int(value) if isinstance(value, float) and value.is_integer() else value


def hash_content(*, properties: Json, status: str | None, key: str | None, labels: Iterable[str]) -> bytes:
    """Return the hash of an object's content; a relationship has neither status, key nor labels."""
    content = {"properties": _plain_numbers(properties), "status": status, "key": key, "labels": sorted(labels)}
    return hashlib.sha256(encode_canonical(content)).digest()


def merge_patch(target: Json, patch: Json) -> Json:
    """Return the target after a JSON merge patch (RFC 7396): null removes, objects merge, other values replace."""
    if not isinstance(patch, dict):
        return patch
    merged: dict[str, Json] = dict(cast(dict[str, Json], target)) if isinstance(target, dict) else {}
    for name, value in cast(dict[str, Json], patch).items():
        if value is None:
            merged.pop(name, None)
        else:
            merged[name] = merge_patch(merged.get(name), value)
    return merged


def same(one: Json, other: Json) -> bool:
    """Return whether two JSON values are equal."""
    return next(compare(one, other), None) is None


class Change(msgspec.Struct, frozen=True):
    """One path at which two values differ."""

    kind: str
    path: str
    before: Json = None
    after: Json = None


def compare(before: Json, after: Json, path: str = "") -> Iterator[Change]:
    """Yield the differences of two JSON values: objects by name, arrays by position, other values as a whole."""
    if isinstance(before, dict) and isinstance(after, dict):
        old, new = cast(dict[str, Json], before), cast(dict[str, Json], after)
        for name in sorted(old.keys() | new.keys()):
            yield from _compare_member(old, new, name, f"{path}/{escape(name)}", inside=(name in old, name in new))
    elif isinstance(before, list) and isinstance(after, list):
        old_items, new_items = cast(list[Json], before), cast(list[Json], after)
        for place in range(max(len(old_items), len(new_items))):
            inside = (place < len(old_items), place < len(new_items))
            yield from _compare_member(old_items, new_items, place, f"{path}/{place}", inside=inside)
    elif isinstance(before, bool) is not isinstance(after, bool) or before != after:
        yield Change("updated", path, before, after)


def _compare_member(before: Any, after: Any, name: Any, path: str, *, inside: tuple[bool, bool]) -> Iterator[Change]:
    if not inside[1]:
        yield Change("removed", path)
    elif not inside[0]:
        yield Change("added", path, after=after[name])
    else:
        yield from compare(before[name], after[name], path)


def summarize(before: Json, after: Json, *, fields: dict[str, Json] | None = None) -> dict[str, Json]:
    """Return how properties and other fields changed, in at most 16 KB."""
    changes = list(compare(before, after))
    added = {change.path: _shown(change.after) for change in changes if change.kind == "added"}
    removed = [change.path for change in changes if change.kind == "removed"]
    updated = {
        change.path: {**_side("from", change.before), **_side("to", change.after)}
        for change in changes
        if change.kind == "updated"
    }
    for path, sides in updated.items():
        if "from_hash" in sides or "to_hash" in sides:
            updated[path] = {**sides, "truncated": True}
    summary: dict[str, Json] = {
        "added": added,
        "removed": removed,
        "updated": updated,
        "paths": [change.path for change in changes],
        "meta": {
            "added": len(added),
            "removed": len(removed),
            "updated": len(updated),
            "propBytesBefore": len(encode_canonical(before)),
            "propBytesAfter": len(encode_canonical(after)),
        },
    }
    if fields:
        summary["fields"] = fields
    return _compact(summary)


def is_elided(summary: dict[str, Json]) -> bool:
    """Return whether a part of a summary was left out because of its size."""
    parts = (summary["updated"], summary["added"], summary["removed"], summary.get("fields"))
    return any(isinstance(part, dict) and cast(dict[str, Json], part).get("elided") is True for part in parts)


def overlapping_paths(one: Iterable[str], other: Iterable[str]) -> list[str]:
    """Return the paths at which two changes overlap: equal ones, and the inner of two nested ones."""
    first, second = set(one), set(other)
    within = {path for path in first if any(outer in second for outer in _ancestors(path))}
    within |= {path for path in second if any(outer in first for outer in _ancestors(path))}
    return sorted(within)


def _ancestors(path: str) -> Iterator[str]:
    """Yield a path and all paths it is within."""
    yield path
    while path:
        path = path.rpartition("/")[0]
        yield path


def _is_large(value: Json) -> bool:
    if isinstance(value, str):
        return len(value) > MAX_STRING
    return isinstance(value, (dict, list)) and len(encode_canonical(value)) > MAX_VALUE_BYTES


def _shown(value: Json) -> Json:
    return {"hash": hash_value(value), "truncated": True} if _is_large(value) else value


def _side(name: str, value: Json) -> dict[str, Json]:
    return {f"{name}_hash": hash_value(value)} if _is_large(value) else {name: value}


def _compact(summary: dict[str, Json]) -> dict[str, Json]:
    """Return the summary within its size: leave out part after part, then shorten the paths."""
    for part in ("updated", "added", "removed", "fields"):
        if len(encode_canonical(summary)) <= MAX_SUMMARY_BYTES:
            return summary
        if summary.get(part):
            summary[part] = {"count": len(summary[part]), "elided": True}
    while len(encode_canonical(summary)) > MAX_SUMMARY_BYTES:
        paths: list[str] = summary["paths"]
        depth = max(path.count("/") for path in paths)
        if depth <= 1:
            # Even the names of the top level are too long: the path "" says that everything may have changed.
            summary["paths"] = [""]
            return summary
        summary["paths"] = list(dict.fromkeys("/".join(path.split("/")[:depth]) for path in paths))
    return summary
