"""How far a source is trusted, by what its facts came to."""

from datetime import timedelta

import pytest

from app.retrieval.trust import Record, judge_history


@pytest.mark.parametrize(
    ("record", "worth"),
    [
        (Record(), 0.5),
        (Record(facts=1_000, known_for=timedelta(days=1_000)), 1.0),
        (Record(facts=1_000), 0.7),
        (Record(facts=10, failures=10), 0.3),
        (Record(facts=1_000, known_for=timedelta(days=1_000), blocklisted=True), 0.0),
    ],
    ids=["unknown", "proven", "known", "failing", "blocklisted"],
)
def test_history_is_judged_by_its_worst_mark_first(record: Record, worth: float) -> None:
    assert judge_history(record) == worth
