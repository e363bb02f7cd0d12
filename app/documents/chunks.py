"""Chunks of a text: windows of a fixed length, each overlapping the end of the one before."""

import unicodedata
from collections.abc import Iterator

JOINER = "\u200d"
# A cut is moved back by at most this many code points; a longer sequence is no real character.
LONGEST_CHARACTER = 32


def split_text(text: str, *, size: int, overlap: int) -> Iterator[str]:
    """Yield windows of `size` characters with `overlap` shared; none lies wholly inside the one before."""
    for start, end in find_windows(text, size=size, overlap=overlap):
        yield text[start:end]


def find_windows(text: str, *, size: int, overlap: int) -> Iterator[tuple[int, int]]:
    """Yield the start and end of each window."""
    start = end = 0
    while end < len(text):
        # A cut that is moved back could fall behind the previous one; then it is not moved.
        last, end = end, _cut(text, start + size)
        if end <= last:
            end = start + size
        yield start, end
        start = max(_cut(text, end - overlap), start + 1)


def count_chunks(length: int, *, size: int, overlap: int) -> int:
    """Return how many windows a text of this length has when no cut is moved."""
    if length <= size:
        return min(length, 1)
    return 1 + -(-(length - size) // (size - overlap))


def _cut(text: str, at: int) -> int:
    """Return where to cut: `at`, or a little before it so that no grapheme is split."""
    if at >= len(text):
        return len(text)
    for place in range(at, max(at - LONGEST_CHARACTER, 0), -1):
        if not _continues(text, place):
            return place
    return at


def _continues(text: str, at: int) -> bool:
    """Return whether the code point at `at` belongs to the character before it."""
    character = text[at]
    if character.isascii():
        return text[at - 1] == JOINER
    return (
        character == JOINER
        or text[at - 1] == JOINER
        or "\U0001f3fb" <= character <= "\U0001f3ff"
        or unicodedata.category(character) in ("Mn", "Mc", "Me")
    )
