"""The breaker opens when it should, asks again when it may, and never lets a crowd through."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.providers.base import InputRefused, ProviderDown, ProviderError, ProviderMisconfigured, UnusableResponse
from app.providers.breaker import Breaker

DOWN = ProviderDown("down")
BAD = UnusableResponse("bad")
REFUSED = InputRefused("refused")


class Clock:
    def __init__(self) -> None:
        self.now = 1_000.0

    def __call__(self) -> float:
        return self.now


def after(*steps: tuple[Any, ...]) -> tuple[Breaker, Clock]:
    """A breaker to which all this has happened: ("ok", n), ("fail", problem, n), ("wait", s), ("permit", n, got)."""
    clock = Clock()
    breaker = Breaker(clock=clock)
    for step in steps:
        match step:
            case ("ok", items):
                breaker.succeeded(items)
            case ("fail", problem, items):
                breaker.failed(problem, items)
            case ("wait", seconds):
                clock.now += seconds
            case ("permit", wanted, given_items):
                assert breaker.permit(wanted) == given_items
            case _:
                raise AssertionError(step)
    return breaker, clock


OPEN = ("fail", BAD, 30)


@pytest.mark.parametrize(
    ("steps", "state"),
    [
        ([], "closed"),
        ([("permit", 100, 100)], "closed"),
        ([("fail", BAD, 29)], "closed"),
        ([("fail", BAD, 30)], "open"),
        ([("ok", 18), ("fail", BAD, 12)], "closed"),
        ([("ok", 17), ("fail", BAD, 13)], "open"),
        ([("fail", BAD, 12), ("ok", 18)], "closed"),
        ([("fail", BAD, 29), ("wait", 301), ("fail", BAD, 29)], "closed"),
        ([("fail", BAD, 15), ("wait", 290), ("fail", BAD, 15)], "open"),
        ([("ok", 1000), ("wait", 301), ("fail", BAD, 30)], "open"),
        ([*[("fail", DOWN, 1)] * 4], "closed"),
        ([*[("fail", DOWN, 1)] * 5], "open"),
        ([*[("fail", DOWN, 1)] * 4, ("ok", 1), ("fail", DOWN, 1)], "closed"),
        ([*[("fail", DOWN, 1)] * 4, ("fail", REFUSED, 1), ("fail", DOWN, 1)], "closed"),
        ([*[("fail", BAD, 1)] * 10], "closed"),
        ([*[("fail", REFUSED, 1)] * 100], "closed"),
        ([OPEN, ("permit", 10, 0), ("wait", 119), ("permit", 10, 0)], "open"),
        ([OPEN, ("wait", 120), ("permit", 10, 3)], "half_open"),
        ([OPEN, ("wait", 120), ("permit", 2, 2), ("permit", 10, 0)], "half_open"),
        ([OPEN, ("wait", 120), ("permit", 0, 0)], "open"),
        ([OPEN, ("wait", 120), ("permit", 3, 3), ("ok", 3), ("permit", 99, 99)], "closed"),
        ([OPEN, ("wait", 120), ("permit", 3, 3), ("ok", 3), ("fail", BAD, 29)], "closed"),
        ([OPEN, ("wait", 120), ("permit", 3, 3), ("fail", REFUSED, 3)], "closed"),
        ([OPEN, ("wait", 120), ("permit", 3, 3), ("fail", DOWN, 3), ("wait", 119), ("permit", 3, 0)], "open"),
        ([OPEN, ("wait", 120), ("permit", 3, 3), ("fail", DOWN, 3), ("wait", 120), ("permit", 3, 3)], "half_open"),
        # Whoever asked carefully has never come back: somebody else may.
        ([OPEN, ("wait", 120), ("permit", 3, 3), ("wait", 120), ("permit", 3, 3)], "half_open"),
        # Answers to what was sent before it opened neither close it nor put the probe off.
        ([OPEN, ("ok", 5)], "open"),
        ([OPEN, ("wait", 60), ("fail", DOWN, 5), ("wait", 60), ("permit", 3, 3)], "half_open"),
    ],
)
def test_state_after_events(steps: list[tuple[Any, ...]], state: str) -> None:
    breaker, _ = after(*steps)
    assert breaker.state == state


def test_a_wrong_setting_opens_it_too() -> None:
    breaker, _ = after(("fail", ProviderMisconfigured("key"), 30))
    assert breaker.state == "open"


def test_it_returns_the_seconds_until_the_probe() -> None:
    breaker, clock = after()
    assert breaker.seconds_until_probe == 0
    breaker.failed(BAD, 30)
    clock.now += 20
    assert breaker.seconds_until_probe == 100
    clock.now += 500
    assert breaker.seconds_until_probe == 0


problems = st.sampled_from([DOWN, BAD, REFUSED])
# In steps of a slice, so that a plain list of what happened forgets at the same moment as the slices do.
moves = st.one_of(
    st.tuples(st.just("ok"), st.integers(1, 20)),
    st.tuples(st.just("fail"), problems, st.integers(1, 20)),
    st.tuples(st.just("wait"), st.integers(1, 30).map(lambda slices: slices * 5.0)),
    st.tuples(st.just("permit"), st.integers(0, 50)),
)


class Plain:
    """The same rules over a list of everything that ever happened."""

    def __init__(self) -> None:
        self.state = "closed"
        self.asked_at = 0.0
        self.ended: list[tuple[float, int, int]] = []
        self.downs = 0

    def end(self, now: float, problem: ProviderError | None, items: int) -> None:
        well = problem is None or isinstance(problem, InputRefused)
        if self.state == "half_open":
            self.__init__()
            if not well:
                self.state, self.asked_at = "open", now
        elif self.state == "closed":
            self.ended.append((now, items if well else 0, 0 if well else items))
            self.downs = self.downs + 1 if isinstance(problem, ProviderDown) else 0
            recent = [(good, bad) for moment, good, bad in self.ended if moment > now - 300]
            good, bad = (sum(column) for column in zip(*recent, strict=True))
            if not well and (self.downs == 5 or (good + bad >= 30 and bad / (good + bad) > 0.4)):
                self.state, self.asked_at = "open", now

    def permit(self, now: float, wanted: int) -> int:
        if self.state == "closed" or wanted == 0:
            return wanted
        if now - self.asked_at < 120:
            return 0
        self.state, self.asked_at = "half_open", now
        return min(wanted, 3)


@given(st.lists(moves, max_size=60))
def test_it_agrees_with_the_reference_model(steps: list[tuple[Any, ...]]) -> None:
    breaker, clock = after()
    plain = Plain()
    for step in steps:
        match step:
            case ("ok", items):
                breaker.succeeded(items)
                plain.end(clock.now, None, items)
            case ("fail", problem, items):
                breaker.failed(problem, items)
                plain.end(clock.now, problem, items)
            case ("wait", seconds):
                clock.now += seconds
            case (_, wanted):
                assert breaker.permit(wanted) == plain.permit(clock.now, wanted)
        assert breaker.state == plain.state
