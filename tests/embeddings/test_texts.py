"""What of a unit a provider gets to see."""

from datetime import UTC, datetime, timedelta, timezone

from hypothesis import given
from hypothesis import strategies as st

from app.embeddings.texts import MAX_CHARACTERS, spoken_date, text_hash, truncated, unit_text


def test_a_note_says_who_said_it_and_when() -> None:
    said = datetime(2023, 5, 8, 13, 56, tzinfo=UTC)
    assert unit_text("I like tea.", author="Alice", occurred_at=said) == "Alice (8 May 2023): I like tea."
    assert unit_text("I like tea.", author=None, occurred_at=said) == "I like tea."
    assert unit_text("Alice lives in Paris") == "Alice lives in Paris"


def test_the_day_is_that_of_utc() -> None:
    late = datetime(2024, 1, 1, 0, 30, tzinfo=timezone(timedelta(hours=2)))
    assert spoken_date(late) == "31 December 2023"


def test_at_emb_7_long_texts_are_cut_to_800_tokens() -> None:
    text = unit_text("word " * 5000, author="Alice", occurred_at=datetime(2023, 5, 8, tzinfo=UTC))
    assert text.startswith("Alice (8 May 2023): word")
    assert MAX_CHARACTERS * 0.9 < len(text) <= MAX_CHARACTERS == 3200
    assert text.endswith("word"), "between two words"
    assert len(truncated("x" * 10_000)) == MAX_CHARACTERS, "or in the midst of one, where there is no gap"


def tokens(text: str) -> float:
    return sum(0.25 if character.isascii() else 1 for character in text)


def test_at_emb_7_scripts_that_models_know_less_of_are_cut_sooner() -> None:
    assert unit_text("漢字" * 1500) == "漢字" * 400
    assert unit_text("\U0001f375" * 5000) == "\U0001f375" * 800
    assert unit_text("漢字" * 400) == "漢字" * 400
    mixed = unit_text("tea чай " * 1000)
    assert 0.9 * 800 < tokens(mixed) <= 800
    assert mixed.endswith(("tea", "чай"))
    accented = "café au lait, " * 180
    assert unit_text(accented) == accented, "one letter in a word makes no other script"


@given(st.text(alphabet="ab é漢", min_size=700, max_size=4000))
def test_at_emb_7_no_text_has_more_than_800_tokens(text: str) -> None:
    cut = unit_text(text)
    assert text.startswith(cut)
    assert tokens(cut) <= 800
    assert cut == text or tokens(cut) > 0.5 * 800
    assert (cut == text) == (tokens(text) <= 800)


@given(st.text(max_size=200), st.integers(min_value=1, max_value=100))
def test_a_cut_text_is_the_beginning_of_the_whole(text: str, characters: int) -> None:
    cut = truncated(text, characters=characters)
    assert text.startswith(cut)
    assert len(cut) <= characters
    assert (cut == text) == (len(text) <= characters)


def test_the_hash_tells_a_change() -> None:
    assert text_hash("a") != text_hash("b")
    assert text_hash("a") == "ca978112ca1bbdcafac231b39a23dc4da786eff8147c4e72b9807785afee48bb"
