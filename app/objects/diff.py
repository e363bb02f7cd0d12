"""What changed from one version to the next: merge patches, summaries by JSON Pointer, and hashes of content.

Pure functions over JSON values. Numbers are equal when their values are, whatever their spelling; true is not 1.
"""

import hashlib
from collections.abc import Iterable, Iterator
from typing import Any, cast

import msgspec

from app.objects.json_pointer import escape

# Values over these are told by their hash.
MAX_STRING = 256
MAX_VALUE_BYTES = 2048
MAX_SUMMARY_BYTES = 16 * 1024

Json = Any


def encode_canonical(value: Json) -> bytes:
    """JSON with the keys of every object sorted and nothing between."""
    return msgspec.json.encode(value, order="sorted")


def hash_value(value: Json) -> str:
    """A value's fingerprint."""
    return f"sha256:{hashlib.sha256(encode_canonical(_plain_numbers(value))).hexdigest()}"


def _plain_numbers(value: Json) -> Json:
    """The same with whole numbers written as such: the database gives 1e16 back as 10000000000000000."""
    if isinstance(value, dict):
        return {name: _plain_numbers(member) for name, member in cast(dict[str, Json], value).items()}
    if isinstance(value, list):
        return [_plain_numbers(member) for member in cast(list[Json], value)]
    return int(value) if isinstance(value, float) and value.is_integer() else value


def hash_content(*, properties: Json, status: str | None, key: str | None, labels: Iterable[str]) -> bytes:
    """The fingerprint of what an object says; a relationship has neither status, key nor labels."""
    content = {"properties": _plain_numbers(properties), "status": status, "key": key, "labels": sorted(labels)}
    return hashlib.sha256(encode_canonical(content)).digest()


def merge_patch(target: Json, patch: Json) -> Json:
    """The target after a JSON merge patch (RFC 7396): null removes, objects are merged, all else replaces."""
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
    """Whether two JSON values are equal."""
    return next(compare(one, other), None) is None


class Change(msgspec.Struct, frozen=True):
    """One place that differs, and how."""

    kind: str
    path: str
    before: Json = None
    after: Json = None


def compare(before: Json, after: Json, path: str = "") -> Iterator[Change]:
    """Where two JSON values differ: objects by name, arrays by position, everything else as a whole."""
    if isinstance(before, dict) and isinstance(after, dict):
        old, new = cast(dict[str, Json], before), cast(dict[str, Json], after)
        for name in sorted(old.keys() | new.keys()):
            yield from _compare_member(old, new, name, f"{path}/{escape(name)}", inside=(name in old, name in new))
    elif isinstance(before, list) and isinstance(after, list):
        was, now = cast(list[Json], before), cast(list[Json], after)
        for place in range(max(len(was), len(now))):
            inside = (place < len(was), place < len(now))
            yield from _compare_member(was, now, place, f"{path}/{place}", inside=inside)
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
    """How properties changed, and which of the other fields did with them: at most 16 KB, whatever the change."""
    changes = list(compare(before, after))
    added = {change.path: _shown(change.after) for change in changes if change.kind == "added"}
    removed = [change.path for change in changes if change.kind == "removed"]
    updated = {
        change.path: {**_side("from", change.before), **_side("to", change.after)}
        for change in changes
        if change.kind == "updated"
    }
    for path, told in updated.items():
        if "from_hash" in told or "to_hash" in told:
            updated[path] = {**told, "truncated": True}
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
    """Whether something of a summary was left out for its size."""
    parts = (summary["updated"], summary["added"], summary["removed"], summary.get("fields"))
    return any(isinstance(part, dict) and cast(dict[str, Json], part).get("elided") is True for part in parts)


def overlapping_paths(one: Iterable[str], other: Iterable[str]) -> list[str]:
    """The paths at which two changes touch the same place: equal, or one within the other; the inner one is named."""
    first, second = set(one), set(other)
    within = {path for path in first if any(outer in second for outer in _outer(path))}
    within |= {path for path in second if any(outer in first for outer in _outer(path))}
    return sorted(within)


def _outer(path: str) -> Iterator[str]:
    """A path and all places it lies within."""
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
    """Leaves out, one after the other, what is too much; last of all paths become those of what they lie within."""
    for part in ("updated", "added", "removed", "fields"):
        if len(encode_canonical(summary)) <= MAX_SUMMARY_BYTES:
            return summary
        if summary.get(part):
            summary[part] = {"count": len(summary[part]), "elided": True}
    while len(encode_canonical(summary)) > MAX_SUMMARY_BYTES:
        paths: list[str] = summary["paths"]
        depth = max(path.count("/") for path in paths)
        if depth <= 1:
            # So many fields at the top that even their names are too much: then all of it has changed.
            summary["paths"] = [""]
            return summary
        summary["paths"] = list(dict.fromkeys("/".join(path.split("/")[:depth]) for path in paths))
    return summary
