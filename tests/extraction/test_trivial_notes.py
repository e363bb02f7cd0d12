"""Notes that cost no call of a model."""

import pytest

from app.extraction.trivial_notes import is_trivial


@pytest.mark.parametrize(
    "content",
    ["", "ok", "Ok!", "thanks", "Thank you so much!", "hello there", "👍👍👍", "...", "12345", "ab cd", "brb", "да"],
)
def test_courtesies_and_a_few_characters_are_trivial(content: str) -> None:
    assert is_trivial(content)


@pytest.mark.parametrize(
    "content", ["Tom: vegan", "I moved to Rome.", "他住在柏林", "thanks, Mara", "No sugar", "call 911 222", "x" * 6]
)
def test_whatever_may_say_something_is_not(content: str) -> None:
    assert not is_trivial(content)
