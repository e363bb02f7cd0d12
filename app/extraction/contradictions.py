"""Detects by their words whether two texts contradict each other; such changes need a review."""

import re

NEGATIONS = frozenset(
    {"not", "no", "never", "cannot", "cant", "doesnt", "dont", "isnt", "wasnt", "wont", "without"}
)  # fmt: skip
ANTONYMS = (
    ("enabled", "disabled"),
    ("allow", "deny"),
    ("accept", "reject"),
    ("always", "never"),
    ("on", "off"),
    ("true", "false"),
)
MIN_SHARED_WORDS = 2
_WORD = re.compile(r"\w+")


def words_of(text: str) -> frozenset[str]:
    """Return the words of a text without case and apostrophes."""
    return frozenset(_WORD.findall(text.lower().replace("'", "").replace("\u2019", "")))


def contradicts(first: str, second: str) -> bool:
    """Return whether the texts share two words and only one of them is negated, or they hold opposites."""
    a, b = words_of(first), words_of(second)
    if len((a & b) - NEGATIONS) < MIN_SHARED_WORDS:
        return False
    if bool(a & NEGATIONS) != bool(b & NEGATIONS):
        return True
    return any(
        (one in a and other in b and other not in a and one not in b)
        or (other in a and one in b and one not in a and other not in b)
        for one, other in ANTONYMS
    )
