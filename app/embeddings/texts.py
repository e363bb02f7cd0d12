"""The text of a unit that is embedded: pure functions."""

import hashlib
from datetime import UTC, datetime

MAX_TOKENS = 800
# An estimate for English prose; exact counts differ by model, and models cut what is still too long.
CHARACTERS_PER_TOKEN = 4
MAX_CHARACTERS = MAX_TOKENS * CHARACTERS_PER_TOKEN
# How much of a text the redaction patterns of a tenant see: more than a model reads, since a secret cut in half would
# not match, and redaction makes the text shorter.
REDACTED_CHARACTERS = 5 * MAX_CHARACTERS
# Not strftime: its names depend on the locale.
MONTHS = (
    "January", "February", "March", "April", "May", "June", "July", "August", "September", "October", "November",
    "December",
)  # fmt: skip


def unit_text(words: str, *, author: str | None = None, occurred_at: datetime | None = None) -> str:
    """Return the text to embed, prefixed by author and date so that it can be found by them too."""
    if author and occurred_at is not None:
        words = f"{author} ({spoken_date(occurred_at)}): {words}"
    return readable(words)


def readable(text: str) -> str:
    """Return as much of a text as a model reads."""
    return truncated(text, characters=_max_characters(text))


def _max_characters(text: str) -> int:
    """Return how many characters make MAX_TOKENS: a quarter of a token each, a whole one outside of ASCII."""
    if text.isascii() or len(text) <= MAX_TOKENS:
        return MAX_CHARACTERS
    quarters = 0
    for place, character in enumerate(text):
        quarters += 1 if character.isascii() else CHARACTERS_PER_TOKEN
        if quarters > MAX_CHARACTERS:
            return place
    return MAX_CHARACTERS


def spoken_date(moment: datetime) -> str:
    """Return the day in UTC, such as 8 May 2023."""
    day = moment.astimezone(UTC)
    return f"{day.day} {MONTHS[day.month - 1]} {day.year}"


def truncated(text: str, *, characters: int = MAX_CHARACTERS) -> str:
    """Return at most so many characters, cut between words where possible."""
    if len(text) <= characters:
        return text
    cut = text[:characters]
    gap = max(cut.rfind(" "), cut.rfind("\n"))
    return cut[:gap] if gap > characters * 9 // 10 else cut


def text_hash(text: str) -> str:
    """Return the SHA-256 of a text in hexadecimal, to detect changes."""
    return hashlib.sha256(text.encode()).hexdigest()
