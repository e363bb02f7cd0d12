"""A small evaluation: the first conversation and thirty questions about it, if the public data is there."""

import pytest

from tests.conftest import TestDatabase
from tests.eval.asking import DEFAULT, WAYS, ask_all, evaluated_service, stored
from tests.eval.data import FOLDER, first_questions, read_locomo

pytestmark = pytest.mark.slow
QUESTIONS = 30


@pytest.mark.skipif(not FOLDER.is_dir(), reason="the public data is not beside the project, in ../shared/eval")
def test_channels_together_find_no_less_than_each_alone(database: TestDatabase) -> None:
    corpora = first_questions(read_locomo()[:1], QUESTIONS)
    with evaluated_service(database) as url, stored(database, url, "locomo", corpora) as projects:
        answers = ask_all(projects, {way: WAYS[way] for way in (DEFAULT, "lexical alone", "vector alone")})
    together, words, meaning = (told.value("recall@10") for told in answers.values())
    # Thirty questions are few: words alone may find as much.
    assert together >= words
    assert together > meaning
    assert together > 0.6
    assert len(answers[DEFAULT].found) == QUESTIONS
