"""Cursors: what was signed opens, anything else does not."""

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.errors import CursorExpired, CursorInvalid
from app.paging import CURSOR_TTL_SECONDS, CursorSigner

SIGNER = CursorSigner(b"a secret of the tests, long enough")
POSITIONS = st.lists(
    st.one_of(st.text(max_size=40), st.integers(-(2**60), 2**60), st.none(), st.booleans()), max_size=4
)


@given(POSITIONS, st.text(max_size=60))
def test_a_cursor_opens_to_what_was_signed(position: list[object], binding: str) -> None:
    assert SIGNER.open(SIGNER.sign(position, binding=binding), binding=binding) == position


@given(POSITIONS, st.text(max_size=20), st.text(max_size=20))
def test_a_cursor_opens_only_where_it_was_made(position: list[object], here: str, there: str) -> None:
    cursor = SIGNER.sign(position, binding=here)
    if here != there:
        with pytest.raises(CursorInvalid):
            SIGNER.open(cursor, binding=there)


@given(POSITIONS, st.data())
def test_no_changed_cursor_opens(position: list[object], data: st.DataObject) -> None:
    cursor = SIGNER.sign(position, binding="x")
    place = data.draw(st.integers(0, len(cursor) - 1))
    letter = data.draw(st.sampled_from("abcXYZ019-_"))
    changed = cursor[:place] + letter + cursor[place + 1 :]
    try:
        # The last character may carry unused bits; only then may a change go unnoticed, and the content is the same.
        assert SIGNER.open(changed, binding="x") == position
    except CursorInvalid:
        assert changed != cursor


@given(st.text(max_size=300))
def test_garbage_is_refused(cursor: str) -> None:
    with pytest.raises(CursorInvalid):
        SIGNER.open(cursor, binding="x")


def test_a_cursor_lives_five_minutes() -> None:
    assert CURSOR_TTL_SECONDS == 300
    now = time.time()
    cursor = SIGNER.sign(["here"], binding="x", now=now)
    assert SIGNER.open(cursor, binding="x", now=now + 299) == ["here"]
    with pytest.raises(CursorExpired):
        SIGNER.open(cursor, binding="x", now=now + 302)


def test_another_secret_opens_nothing() -> None:
    with pytest.raises(CursorInvalid):
        CursorSigner(b"another secret").open(SIGNER.sign(["here"], binding="x"), binding="x")


def test_how_long_a_cursor_is_valid_can_be_set() -> None:
    signer = CursorSigner(b"a secret of the tests, long enough", ttl_seconds=20)
    cursor = signer.sign(["x"], binding="b", now=1000)
    assert signer.open(cursor, binding="b", now=1020) == ["x"]
    with pytest.raises(CursorExpired):
        signer.open(cursor, binding="b", now=1021)
