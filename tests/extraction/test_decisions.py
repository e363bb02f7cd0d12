"""Decisions: the prompt, and the proposal of a completion."""

import json
from typing import Any

import pytest

from app.extraction.decisions import Candidate, decision_prompt, parse_decision
from app.extraction.statements import Statement

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
    proposal, problem = parse_decision(decided(action=action), STATEMENT, KNOWN)
    assert proposal is not None
    assert (proposal.action, proposal.target, problem) == (action.strip().upper(), None, None)


@pytest.mark.parametrize("action", ["UPDATE", "DELETE"])
@pytest.mark.parametrize("spelling", ["targetId", "target_id"])
def test_decision_update_and_delete_name_a_candidate(action: str, spelling: str) -> None:
    proposal, _ = parse_decision(decided(action=action, **{spelling: KNOWN[1].note_id}), STATEMENT, KNOWN)
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
    assert parse_decision(decided(**fields), STATEMENT, KNOWN) == (None, problem)


def test_decision_garbage_is_dropped() -> None:
    assert parse_decision("<think>no</think> no", STATEMENT, KNOWN) == (None, "answer_not_json")
