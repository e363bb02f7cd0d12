"""The JSON of completions, without reasoning and code fences."""

import pytest

from app.extraction.completions import parse_object, strip_wrapping


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
