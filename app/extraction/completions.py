"""Parses the JSON in the completion of a model: strips reasoning and code fences, reads what is readable."""

import json
import re
from typing import Any, cast

from app.extraction.tolerant_json import read_json

REASONING = re.compile(r"\s*<think(?:ing)?>.*?</think(?:ing)?>", re.DOTALL | re.IGNORECASE)
# A completion that was cut off within its reasoning has no answer; one that lacks only the opening tag has.
OPEN_REASONING = re.compile(r"\s*<think(?:ing)?>", re.IGNORECASE)
STRAY_END = re.compile(r"[^{]*</think(?:ing)?>", re.DOTALL | re.IGNORECASE)
FENCE = re.compile(r"[^{\[]*?```[a-zA-Z0-9_-]*", re.DOTALL)
OPENING = re.compile(r"[{\[]")
NOT_JSON = "answer_not_json"
# Bounds the work on a completion of a model that does not stop.
MAX_CHARACTERS = 400_000

_decoder = json.JSONDecoder()


def strip_wrapping(text: str) -> str:
    """Return a completion without the reasoning before its answer and the code fence around it."""
    while found := REASONING.match(text):
        text = text[found.end() :]
    if found := STRAY_END.match(text):
        text = text[found.end() :]
    if OPEN_REASONING.match(text):
        return ""
    if found := FENCE.match(text):
        text = text[found.end() :]
    return text.strip().removesuffix("```").rstrip()


def parse_json(text: str) -> tuple[dict[str, Any] | list[Any] | None, str | None]:
    """Return the object or list in a completion, and a warning code when there is none or it is incomplete."""
    bare = strip_wrapping(text[:MAX_CHARACTERS])
    found = OPENING.search(bare)
    if found is None:
        return None, NOT_JSON
    try:
        return _decoder.raw_decode(bare, found.start())[0], None
    except (ValueError, RecursionError):
        value, complete = read_json(bare, found.start())
    if value is None:
        return None, NOT_JSON
    return value, None if complete else "answer_cut_short"


def parse_object(text: str) -> tuple[dict[str, Any] | None, str | None]:
    """Return the object in a completion, or the only one in a list, and a warning code as parse_json does."""
    value, problem = parse_json(text)
    if isinstance(value, list):
        value = value[0] if len(value) == 1 else None
    return (cast("dict[str, Any]", value), problem) if isinstance(value, dict) else (None, NOT_JSON)


def clean_text(value: Any) -> str:
    """Return a text that can be stored, with white space collapsed; empty when the value is no text."""
    if not isinstance(value, str):
        return ""
    whole = value.replace("\0", "").encode(errors="replace").decode(errors="replace")
    return " ".join(whole.split())


def parse_confidence(value: Any) -> tuple[float | None, bool]:
    """Return the value clamped to 0 to 1, or None when it is no number, and whether it was valid as given."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None, False
    if value != value:
        return None, False
    # Compared before the conversion, which fails for integers of hundreds of digits.
    clamped = 0.0 if value < 0 else 1.0 if value > 1 else float(value)
    return clamped, 0 <= value <= 1
