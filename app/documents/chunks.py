"""Chunks of a text: windows that end at headings, paragraphs, sentences or words, each overlapping the one before."""

import re
import unicodedata
from collections.abc import Iterator

JOINER = "\u200d"
# A cut is moved back by at most this many code points; a longer sequence is no real character.
LONGEST_CHARACTER = 32
HEADING = re.compile(r"^(#{1,6}) (.+)$", re.MULTILINE)
# Where to end a window, the best first: before a heading, after a paragraph, a sentence, a line, a word.
BOUNDARIES = tuple(
    re.compile(pattern)
    for pattern in (r"\n(?=#{1,6} )", r"\n\n(?!#)", r"[.!?…][\"'”’)\]]*\s+|[。！？]", r"\n", r"[^\S\n]+")
)
# Lines that stay lines; any other line continues its paragraph.
OWN_LINE = re.compile(r"#{1,6} |[-*+] |\d{1,3}[.)] |\||>")
MAX_HEADING = 120
MAX_PATH = 400


def join_lines(text: str) -> str:
    """Return a text with one line for each heading, list item and paragraph, and white space within them collapsed."""
    joined: list[str] = []
    is_open = False
    for line in text.split("\n"):
        words = " ".join(line.split())
        if is_open and words and not OWN_LINE.match(words):
            joined[-1] += f" {words}"
        else:
            joined.append(words)
        is_open = bool(words) and not HEADING.match(joined[-1])
    return re.sub(r"\n{3,}", "\n\n", "\n".join(joined)).strip()


def split_document(text: str, *, size: int, overlap: int) -> Iterator[str]:
    """Yield the chunks of a text made by join_lines; one within a section begins with the headings above it."""
    headings = [(found.start(), len(found[1]), found[0]) for found in HEADING.finditer(text)]
    path: list[tuple[int, str]] = []
    for start, end in find_windows(text, size=size, overlap=overlap):
        while headings and headings[0][0] < start:
            _, level, line = headings.pop(0)
            path = [*(above for above in path if above[0] < level), (level, line[:MAX_HEADING])]
        chunk = text[start:end].strip()
        # A chunk that begins with a heading repeats only those above that.
        first = HEADING.match(chunk)
        above = [line for level, line in path if first is None or level < len(first[1])]
        while above and sum(map(len, above)) > MAX_PATH:
            above.pop(0)
        if chunk:
            yield "\n".join([*above, chunk])


def split_text(text: str, *, size: int, overlap: int) -> Iterator[str]:
    """Yield windows of at most `size` characters with at most `overlap` shared; none lies wholly inside another."""
    for start, end in find_windows(text, size=size, overlap=overlap):
        yield text[start:end]


def find_windows(text: str, *, size: int, overlap: int) -> Iterator[tuple[int, int]]:
    """Yield the start and end of each window."""
    start = end = 0
    while end < len(text):
        end = _end(text, start, size=size, last=end)
        yield start, end
        start = _next_start(text, start, end, overlap=overlap)


def _end(text: str, start: int, *, size: int, last: int) -> int:
    """Return where a window ends: at the last good boundary of its second half, else at its full size."""
    full = start + size
    if full >= len(text):
        return len(text)
    least = max(start + size // 2, last + 1)
    for boundary in BOUNDARIES:
        ends = [found.end() for found in boundary.finditer(text, least, full)]
        if ends:
            return ends[-1]
    cut = _cut(text, full)
    # A cut that is moved back could fall behind the previous one; then it is not moved.
    return cut if cut > last else full


def _next_start(text: str, start: int, end: int, *, overlap: int) -> int:
    """Return where the next window starts: a section at its heading, else `overlap` before, at a sentence or word."""
    if overlap == 0 or HEADING.match(text, end):
        return end
    earliest = max(end - overlap, start + 1)
    for boundary in BOUNDARIES[1:]:
        found = boundary.search(text, earliest, end)
        if found is not None and found.end() < end:
            return found.end()
    return max(_cut(text, end - overlap), start + 1)


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
