"""Normalisation of content: what is stored, what is compared, and the hash that says two notes are the same."""

import hashlib
import re

import msgspec

WHITE_SPACE = re.compile(r"\s+")
TRAILING_PUNCTUATION = re.compile(r"[.,!?;:]+$")


class Content(msgspec.Struct, frozen=True):
    """The three derived values of a text."""

    stored: str
    normalized: str
    hash: str


def normalize_content(text: str) -> Content:
    """Trims and collapses white space; compares without case and trailing punctuation."""
    stored = WHITE_SPACE.sub(" ", text).strip()
    normalized = TRAILING_PUNCTUATION.sub("", stored.lower())
    return Content(stored, normalized, hashlib.sha256((normalized or stored.lower()).encode()).hexdigest())
