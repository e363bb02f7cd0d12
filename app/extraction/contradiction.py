"""Whether two texts contradict each other, as far as their words tell: such changes are for a person to decide."""

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
LEAST_OVERLAP = 2
_WORD = re.compile(r"\w+")


def words_of(text: str) -> frozenset[str]:
    """The words of a text, without case and apostrophes."""
    return frozenset(_WORD.findall(text.lower().replace("'", "").replace("\u2019", "")))


def contradicts(first: str, second: str) -> bool:
    """They share two words at least, and one denies what the other says, or says its opposite."""
    a, b = words_of(first), words_of(second)
    if len((a & b) - NEGATIONS) < LEAST_OVERLAP:
        return False
    if bool(a & NEGATIONS) != bool(b & NEGATIONS):
        return True
    return any(
        (one in a and other in b and other not in a and one not in b)
        or (other in a and one in b and one not in a and other not in b)
        for one, other in ANTONYMS
    )
