"""Parses the JSON in the completion of a model: strips reasoning and code fences, recovers truncated objects."""

import json
import re
from typing import Any, cast

REASONING = re.compile(r"\s*<think(?:ing)?>.*?</think(?:ing)?>", re.DOTALL | re.IGNORECASE)
# A completion that was cut off within its reasoning has no answer; one that lacks only the opening tag has.
OPEN_REASONING = re.compile(r"\s*<think(?:ing)?>", re.IGNORECASE)
STRAY_END = re.compile(r"[^{]*</think(?:ing)?>", re.DOTALL | re.IGNORECASE)
FENCE = re.compile(r"[^{]*?```[a-zA-Z0-9_-]*", re.DOTALL)
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


def parse_object(text: str) -> tuple[dict[str, Any] | None, str | None]:
    """Return the JSON object in a completion, and a warning code when there is none or it is incomplete."""
    bare = strip_wrapping(text[:MAX_CHARACTERS])
    start = bare.find("{")
    if start < 0:
        return None, "answer_not_json"
    try:
        found, _ = _decoder.raw_decode(bare, start)
    except (ValueError, RecursionError):
        salvaged = _salvage(bare[start:])
        return (salvaged, "answer_cut_short") if salvaged else (None, "answer_not_json")
    # It begins with a brace, so it is an object.
    return cast("dict[str, Any]", found), None


def _salvage(text: str) -> dict[str, Any]:
    """Return the complete items of each list in an object that was cut off."""
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
