"""JSON Pointers (RFC 6901), and two shorter forms of them: dotted paths and bare names."""

import re
from typing import Any, Final, cast

MISSING: Final = object()
"""The value of a pointer that leads nowhere."""

_ESCAPE = re.compile(r"~(?![01])")
_INDEX = re.compile(r"(?:0|[1-9][0-9]*)\Z")


def escape(name: str) -> str:
    """Return a member's name as a token of a pointer."""
    return name.replace("~", "~0").replace("/", "~1")


def parse_pointer(text: str) -> tuple[str, ...]:
    """Return the tokens of a JSON Pointer; raise ValueError when it is not valid."""
    if not text:
        return ()
    if not text.startswith("/"):
        raise ValueError("a JSON Pointer has to begin with /")
    if _ESCAPE.search(text):
        raise ValueError("in a JSON Pointer write ~ as ~0, and / as ~1")
    return tuple(token.replace("~1", "/").replace("~0", "~") for token in text[1:].split("/"))


def parse_path(text: str) -> tuple[str, ...]:
    """Return the tokens of a JSON Pointer, a dotted path or a bare name; raise ValueError when it is not valid."""
    if text.startswith("/"):
        return parse_pointer(text)
    tokens = tuple(text.split("."))
    if not all(tokens):
        raise ValueError("a name, names joined by single dots, or a JSON Pointer such as /properties/name")
    return tokens


def point_at(document: Any, tokens: tuple[str, ...]) -> Any:
    """Return the value within a document that the tokens lead to, or MISSING."""
    found = document
    for token in tokens:
        if isinstance(found, dict):
            found = cast(dict[str, Any], found).get(token, MISSING)
        elif isinstance(found, list) and _INDEX.match(token) and int(token) < len(cast(list[Any], found)):
            found = cast(list[Any], found)[int(token)]
        else:
            return MISSING
    return found
