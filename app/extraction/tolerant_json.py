"""Reads JSON as models write it: with comments, trailing commas, other quotes or a missing end.

It reads every character once and guesses nothing: an item that was cut off is dropped, not completed. (General repair
libraries complete such items, and their time grows with the square of some inputs.)
"""

import json
import re
from typing import Any

MAX_DEPTH = 64
TOKEN = re.compile(
    r"""
    (?P<skipped>\s+|//[^\n]*|/\*.*?(?:\*/|\Z)|\#[^\n]*)
  | (?P<string>"(?:[^"\\]|\\.)*"|'(?:[^'\\]|\\.)*')
  | (?P<mark>[{}\[\],:])
  | (?P<word>[^\s{}\[\],:"'/\#]+|/)
    """,
    re.VERBOSE | re.DOTALL,
)
CLOSERS = {"{": "}", "[": "]"}
WORDS = {"True": "true", "False": "false", "None": "null", "NaN": "null", "undefined": "null"}
ESCAPE = re.compile(r"\\(u[0-9a-fA-F]{4}|.)", re.DOTALL)
VALID_ESCAPES = frozenset('"\\/bfnrt')


def read_json(text: str, start: int) -> tuple[Any, bool]:
    """Return the value that begins at `start` and whether it was complete; (None, False) when nothing can be read."""
    reader = _Reader(start)
    for found in TOKEN.finditer(text, start):
        if found.start() != reader.end:
            break
        reader.end = found.end()
        if found.lastgroup != "skipped" and not reader.take(found[0]):
            break
        if reader.tokens and not reader.closers:
            return _decode(reader.tokens), True
    return _decode(reader.complete_items()), False


class _Reader:
    """The tokens read so far as strict JSON, and where the last complete item ended."""

    def __init__(self, start: int) -> None:
        self.tokens: list[str] = []
        self.closers: list[str] = []
        self.end = start
        self._complete: tuple[int, tuple[str, ...]] = (0, ())

    def take(self, part: str) -> bool:
        """Append a token; return False for one that fits nowhere."""
        if part in CLOSERS:
            self._separate()
            self.tokens.append(part)
            self.closers.append(CLOSERS[part])
            return len(self.closers) <= MAX_DEPTH
        if part in ("}", "]"):
            return self._close(part)
        if part == ",":
            if self.tokens and self.tokens[-1] not in (",", "{", "["):
                self.tokens.append(part)
            return True
        if part == ":":
            self.tokens.append(part)
            return True
        self._separate()
        self.tokens.append(_scalar(part))
        return True

    def complete_items(self) -> list[str]:
        """Return the tokens up to the end of the last complete item, with everything closed."""
        length, closers = self._complete
        return [*self.tokens[:length], *reversed(closers)]

    def _separate(self) -> None:
        """Append the comma that is missing after a value."""
        if self.tokens and self.tokens[-1] not in (",", ":", "{", "["):
            self.tokens.append(",")

    def _close(self, part: str) -> bool:
        if not self.closers or self.closers.pop() != part:
            return False
        if self.tokens[-1] == ",":
            self.tokens.pop()
        self.tokens.append(part)
        self._complete = (len(self.tokens), tuple(self.closers))
        return True


def _scalar(part: str) -> str:
    """Return a string, number or word as strict JSON; an unknown word, such as a key without quotes, is a string."""
    if part[0] == '"':
        return ESCAPE.sub(_escape, part)
    if part[0] == "'":
        return json.dumps(part[1:-1].replace("\\'", "'").replace('\\"', '"'))
    word = WORDS.get(part, part)
    try:
        json.loads(word)
    except ValueError:
        return json.dumps(word)
    return word


def _escape(found: re.Match[str]) -> str:
    """Return a valid escape as it is; the backslash of any other is a character."""
    return found[0] if found[1] in VALID_ESCAPES or len(found[1]) > 1 else "\\\\" + found[1]


def _decode(parts: list[str]) -> Any:
    try:
        return json.loads("".join(parts), strict=False)
    except (ValueError, RecursionError):
        return None
