"""Merge patches, differences and summaries of changes (5.17)."""

import copy
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.objects.diff import (
    MAX_SUMMARY_BYTES,
    compare,
    encode_canonical,
    hash_content,
    hash_value,
    is_elided,
    merge_patch,
    overlapping_paths,
    same,
    summarize,
)
from app.objects.json_pointer import parse_pointer

scalars = st.none() | st.booleans() | st.integers(-5, 5) | st.floats(-2, 2) | st.text("ab/~é", max_size=3)
documents = st.recursive(
    scalars, lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text("ab/~", max_size=2), inner, max_size=4)
)
objects = st.dictionaries(st.text("abc/~", max_size=2), documents, max_size=5)


def test_at_p0_diff_1_added_removed_and_updated_in_nested_objects_and_arrays() -> None:
    before = {"title": "Old", "gone": 1, "deep": {"list": [1, 2, {"x": 1}], "same": True}, "kind": {"a": 1}}
    after = {"title": "New", "deep": {"list": [1, 3, {"x": 1, "y": 2}, 4], "same": True}, "kind": [1], "a/b~c": 0}
    summary = summarize(before, after)
    assert summary["added"] == {"/a~1b~0c": 0, "/deep/list/2/y": 2, "/deep/list/3": 4}
    assert summary["removed"] == ["/gone"]
    assert summary["updated"] == {
        "/title": {"from": "Old", "to": "New"},
        "/deep/list/1": {"from": 2, "to": 3},
        "/kind": {"from": {"a": 1}, "to": [1]},
    }
    assert sorted(summary["paths"]) == sorted([*summary["added"], *summary["removed"], *summary["updated"]])
    assert summary["meta"] == {
        "added": 3,
        "removed": 1,
        "updated": 3,
        "propBytesBefore": len(encode_canonical(before)),
        "propBytesAfter": len(encode_canonical(after)),
    }


def test_at_p0_diff_2_large_values_are_told_by_their_hash() -> None:
    long, longer = "x" * 257, {"many": list(range(1000))}
    summary = summarize(
        {"text": "short", "data": longer, "was": long}, {"text": long, "data": {}, "was": "b", "new": long}
    )
    assert summary["updated"]["/text"] == {"from": "short", "to_hash": hash_value(long), "truncated": True}
    assert summary["updated"]["/was"] == {"from_hash": hash_value(long), "to": "b", "truncated": True}
    assert summary["added"]["/new"] == {"hash": hash_value(long), "truncated": True}
    assert "/data/many" in summary["removed"]
    assert "truncated" not in summarize({"a": "x" * 256}, {"a": "y" * 256})["updated"]["/a"]
    replaced = summarize({"a": longer}, {"a": 1})["updated"]["/a"]
    assert replaced == {"from_hash": hash_value(longer), "to": 1, "truncated": True}


def test_at_p0_diff_4_overlapping_paths() -> None:
    one = summarize({"a": {"x": 1, "y": 1}, "b": 1, "c": [1]}, {"a": {"x": 2, "y": 1}, "b": 2, "c": [1, 2]})["paths"]
    other = summarize({"a": {"x": 1}, "b": 1, "d": 1}, {"a": {"x": 3}, "b": 1, "d": 2})["paths"]
    assert overlapping_paths(one, other) == ["/a/x"]
    # A place within a place that was replaced as a whole is touched by both.
    assert overlapping_paths(["/a"], ["/a/x/0", "/ab"]) == ["/a/x/0"]
    assert overlapping_paths(["/a~1b"], ["/a"]) == []
    assert overlapping_paths([], ["/a"]) == []


def test_a_summary_is_never_over_its_cap() -> None:
    many = summarize({f"k{n}": "a" * 200 for n in range(200)}, {f"k{n}": "b" * 200 for n in range(200)})
    assert many["updated"] == {"count": 200, "elided": True}
    assert len(many["paths"]) == 200
    assert is_elided(many)
    huge = summarize({}, {"list": {"inner": {f"name{n}": n for n in range(5000)}}})
    assert huge["paths"] == ["/list"]
    deep = summarize({"l": {f"n{n}": {"v": 1} for n in range(3000)}}, {"l": {f"n{n}": {"v": 2} for n in range(3000)}})
    assert deep["paths"] == ["/l"]
    wide = summarize({}, {f"a long name of a property {n}": n for n in range(2000)})
    assert wide["paths"] == [""]
    assert wide["meta"]["added"] == 2000
    for summary in (many, huge, deep, wide):
        assert len(encode_canonical(summary)) <= MAX_SUMMARY_BYTES
    assert overlapping_paths(wide["paths"], ["/x"]) == ["/x"]


@given(objects, objects)
def test_what_is_told_is_what_differs(before: dict[str, Any], after: dict[str, Any]) -> None:
    """Applying the changes to the first value gives the second."""
    changed = copy.deepcopy(before)
    changes = sorted(compare(before, after), key=lambda change: [*parse_pointer(change.path)], reverse=True)
    for change in [c for c in changes if c.kind == "removed"]:
        _remove(changed, change.path)
    for change in reversed([c for c in changes if c.kind != "removed"]):
        _put(changed, change.path, change.after, appended=change.kind == "added")
    assert same(changed, after)
    assert same(before, before)


def _place(document: Any, path: str) -> tuple[Any, Any]:
    *outer, last = parse_pointer(path)
    for name in outer:
        document = document[int(name)] if isinstance(document, list) else document[name]
    return document, int(last) if isinstance(document, list) else last


def _remove(document: Any, path: str) -> None:
    inside, last = _place(document, path)
    if isinstance(inside, list):
        del inside[last:]
    else:
        del inside[last]


def _put(document: Any, path: str, value: Any, *, appended: bool) -> None:
    inside, last = _place(document, path)
    if isinstance(inside, list) and appended:
        while len(inside) <= last:
            inside.append(None)
    inside[last] = value


@pytest.mark.parametrize(
    ("target", "patch", "result"),
    [
        # The examples of RFC 7396, appendix A.
        ({"a": "b"}, {"a": "c"}, {"a": "c"}),
        ({"a": "b"}, {"b": "c"}, {"a": "b", "b": "c"}),
        ({"a": "b"}, {"a": None}, {}),
        ({"a": "b", "b": "c"}, {"a": None}, {"b": "c"}),
        ({"a": ["b"]}, {"a": "c"}, {"a": "c"}),
        ({"a": "c"}, {"a": ["b"]}, {"a": ["b"]}),
        ({"a": {"b": "c"}}, {"a": {"b": "d", "c": None}}, {"a": {"b": "d"}}),
        ({"a": [{"b": "c"}]}, {"a": [1]}, {"a": [1]}),
        (["a", "b"], ["c", "d"], ["c", "d"]),
        ({"a": "b"}, ["c"], ["c"]),
        ({"a": "foo"}, None, None),
        ({"e": None}, {"a": 1}, {"e": None, "a": 1}),
        ([1, 2], {"a": "b", "c": None}, {"a": "b"}),
        ({}, {"a": {"bb": {"ccc": None}}}, {"a": {"bb": {}}}),
    ],
)
def test_merge_patch(target: Any, patch: Any, result: Any) -> None:
    given_target = copy.deepcopy(target)
    assert merge_patch(target, patch) == result
    assert target == given_target


def test_numbers_are_compared_by_value_and_booleans_are_none() -> None:
    assert same({"a": 1}, {"a": 1.0})
    assert not same({"a": 1}, {"a": True})
    assert not same({"a": 0}, {"a": False})
    assert not same({"a": None}, {})


def test_the_hash_is_of_content_in_any_order() -> None:
    one = hash_content(properties={"a": {"x": 1, "y": 2}, "b": 1}, status="open", key="k", labels=["b", "a"])
    other = hash_content(properties={"b": 1, "a": {"y": 2, "x": 1}}, status="open", key="k", labels=["a", "b"])
    assert one == other
    for change in ({"status": "done"}, {"key": None}, {"labels": ["a"]}, {"properties": {}}):
        fields: dict[str, Any] = {"properties": {"b": 1, "a": {"y": 2, "x": 1}}, "status": "open", "key": "k"}
        assert hash_content(**{**fields, "labels": ["a", "b"], **change}) != one
