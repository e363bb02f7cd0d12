"""The size of a regular expression as the engine counts it; matching takes at most this size times the text."""

import re
from functools import lru_cache

import jsonschema_rs

# The engine runs in linear time: it has no look-around and no back-references.
MAX_PATTERN_BYTES = 3_000_000
# The largest size by which a match is bounded; a text of 1,500 bytes takes a tenth of a second.
MAX_MATCH_BYTES = 131_072
# Beyond this the engine searches without an automaton, which is slower but within the same bound.
_MAX_AUTOMATON_BYTES = 200_000
ENGINE = jsonschema_rs.RegexOptions(size_limit=MAX_PATTERN_BYTES, dfa_size_limit=_MAX_AUTOMATON_BYTES)
_SMALLEST = 256
# A class of many characters counts by its repetitions, not by the ways to write its characters in UTF-8. All of these
# tokens can stand inside and outside of brackets, so that the structure of the expression is kept.
_WIDE = re.compile(r"\\[pP](?:\{[^{}]*\}|[A-Za-z])|\\[DWS]|\\.|\[\^(?!\])|\.", re.DOTALL)
# Operators within brackets, with which a narrowed class could become empty.
_SET_OPERATORS = ("&&", "--", "~~")


@lru_cache(maxsize=4000)
def compiled_size(pattern: str, *, factor: int = 4) -> int | None:
    """Return the bytes of the compiled expression, rounded up by a factor; None when it is invalid or too large."""
    size = _SMALLEST
    while size < MAX_PATTERN_BYTES:
        if _compiles(pattern, size):
            return size
        size *= factor
    return MAX_PATTERN_BYTES if _compiles(pattern, MAX_PATTERN_BYTES) else None


@lru_cache(maxsize=4000)
def match_size(pattern: str) -> int:
    """Return the size that bounds the time of a match: that of the expression with narrow classes of characters."""
    if not any(operator in pattern for operator in _SET_OPERATORS):
        size = compiled_size(_WIDE.sub(_narrow, pattern), factor=2)
        if size is not None:
            return size
    return compiled_size(pattern) or MAX_PATTERN_BYTES


def _narrow(token: re.Match[str]) -> str:
    text = token.group()
    if text == "[^":
        return r"[\d"
    return r"\d" if text == "." or text[1] in "pPDWS" else text


def _compiles(pattern: str, size: int) -> bool:
    try:
        jsonschema_rs.validator_for(
            {"pattern": pattern},
            offline=True,
            validate_formats=False,
            pattern_options=jsonschema_rs.RegexOptions(size_limit=size, dfa_size_limit=_MAX_AUTOMATON_BYTES),
        )
    except ValueError:
        return False
    return True
