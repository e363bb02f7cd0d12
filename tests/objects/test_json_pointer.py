"""JSON Pointers as defined by RFC 6901."""

import json
from pathlib import Path
from typing import Any

import pytest

from app.objects.json_pointer import MISSING, parse_path, parse_pointer, point_at

EXAMPLES = Path(__file__).resolve().parents[3] / "shared" / "eval" / "json-pointer" / "rfc6901.json"


@pytest.mark.skipif(not EXAMPLES.is_file(), reason="the public data is not beside the project, in ../shared/eval")
def test_the_examples_of_the_standard() -> None:
    examples: dict[str, Any] = json.loads(EXAMPLES.read_text())
    for pointer, expected in examples["tests"]:
        wanted = examples["doc"] if pointer == "" else expected
        assert point_at(examples["doc"], parse_pointer(pointer)) == wanted, pointer


@pytest.mark.parametrize(
    ("pointer", "tokens"),
    [("", ()), ("/", ("",)), ("/a~1b", ("a/b",)), ("/m~0n", ("m~n",)), ("/~01", ("~1",)), ("/a//b", ("a", "", "b"))],
)
def test_tokens(pointer: str, tokens: tuple[str, ...]) -> None:
    assert parse_pointer(pointer) == tokens


@pytest.mark.parametrize("pointer", ["a", "a/b", "/~", "/~2", "/a~"])
def test_what_is_no_pointer(pointer: str) -> None:
    with pytest.raises(ValueError, match="JSON Pointer"):
        parse_pointer(pointer)


def test_paths_may_be_dotted_or_bare() -> None:
    assert parse_path("a") == ("a",)
    assert parse_path("a.b") == ("a", "b")
    assert parse_path("/a.b") == ("a.b",)
    for wrong in ("", ".", "a.", "a..b"):
        with pytest.raises(ValueError, match="JSON Pointer"):
            parse_path(wrong)


def test_only_plain_indexes_lead_into_arrays() -> None:
    assert point_at([1, 2], ("1",)) == 2
    for token in ("2", "-1", "-", "01", "+1", " 1", "1e0", "x"):
        assert point_at([1, 2], (token,)) is MISSING
    assert point_at({"01": 1}, ("01",)) == 1
    assert point_at("text", ("0",)) is MISSING
