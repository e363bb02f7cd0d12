"""Extraction: the prompt, and the statements and relations of a completion."""

import json
from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.extraction.statements import MAX_INPUT, extraction_prompt, parse_extraction

NOW = datetime(2026, 3, 1, tzinfo=UTC)


def fact(content: Any = "The heron is back.", kind: Any = "fact", confidence: Any = 0.8) -> dict[str, Any]:
    return {"content": content, "type": kind, "confidence": confidence}


def answer(facts: Any = (), entities: Any = ()) -> str:
    return json.dumps({"facts": list(facts), "entities": list(entities)})


@pytest.mark.parametrize(
    "words", ["Run ```make test``` first, then rest.", "A <think> tag and </think> are words here."]
)
@pytest.mark.parametrize("wrapped", ["{}", "```json\n{}\n```", "<think>so</think>\n{}"])
def test_extraction_fences_and_tags_within_a_statement_are_its_own(words: str, wrapped: str) -> None:
    found = parse_extraction(wrapped.replace("{}", answer([fact(words)])))
    assert [one.content for one in found.statements] == [words]
    assert found.warnings == []


@pytest.mark.parametrize(
    "garbage", ["", "I cannot do that.", "[1, 2]", "null", '"text"', "{", "{]", "\0\0", "{" * 50_000]
)
def test_extraction_garbage_is_a_warning_and_never_an_error(garbage: str) -> None:
    found = parse_extraction(garbage)
    assert (found.statements, found.relations) == ([], [])
    assert found.warnings == ["answer_not_json"]
    assert found.is_unusable


@pytest.mark.parametrize(
    "nothing", ["{}", "[]", '{"facts": [], "entities": []}', '{"facts": null}', answer([fact("short")])]
)
def test_extraction_nothing_worth_keeping_is_an_answer(nothing: str) -> None:
    found = parse_extraction(nothing)
    assert (found.statements, found.relations, found.is_unusable) == ([], [], False)


@pytest.mark.parametrize("shape", ['{"facts": "none"}', '{"facts": ["text"]}', '{"answer": 1}', '{"facts": [{"conte'])
def test_extraction_nothing_in_the_wrong_form_is_no_answer(shape: str) -> None:
    assert parse_extraction(shape).is_unusable


TRIPLE = {"source": "heron", "relationship": "nests_in", "target": "willow", "confidence": 1}


@pytest.mark.parametrize(
    ("given_", "counts"),
    [
        (fact(), (1, 0)),
        ([fact(), fact()], (2, 0)),
        ([fact(), TRIPLE], (1, 1)),
        ({"facts": fact(), "entities": TRIPLE}, (1, 1)),
    ],
)
def test_extraction_of_items_without_their_list(given_: Any, counts: tuple[int, int]) -> None:
    found = parse_extraction(json.dumps(given_))
    assert (len(found.statements), len(found.relations), found.warnings) == (*counts, [])


@given(st.text())
def test_extraction_never_throws(text: str) -> None:
    parse_extraction(text)
    parse_extraction('{"facts": [' + text)


def test_extraction_of_truncated_json_what_is_whole_is_kept() -> None:
    whole = answer([fact("The first statement."), fact("The second statement.")])
    cut = whole[: whole.index("second") + 3]
    found = parse_extraction(cut)
    assert [one.content for one in found.statements] == ["The first statement."]
    assert found.warnings == ["answer_cut_short"]


def test_extraction_at_most_twenty_facts_and_fifty_entities() -> None:
    facts = [fact(f"Statement number {number}.") for number in range(25)]
    entities = [{"source": "a", "relationship": "b", "target": f"c{number}", "confidence": 1} for number in range(60)]
    found = parse_extraction(answer(facts, entities))
    assert len(found.statements) == 20
    assert len(found.relations) == 50
    assert found.warnings == [
        "facts: more than 20, the rest was left out",
        "entities: more than 50, the rest was left out",
    ]


@pytest.mark.parametrize(("length", "kept"), [(9, False), (10, True)])
def test_extraction_a_fact_shorter_than_ten_characters_is_rejected(length: int, kept: bool) -> None:
    found = parse_extraction(answer([fact("x" * length), fact("This one is long enough.")]))
    assert len(found.statements) == 1 + kept
    assert bool(found.warnings) != kept


def test_extraction_a_fact_longer_than_2000_characters_is_truncated() -> None:
    found = parse_extraction(answer([fact("x" * 2001)]))
    assert [len(one.content) for one in found.statements] == [2000]
    assert found.warnings == ["facts[0]: content was cut to 2000 characters"]


@pytest.mark.parametrize("kind", ["fact", "preference", "decision", "procedural", "semantic"])
def test_extraction_known_types_are_kept(kind: str) -> None:
    found = parse_extraction(answer([fact(kind=kind)]))
    assert (found.statements[0].type, found.warnings) == (kind, [])


@pytest.mark.parametrize("kind", ["rumour", None, 7, ""])
def test_extraction_an_unknown_type_becomes_fact_with_a_warning(kind: Any) -> None:
    found = parse_extraction(answer([fact(kind=kind)]))
    assert found.statements[0].type == "fact"
    assert found.warnings == ["facts[0]: unknown type, stored as fact"]


@pytest.mark.parametrize(
    ("said", "kept"), [(-1, 0.0), (2, 1.0), (10**400, 1.0), ("high", 0.5), (None, 0.5), (True, 0.5)]
)
def test_extraction_a_confidence_that_is_none_is_held_to_its_range(said: Any, kept: float) -> None:
    found = parse_extraction(answer([fact(confidence=said)]))
    assert found.statements[0].confidence == kept
    assert found.warnings == ["facts[0]: confidence is not a number from 0 to 1"]


@pytest.mark.parametrize("missing", ["source", "relationship", "target"])
@pytest.mark.parametrize("value", ["", "   ", None, 3])
def test_extraction_a_triple_with_an_empty_part_is_left_out(missing: str, value: Any) -> None:
    triple = {"source": "a", "relationship": "b", "target": "c", "confidence": 1}
    found = parse_extraction(answer(entities=[{**triple, missing: value}, triple]))
    assert len(found.relations) == 1
    assert found.warnings == [f"entities[0]: {missing} is empty"]


def test_extraction_partial_failures_keep_the_rest() -> None:
    text = answer(["not an object", fact(), {"nothing": 1}, 5], [None])
    found = parse_extraction(text)
    assert len(found.statements) == 1
    assert len(found.warnings) == 4
    assert parse_extraction('{"facts": "none", "entities": {}}').warnings == [
        "facts: not a list",
        "entities: not a list",
    ]


def test_extraction_warnings_never_quote_the_answer() -> None:
    found = parse_extraction(answer([fact("Secret"), fact("x" * 3000 + "Secret", kind="Secret")]))
    assert not any("Secret" in warning for warning in found.warnings)


def test_extraction_input_is_cut_to_12000_characters() -> None:
    messages, warnings = extraction_prompt("y" * (MAX_INPUT + 1), author=None, occurred_at=NOW)
    assert messages[1].content.count("y") == 12_000
    assert warnings == ["input_truncated"]
    assert extraction_prompt("y" * MAX_INPUT, author=None, occurred_at=NOW)[1] == []


def test_extraction_the_prompt_has_worked_examples_and_asks_for_json_alone() -> None:
    messages, _ = extraction_prompt("words", author="Mara", occurred_at=NOW)
    assert messages[0].content.count("Example.") >= 2
    assert "nothing else" in messages[0].content
    assert 'Note by "Mara", 2026-03-01' in messages[1].content
