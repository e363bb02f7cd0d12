"""Chunking: windows that cover the text, share what they shall, and never lie within one another."""

import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.documents.chunks import HEADING, count_chunks, find_windows, join_lines, split_document, split_text

LETTERS = st.text(alphabet="abcé漢", max_size=400)
PROSE = st.text(alphabet=st.sampled_from("ab. \n#-!"), max_size=400)
MIXED = st.text(
    alphabet=st.sampled_from("ab\u0301\u0308\u200d\U0001f469\U0001f4bb\U0001f3fd\ufe0f\u0903"), max_size=400
)


@st.composite
def windows(draw: st.DrawFn) -> tuple[int, int]:
    size = draw(st.integers(1, 120))
    return size, draw(st.integers(0, size - 1))


@given(LETTERS, windows())
def test_chunking_windows_are_exact(text: str, window: tuple[int, int]) -> None:
    size, overlap = window
    chunks = list(split_text(text, size=size, overlap=overlap))
    step = size - overlap
    assert chunks == [text[at : at + size] for at in range(0, max(len(text) - overlap, min(len(text), 1)), step)]
    assert len(chunks) == count_chunks(len(text), size=size, overlap=overlap)


@given(st.one_of(LETTERS, MIXED, PROSE), windows())
def test_chunking_covers_the_text_and_leaves_out_what_lies_inside_the_one_before(
    text: str, window: tuple[int, int]
) -> None:
    size, overlap = window
    before = (-1, 0)
    for start, end in find_windows(text, size=size, overlap=overlap):
        assert before[0] < start <= before[1] < end <= start + size
        before = (start, end)
    assert before[1] == len(text)


@pytest.mark.parametrize("letter", ["e\u0301", "\U0001f469\u200d\U0001f4bb", "\U0001f44d\U0001f3fd", "n\u0303\u0323"])
def test_chunking_keeps_a_letter_together(letter: str) -> None:
    for chunk in split_text("x" + letter * 400, size=200, overlap=20):
        assert not unicodedata.combining(chunk[0])
        assert chunk[0] not in "\u200d\U0001f3fd"
        assert chunk.lstrip("x").replace(letter, "") == ""


def test_chunking_shorter_than_one_window_is_one_and_nothing_is_none() -> None:
    assert list(split_text("abc", size=3, overlap=1)) == ["abc"]
    assert list(split_text("", size=3, overlap=1)) == []
    assert list(split_text("abcd", size=3, overlap=1)) == ["abc", "cd"]
    # Of five letters the second window reaches the end: a third would lie inside it.
    assert list(split_text("abcde", size=3, overlap=1)) == ["abc", "cde"]


GUIDE = join_lines(
    "# Kitchen\n\nWelcome to the\nkitchen.\n\n## Tea\n\nTea is in the tin.\n- green\n- black\n\n### Black tea\n\n"
    + "Black tea is strong. " * 30
    + "\n\n## Coffee\n\nCoffee is in the jar."
)


def test_chunking_headings_items_and_paragraphs_stay_lines() -> None:
    assert GUIDE.startswith(
        "# Kitchen\n\nWelcome to the kitchen.\n\n## Tea\n\nTea is in the tin.\n- green\n- black\n\n### Black tea\n\n"
    )


def test_chunking_a_chunk_begins_with_the_headings_above_it() -> None:
    chunks = list(split_document(GUIDE, size=300, overlap=60))
    assert chunks[0].startswith("# Kitchen\n\nWelcome")
    within = [chunk for chunk in chunks[1:] if "Black tea is strong" in chunk]
    assert len(within) > 1
    assert all(chunk.startswith("# Kitchen\n## Tea\n### Black tea\n") for chunk in within)
    (coffee,) = [chunk for chunk in chunks if "Coffee is in the jar." in chunk]
    assert "## Coffee\n\nCoffee is" in coffee


def test_chunking_a_section_of_the_same_level_replaces_the_one_before() -> None:
    text = "# A\n\n" + "alpha. " * 40 + "\n\n# B\n\n" + "beta. " * 60
    *_, last = split_document(text, size=200, overlap=20)
    assert last.startswith("# B\n")
    assert "# A" not in last


def test_chunking_ends_at_headings_paragraphs_sentences_and_words() -> None:
    sentences = " ".join(f"Sentence number {number} ends here." for number in range(60))
    for chunk in split_text(sentences, size=200, overlap=50):
        assert chunk.startswith("Sentence number")
        assert chunk.rstrip().endswith("ends here.")
    words = " ".join(f"word{number}" for number in range(200))
    assert all(set(chunk.split()) <= set(words.split()) for chunk in split_text(words, size=100, overlap=30))
    first, second = split_text("a" * 120 + ". " + "b" * 30 + "\n# Head\n" + "c" * 60, size=200, overlap=50)
    assert second.startswith("# Head\n"), "a new section shares nothing with the one before"
    assert first.endswith("b\n")


@given(PROSE)
def test_chunking_of_any_prose_keeps_every_word(text: str) -> None:
    joined = join_lines(text)
    assert joined.split() == text.split()
    assert join_lines(joined) == joined
    whole = "".join(split_document(joined, size=50, overlap=0))
    assert all(word in whole for word in joined.split() if len(word) < 25)
    assert all(HEADING.match(line) for line in joined.split("\n") if line.startswith("# ") and line[2:].strip())
