"""Chunks of a text: windows of a fixed length, each sharing its beginning with the end of the one before."""

import unicodedata
from collections.abc import Iterator

JOINER = "\u200d"
# Further back than this a cut is not moved: what is longer is no character any more.
LONGEST_CHARACTER = 32


def split_text(text: str, *, size: int, overlap: int) -> Iterator[str]:
    """Windows of `size` characters with `overlap` shared; a window wholly inside the one before is left out."""
    for start, end in find_windows(text, size=size, overlap=overlap):
        yield text[start:end]


def find_windows(text: str, *, size: int, overlap: int) -> Iterator[tuple[int, int]]:
    """Where each window begins and ends."""
    start = end = 0
    while end < len(text):
        # Moved back by a few at the most, a cut could fall behind the last one: then it stays where it was.
        last, end = end, _cut(text, start + size)
        if end <= last:
            end = start + size
        yield start, end
        start = max(_cut(text, end - overlap), start + 1)


def count_chunks(length: int, *, size: int, overlap: int) -> int:
    """How many windows a text of this length has, but for cuts that are moved."""
    if length <= size:
        return min(length, 1)
    return 1 + -(-(length - size) // (size - overlap))


def _cut(text: str, at: int) -> int:
    """The place to cut: there, or a little before, so that a letter keeps its accents and an emoji its parts."""
    if at >= len(text):
        return len(text)
    for place in range(at, max(at - LONGEST_CHARACTER, 0), -1):
        if not _continues(text, place):
            return place
    return at


def _continues(text: str, at: int) -> bool:
    character = text[at]
    if character.isascii():
        return text[at - 1] == JOINER
    return (
        character == JOINER
        or text[at - 1] == JOINER
        or "\U0001f3fb" <= character <= "\U0001f3ff"
        or unicodedata.category(character) in ("Mn", "Mc", "Me")
    )
