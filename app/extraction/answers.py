"""What models answer, brought to JSON: without what they think aloud, without fences, as far as it goes."""

import json
import re
from typing import Any, cast

THOUGHT = re.compile(r"\s*<think(?:ing)?>.*?</think(?:ing)?>", re.DOTALL | re.IGNORECASE)
# One that was cut off while it thought has answered nothing; one whose opening was swallowed has.
OPEN_THOUGHT = re.compile(r"\s*<think(?:ing)?>", re.IGNORECASE)
STRAY_END = re.compile(r"[^{]*</think(?:ing)?>", re.DOTALL | re.IGNORECASE)
FENCE = re.compile(r"[^{]*?```[a-zA-Z0-9_-]*", re.DOTALL)
# Deeper than this nothing is nested that we ask for; a parser would run out of stack much later.
MAX_CHARACTERS = 400_000

_decoder = json.JSONDecoder()


def strip_wrapping(text: str) -> str:
    """The answer itself: without the thoughts before it and the fence around it. What stands within it is its own."""
    while found := THOUGHT.match(text):
        text = text[found.end() :]
    if found := STRAY_END.match(text):
        text = text[found.end() :]
    if OPEN_THOUGHT.match(text):
        return ""
    if found := FENCE.match(text):
        text = text[found.end() :]
    return text.strip().removesuffix("```").rstrip()


def read_object(text: str) -> tuple[dict[str, Any] | None, str | None]:
    """The JSON object in an answer, and a warning when there was none, or not a whole one."""
    bare = strip_wrapping(text[:MAX_CHARACTERS])
    start = bare.find("{")
    if start < 0:
        return None, "answer_not_json"
    try:
        found, _ = _decoder.raw_decode(bare, start)
    except (ValueError, RecursionError):
        salvaged = _salvage(bare[start:])
        return (salvaged, "answer_cut_short") if salvaged else (None, "answer_not_json")
    # It begins with a brace.
    return cast("dict[str, Any]", found), None


def _salvage(text: str) -> dict[str, Any]:
    """Of an object that was cut off: the whole items of each of its lists."""
    kept: dict[str, Any] = {}
    for match in re.finditer(r'"([a-zA-Z_]{1,40})"\s*:\s*\[', text):
        items: list[Any] = []
        place = match.end()
        while (place := _next_item(text, place)) is not None:
            try:
                item, place = _decoder.raw_decode(text, place)
            except (ValueError, RecursionError):
                break
            items.append(item)
        if items:
            kept.setdefault(match[1], items)
    return kept


def _next_item(text: str, place: int) -> int | None:
    found = re.compile(r"[\s,]*").match(text, place)
    place = place if found is None else found.end()
    return place if place < len(text) and text[place] == "{" else None


def clean_text(value: Any) -> str:
    """A text that can be stored: trimmed, white space collapsed, without NUL or half characters; else empty."""
    if not isinstance(value, str):
        return ""
    whole = value.replace("\0", "").encode(errors="replace").decode(errors="replace")
    return " ".join(whole.split())


def read_confidence(value: Any) -> tuple[float | None, bool]:
    """A number from 0 to 1, and whether it was one as it came; None when it is no number at all."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None, False
    if value != value:
        return None, False
    # Compared first: a number of hundreds of digits is no float.
    held = 0.0 if value < 0 else 1.0 if value > 1 else float(value)
    return held, 0 <= value <= 1
