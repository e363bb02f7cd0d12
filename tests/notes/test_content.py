"""Normalisation of content, and the hash that says two notes are the same."""

from hypothesis import given
from hypothesis import strategies as st

from app.notes.content import normalize_content


def test_the_agreed_check_value() -> None:
    content = normalize_content("  User   prefers Dark Mode!! ")
    assert content.stored == "User prefers Dark Mode!!"
    assert content.normalized == "user prefers dark mode"
    assert content.hash.startswith("058e6f30")


def test_punctuation_alone_still_has_a_hash_of_its_own() -> None:
    assert normalize_content("!!!").normalized == ""
    assert normalize_content("!!!").hash != normalize_content("???").hash


@given(st.text(), st.text(alphabet=" \t\n\r\u00a0", min_size=1))
def test_white_space_and_case_do_not_matter(text: str, space: str) -> None:
    assert normalize_content(space + text + space).hash == normalize_content(text).hash


@given(st.text())
def test_normalising_twice_changes_nothing(text: str) -> None:
    once = normalize_content(text)
    assert normalize_content(once.stored) == once
