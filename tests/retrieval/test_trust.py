"""Trust of a source, against numbers computed by hand."""

from datetime import timedelta

import pytest

from app.retrieval.trust import Record, judge_history, judge_source

MONTH = timedelta(days=30)


@pytest.mark.parametrize(
    ("record", "expected"),
    [
        (Record(blocklisted=True, facts=500, known_for=MONTH), 0.0),
        (Record(facts=100, failures=5), 0.3),
        (Record(facts=100, failures=4), 0.7),
        (Record(facts=100, known_for=MONTH), 1.0),
        (Record(facts=99, known_for=MONTH), 0.7),
        (Record(facts=100, known_for=timedelta(days=29)), 0.7),
        (Record(facts=10), 0.7),
        (Record(facts=9), 0.5),
        (Record(), 0.5),
        (Record(facts=1_000, known_for=timedelta(days=1_000)), 1.0),
        (Record(facts=1_000), 0.7),
        (Record(facts=10, failures=10), 0.3),
        (Record(facts=1_000, known_for=timedelta(days=1_000), blocklisted=True), 0.0),
    ],
)
def test_history_is_scored_by_facts_failures_and_time(record: Record, expected: float) -> None:
    assert judge_history(record) == expected


def test_trust_is_the_weighted_sum_of_four_signals() -> None:
    best = Record(identity="signed_manifest", authority="write_token", facts=100, known_for=MONTH)
    assert judge_source(best, "enforce") == 1.0
    # .35 * .1 + .30 * .5 + .25 * .2 + .10 * .2
    assert judge_source(Record(), "off") == pytest.approx(0.255)


def test_a_blocklisted_source_has_no_trust() -> None:
    assert judge_source(Record(identity="signed_manifest", authority="admin", blocklisted=True), "warn") == 0.0
