"""Normalisation of note content, and the hash by which two notes are duplicates."""

import hashlib
import re

import msgspec

WHITE_SPACE = re.compile(r"\s+")
TRAILING_PUNCTUATION = re.compile(r"[.,!?;:]+$")


class Content(msgspec.Struct, frozen=True):
    """A text as it is stored, as it is compared, and its hash."""

    stored: str
    normalized: str
    hash: str


def normalize_content(text: str) -> Content:
    """Collapse white space for storage; ignore case and trailing punctuation for comparison."""
    stored = WHITE_SPACE.sub(" ", text).strip()
    normalized = TRAILING_PUNCTUATION.sub("", stored.lower())
    return Content(stored, normalized, hashlib.sha256((normalized or stored.lower()).encode()).hexdigest())
