"""Names, values and clock stamps as pure functions: equal inputs have one form, and nothing is lost."""

import json
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.errors import BadRequest
from app.facts.clock import HybridClock
from app.facts.names import as_id, entity_name, normalize_entity_name, predicate_name
from app.facts.values import read_value, show_value


@given(st.text(min_size=1, max_size=60))
def test_a_normal_name_is_its_own_normal_form(text: str) -> None:
    norm = normalize_entity_name(text)
    assert normalize_entity_name(norm) == norm
    assert norm == norm.strip()


@given(st.text(min_size=1, max_size=60))
def test_white_space_and_case_around_a_name_do_not_matter(text: str) -> None:
    try:
        name = entity_name(text, "subject")
    except BadRequest:
        return
    assert normalize_entity_name(f" \t{text}\n ") == name.norm == normalize_entity_name(name.shown)
    assert predicate_name(f"  {text} ", "predicate").norm == predicate_name(text, "predicate").norm


def test_only_what_is_written_as_an_id_is_one() -> None:
    text = "01A1E306-3097-73A3-97C3-368D5ED30CDE"
    assert as_id(f" {text}\n") == text.lower()
    assert as_id(text.replace("-", "")) is None
    assert as_id(f"{text}-") is None


@given(st.floats(allow_nan=False, allow_infinity=False) | st.integers(min_value=-(10**60), max_value=10**60))
def test_a_number_comes_back_as_itself(number: float) -> None:
    value = read_value(number, None, "object")
    assert json.loads(bytes(show_value("number", value.text))) == number
    assert float(value.json) == float(number)


@given(st.integers(min_value=-(2**53), max_value=2**53))
def test_a_whole_number_is_the_same_with_and_without_a_point(number: int) -> None:
    assert read_value(number, None, "object").hash == read_value(float(number), None, "object").hash


# The samples of RFC 8785, appendix B.
@pytest.mark.parametrize(
    ("number", "text"),
    [
        (0.0, "0"), (-0.0, "0"), (5e-324, "5e-324"), (-5e-324, "-5e-324"),
        (1.7976931348623157e308, "1.7976931348623157e+308"), (9007199254740992.0, "9007199254740992"),
        (295147905179352830000.0, "295147905179352830000"), (9.999999999999997e22, "9.999999999999997e+22"),
        (1e23, "1e+23"), (1.0000000000000001e23, "1.0000000000000001e+23"),
        (999999999999999700000.0, "999999999999999700000"), (1e21, "1e+21"),
        (9.999999999999997e-7, "9.999999999999997e-7"), (0.000001, "0.000001"),
        (333333333.3333332, "333333333.3333332"), (333333333.33333325, "333333333.33333325"),
        (1424953923781206.2, "1424953923781206.2"),
    ],
)  # fmt: skip
def test_numbers_have_the_form_of_rfc_8785(number: float, text: str) -> None:
    assert read_value(number, None, "object").json == text


@pytest.mark.parametrize("number", [math.inf, -math.inf, math.nan, 10**1300])
def test_what_is_no_number_is_refused(number: float) -> None:
    with pytest.raises(BadRequest, match=r"^object\.value"):
        read_value(number, None, "object")


def test_stamps_grow_whatever_the_clock_does() -> None:
    clock = HybridClock()
    stamps = [
        clock.stamp(now) for now in [1700000000.0, 1700000000.0, 1699999999.0, *[1700000000.0] * 1000, 1700000001.5]
    ]
    assert stamps == sorted(stamps)
    assert len(set(stamps)) == len(stamps)
    assert stamps[:2] == ["1700000000000.000", "1700000000000.001"]
    assert stamps[-1] == "1700000001500.000"
