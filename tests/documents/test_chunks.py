"""Chunking: windows that cover the text, share what they shall, and never lie within one another."""

import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.documents.chunks import count_chunks, find_windows, split_text

LETTERS = st.text(alphabet="abc é漢", max_size=400)
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


@given(st.one_of(LETTERS, MIXED), windows())
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
