"""Contradictions between two texts."""

import pytest

from app.extraction.contradictions import contradicts


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
