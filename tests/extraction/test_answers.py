"""PIPELINE, Extraction Stage and Decision Stage: what is made of the words of a model, as pure functions."""

import json
from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.extraction.answers import read_object, strip_wrapping
from app.extraction.contradiction import contradicts
from app.extraction.decision import Candidate, decision_prompt, read_decision
from app.extraction.extraction import MAX_INPUT, Statement, extraction_prompt, read_extraction

NOW = datetime(2026, 3, 1, tzinfo=UTC)


def fact(content: Any = "The heron is back.", kind: Any = "fact", confidence: Any = 0.8) -> dict[str, Any]:
    return {"content": content, "type": kind, "confidence": confidence}


def answer(facts: Any = (), entities: Any = ()) -> str:
    return json.dumps({"facts": list(facts), "entities": list(entities)})


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
    assert read_object(wrapped) == ({}, None)


@pytest.mark.parametrize(
    "words", ["Run ```make test``` first, then rest.", "A <think> tag and </think> are words here."]
)
@pytest.mark.parametrize("wrapped", ["{}", "```json\n{}\n```", "<think>so</think>\n{}"])
def test_extraction_fences_and_tags_within_a_statement_are_its_own(words: str, wrapped: str) -> None:
    found = read_extraction(wrapped.replace("{}", answer([fact(words)])))
    assert [one.content for one in found.statements] == [words]
    assert found.warnings == []


def test_extraction_a_model_that_only_thought_has_answered_nothing() -> None:
    assert strip_wrapping('<think>{"facts": []}') == ""
    assert read_object('<think>{"facts": []}') == (None, "answer_not_json")


@pytest.mark.parametrize(
    "garbage", ["", "I cannot do that.", "[1, 2]", "null", '"text"', "{", "{]", "\0\0", "{" * 50_000]
)
def test_extraction_garbage_is_a_warning_and_never_an_error(garbage: str) -> None:
    found = read_extraction(garbage)
    assert (found.statements, found.relations) == ([], [])
    assert found.warnings == ["answer_not_json"]


@given(st.text())
def test_extraction_never_throws(text: str) -> None:
    read_extraction(text)
    read_extraction('{"facts": [' + text)


def test_extraction_of_truncated_json_what_is_whole_is_kept() -> None:
    whole = answer([fact("The first statement."), fact("The second statement.")])
    cut = whole[: whole.index("second") + 3]
    found = read_extraction(cut)
    assert [one.content for one in found.statements] == ["The first statement."]
    assert found.warnings == ["answer_cut_short"]


def test_extraction_at_most_twenty_facts_and_fifty_entities() -> None:
    facts = [fact(f"Statement number {number}.") for number in range(25)]
    entities = [{"source": "a", "relationship": "b", "target": f"c{number}", "confidence": 1} for number in range(60)]
    found = read_extraction(answer(facts, entities))
    assert len(found.statements) == 20
    assert len(found.relations) == 50
    assert found.warnings == [
        "facts: more than 20, the rest was left out",
        "entities: more than 50, the rest was left out",
    ]


@pytest.mark.parametrize(("length", "kept"), [(9, False), (10, True)])
def test_extraction_a_fact_shorter_than_ten_characters_is_rejected(length: int, kept: bool) -> None:
    found = read_extraction(answer([fact("x" * length), fact("This one is long enough.")]))
    assert len(found.statements) == 1 + kept
    assert bool(found.warnings) != kept


def test_extraction_a_fact_longer_than_2000_characters_is_truncated() -> None:
    found = read_extraction(answer([fact("x" * 2001)]))
    assert [len(one.content) for one in found.statements] == [2000]
    assert found.warnings == ["facts[0]: content was cut to 2000 characters"]


@pytest.mark.parametrize("kind", ["fact", "preference", "decision", "procedural", "semantic"])
def test_extraction_known_types_are_kept(kind: str) -> None:
    found = read_extraction(answer([fact(kind=kind)]))
    assert (found.statements[0].type, found.warnings) == (kind, [])


@pytest.mark.parametrize("kind", ["rumour", None, 7, ""])
def test_extraction_an_unknown_type_becomes_fact_with_a_warning(kind: Any) -> None:
    found = read_extraction(answer([fact(kind=kind)]))
    assert found.statements[0].type == "fact"
    assert found.warnings == ["facts[0]: unknown type, taken for fact"]


@pytest.mark.parametrize(
    ("said", "kept"), [(-1, 0.0), (2, 1.0), (10**400, 1.0), ("high", 0.5), (None, 0.5), (True, 0.5)]
)
def test_extraction_a_confidence_that_is_none_is_held_to_its_range(said: Any, kept: float) -> None:
    found = read_extraction(answer([fact(confidence=said)]))
    assert found.statements[0].confidence == kept
    assert found.warnings == ["facts[0]: confidence is not a number from 0 to 1"]


@pytest.mark.parametrize("missing", ["source", "relationship", "target"])
@pytest.mark.parametrize("value", ["", "   ", None, 3])
def test_extraction_a_triple_with_an_empty_part_is_left_out(missing: str, value: Any) -> None:
    triple = {"source": "a", "relationship": "b", "target": "c", "confidence": 1}
    found = read_extraction(answer(entities=[{**triple, missing: value}, triple]))
    assert len(found.relations) == 1
    assert found.warnings == [f"entities[0]: {missing} is empty"]


def test_extraction_partial_failures_keep_the_rest() -> None:
    text = answer(["not an object", fact(), {"nothing": 1}, 5], [None])
    found = read_extraction(text)
    assert len(found.statements) == 1
    assert len(found.warnings) == 4
    assert read_extraction('{"facts": "none", "entities": {}}').warnings == [
        "facts: not a list",
        "entities: not a list",
    ]


def test_extraction_warnings_never_quote_the_answer() -> None:
    found = read_extraction(answer([fact("Secret"), fact("x" * 3000 + "Secret", kind="Secret")]))
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
    assert "Note by Mara, 2026-03-01" in messages[1].content


STATEMENT = Statement(content="Mara works at Initech.", type="fact", confidence=0.9)
KNOWN = [
    Candidate(note_id="01a1e8f3-0000-7000-8000-000000000001", type="fact", content="Mara works.", version=1, score=0.8),
    Candidate(note_id="01a1e8f3-0000-7000-8000-000000000002", type="fact", content="Tom rests.", version=3, score=0.5),
]


def decided(**fields: Any) -> str:
    return json.dumps({"action": "ADD", "confidence": 0.9, "reason": "new", **fields})


def test_decision_the_prompt_lists_candidates_with_number_id_type_and_content() -> None:
    said = decision_prompt(STATEMENT, KNOWN)[1].content
    assert f"1. [id {KNOWN[0].note_id}] (fact) Mara works." in said
    assert f"2. [id {KNOWN[1].note_id}] (fact) Tom rests." in said


@pytest.mark.parametrize("action", ["ADD", "NONE", "add", " none "])
def test_decision_add_and_none_need_no_target(action: str) -> None:
    proposal, problem = read_decision(decided(action=action), STATEMENT, KNOWN)
    assert proposal is not None
    assert (proposal.action, proposal.target, problem) == (action.strip().upper(), None, None)


@pytest.mark.parametrize("action", ["UPDATE", "DELETE"])
@pytest.mark.parametrize("spelling", ["targetId", "target_id"])
def test_decision_update_and_delete_name_a_candidate(action: str, spelling: str) -> None:
    proposal, _ = read_decision(decided(action=action, **{spelling: KNOWN[1].note_id}), STATEMENT, KNOWN)
    assert proposal is not None
    assert proposal.target == KNOWN[1]


@pytest.mark.parametrize(
    ("fields", "problem"),
    [
        ({"action": "UPDATE"}, "missing_target"),
        ({"action": "DELETE", "targetId": "01a1e8f3-0000-7000-8000-00000000dead"}, "unknown_target"),
        ({"action": "UPDATE", "targetId": 5}, "missing_target"),
        ({"reason": ""}, "empty_reason"),
        ({"reason": "  "}, "empty_reason"),
        ({"reason": None}, "empty_reason"),
        ({"action": "MERGE"}, "unknown_action"),
        ({"action": None}, "unknown_action"),
        ({"confidence": "sure"}, "no_confidence"),
    ],
)
def test_decision_what_does_not_hold_is_dropped_with_a_warning(fields: dict[str, Any], problem: str) -> None:
    assert read_decision(decided(**fields), STATEMENT, KNOWN) == (None, problem)


def test_decision_garbage_is_dropped() -> None:
    assert read_decision("<think>no</think> no", STATEMENT, KNOWN) == (None, "answer_not_json")


@pytest.mark.parametrize(
    ("first", "second", "expected"),
    [
        ("Dark mode is enabled in the app", "Dark mode is disabled in the app", True),
        ("The export runs every night", "The export never runs at night", True),
        ("The user doesn't like tea", "The user does like tea", True),
        ("The user doesn\u2019t like tea", "The user does like tea", True),
        ("The lamp is on", "The lamp is off", True),
        ("Allow guests at home", "Deny guests at home", True),
        ("Nobody was there", "It is not raining", False),
        ("Mara works at Globex", "Mara works at Initech", False),
        ("The user does not like tea", "The user does not like coffee", False),
        ("never", "always", False),
    ],
)
def test_contradiction_two_shared_words_and_a_denial_or_an_opposite(first: str, second: str, expected: bool) -> None:
    assert contradicts(first, second) is expected
    assert contradicts(second, first) is expected
