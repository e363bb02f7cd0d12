"""The JSON of completions, without reasoning and code fences."""

import json
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from app.extraction.completions import parse_json, parse_object, strip_wrapping


@pytest.mark.parametrize(
    "wrapped",
    [
        "{}",
        "<think>hm, {x}</think>{}",
        "<think>\nlong\n</think>\n\n```json\n{}\n```",
        "```\n{}\n```",
        "Here you are:\n```json\n{}```\nAnything else?",
        "swallowed opening</think>{}",
        "<THINKING>a</THINKING>{}",
        "Sure! {} That is all.",
    ],
)
def test_extraction_think_blocks_and_fences_are_stripped(wrapped: str) -> None:
    assert parse_object(wrapped) == ({}, None)


def test_extraction_a_model_that_only_thought_has_answered_nothing() -> None:
    assert strip_wrapping('<think>{"facts": []}') == ""
    assert parse_object('<think>{"facts": []}') == (None, "answer_not_json")


@pytest.mark.parametrize(
    "careless",
    [
        '{"a": [1, "x",], "b": null,}',
        '{"a": [1, "x"] // a list\n, /* and */ "b": null}',
        "{'a': [1, 'x'], 'b': None}",
        '{a: [1, "x"], b: null}',
        '{"a": [1 "x"] "b": null}',
        '{"a": [1, "x"],, "b": NaN}',
        '{"a": [1, "x",] # done\n}',
    ],
)
def test_careless_json_is_read(careless: str) -> None:
    found, problem = parse_object(careless)
    assert found is not None
    assert (found["a"], found.get("b"), problem) == ([1, "x"], None, None)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ('{"a": "two\nlines"}', "two\nlines"),
        (r'{"a": "C:\temp \d",}', "C:\temp \\d"),
        ('{"a": "it\'s // no comment, [nor] {this}",}', "it's // no comment, [nor] {this}"),
        ("{'a': 'say \"hi\"'}", 'say "hi"'),
    ],
)
def test_strings_keep_what_they_say(text: str, value: str) -> None:
    assert parse_object(text) == ({"a": value}, None)


def test_a_list_is_read_and_one_object_in_it_is_that_object() -> None:
    assert parse_json('Here: [{"a": 1}, {"b": 2},]') == ([{"a": 1}, {"b": 2}], None)
    assert parse_object('[{"a": 1}]') == ({"a": 1}, None)
    assert parse_object('[{"a": 1}, {"b": 2}]') == (None, "answer_not_json")


def test_what_was_cut_off_is_dropped_and_never_completed() -> None:
    whole = (
        '{"facts": [{"content": "first", "confidence": 1}, {"content": "second", "confidence": 0.5}], "entities": []}'
    )
    for end in range(len(whole)):
        found, problem = parse_json(whole[:end])
        facts = [] if not isinstance(found, dict) else found.get("facts", [])
        assert facts in ([], [{"content": "first", "confidence": 1}], json.loads(whole)["facts"]), whole[:end]
        assert problem is not None


@pytest.mark.parametrize("garbage", ["{'", '{"', "{", "[", '{"a":', "/*", "{/", "[1,", "{a", "\\", '{"a": "\\'])
def test_garbage_is_read_in_one_pass(garbage: str) -> None:
    # Time that grows with the square would take hours here.
    assert parse_json("{" + garbage * (400_000 // len(garbage)))[1] is not None


texts = st.text(max_size=20)
values = st.recursive(
    st.none() | st.booleans() | st.integers() | texts,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts, inner, max_size=3),
    max_leaves=6,
)


# The machine may be busy.
@settings(suppress_health_check=[HealthCheck.too_slow], deadline=None)
@given(st.dictionaries(texts, values, max_size=3), texts)
def test_valid_json_is_read_as_it_is_and_anything_else_never_throws(value: dict[str, Any], text: str) -> None:
    assert parse_object(json.dumps(value)) == (value, None)
    trailing = json.dumps(value)[:-1] + ("," if value else "") + "}"
    assert parse_object(trailing) == (value, None)
    parse_json(text)
    parse_json("{" + text)
