"""The measures themselves, by hand."""

from math import log2

import pytest

from tests.eval.data import Corpus, Question, first_questions
from tests.eval.metrics import ndcg_at, recall_at, reciprocal_rank

FOUND = ["a", "b", "c", "d", "e"]


def test_recall_is_the_share_that_was_found_so_far() -> None:
    gold = {"b", "e", "x"}
    assert recall_at(FOUND, gold, 1) == 0
    assert recall_at(FOUND, gold, 2) == pytest.approx(1 / 3)
    assert recall_at(FOUND, gold, 5) == pytest.approx(2 / 3)
    assert recall_at([], gold, 5) == 0


def test_what_stands_there_twice_counts_once() -> None:
    assert recall_at(["b", "b"], {"b", "c"}, 2) == 0.5


def test_reciprocal_rank_is_that_of_the_first() -> None:
    assert reciprocal_rank(FOUND, {"a"}) == 1
    assert reciprocal_rank(FOUND, {"d", "c"}) == pytest.approx(1 / 3)
    assert reciprocal_rank(FOUND, {"x"}) == 0


def test_ndcg_of_the_best_order_is_one() -> None:
    assert ndcg_at(FOUND, {"a", "b"}, 10) == pytest.approx(1)
    assert ndcg_at(FOUND, {"a"}, 1) == pytest.approx(1)
    # No more can stand among the first three than three.
    assert ndcg_at(FOUND, set(FOUND), 3) == pytest.approx(1)


def test_ndcg_discounts_by_the_place() -> None:
    assert ndcg_at(FOUND, {"c"}, 10) == pytest.approx(1 / log2(4))
    assert ndcg_at(FOUND, {"a", "c"}, 10) == pytest.approx((1 + 1 / log2(4)) / (1 + 1 / log2(3)))
    assert ndcg_at(FOUND, {"c"}, 2) == 0


def test_a_limit_is_shared_among_the_projects() -> None:
    questions = [Question(str(number), frozenset("a")) for number in range(5)]
    corpora = [Corpus(name, {}, questions) for name in ("one", "other")]
    assert [len(corpus.questions) for corpus in first_questions(corpora, 5)] == [3, 2]
    assert first_questions(corpora, None) == corpora
