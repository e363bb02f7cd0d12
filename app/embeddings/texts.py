"""What of a unit is embedded: pure functions from its words to the text a provider sees."""

import hashlib
from datetime import UTC, datetime

MAX_TOKENS = 800
# Of English prose, and of scripts that models know less of; exact counts differ from model to model, and models cut
# what is still too long.
CHARACTERS_PER_TOKEN = 4
MAX_CHARACTERS = MAX_TOKENS * CHARACTERS_PER_TOKEN
# What a tenant's patterns see of a text: more than a model reads, since a secret that is cut in half is none to them,
# and what is redacted makes room for what follows.
REDACTED_CHARACTERS = 5 * MAX_CHARACTERS
# By hand: the library's own names follow the machine's language.
MONTHS = (
    "January", "February", "March", "April", "May", "June", "July", "August", "September", "October", "November",
    "December",
)  # fmt: skip


def unit_text(words: str, *, author: str | None = None, occurred_at: datetime | None = None) -> str:
    """The text to embed: who said it and when comes first, so that it can be found by that too."""
    if author and occurred_at is not None:
        words = f"{author} ({spoken_date(occurred_at)}): {words}"
    return readable(words)


def readable(text: str) -> str:
    """As much of a text as a model reads."""
    return truncated(text, characters=_room(text))


def _room(text: str) -> int:
    """How many characters of a text make MAX_TOKENS: a quarter of a token each, a whole one past ASCII."""
    if text.isascii() or len(text) <= MAX_TOKENS:
        return MAX_CHARACTERS
    quarters = 0
    for place, character in enumerate(text):
        quarters += 1 if character.isascii() else CHARACTERS_PER_TOKEN
        if quarters > MAX_CHARACTERS:
            return place
    return MAX_CHARACTERS


def spoken_date(moment: datetime) -> str:
    """The day as people write it, such as 8 May 2023, in UTC."""
    day = moment.astimezone(UTC)
    return f"{day.day} {MONTHS[day.month - 1]} {day.year}"


def truncated(text: str, *, characters: int = MAX_CHARACTERS) -> str:
    """No more than so many characters, cut between words where there is a gap near the end."""
    if len(text) <= characters:
        return text
    cut = text[:characters]
    gap = max(cut.rfind(" "), cut.rfind("\n"))
    return cut[:gap] if gap > characters * 9 // 10 else cut


def text_hash(text: str) -> str:
    """By which a changed text is told from one that only was touched; SHA-256 in hexadecimal."""
    return hashlib.sha256(text.encode()).hexdigest()
