"""Notes stored and questions asked through the service, and what its answers are worth."""

import re
import statistics
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import httpx
import psycopg

from tests.conftest import Tenancy, TestDatabase
from tests.eval.data import Corpus, Question
from tests.eval.metrics import ndcg_at, recall_at, reciprocal_rank
from tests.service import spawn, start_service, stop

BATCH = 500
DEPTH = 20
# By score alone, notes alone, and room for all that are counted.
ASKED: dict[str, Any] = {
    "include": ["notes"],
    "lambda_mmr": 1,
    "max_results": DEPTH,
    "token_budget": 200_000,
}
DEFAULT = "recall"
WAYS: dict[str, dict[str, Any]] = {
    DEFAULT: {},
    "lexical alone": {"weights": {"lexical": 1}},
    "vector alone": {"weights": {"vector": 1}},
    "recall by rrf": {"fusion": "rrf"},
}
Metric = Callable[[list[str], frozenset[str]], float]
METRICS: dict[str, Metric] = {
    "recall@5": lambda found, gold: recall_at(found, gold, 5),
    "recall@10": lambda found, gold: recall_at(found, gold, 10),
    "recall@20": lambda found, gold: recall_at(found, gold, 20),
    "MRR": reciprocal_rank,
    "NDCG@10": lambda found, gold: ndcg_at(found, gold, 10),
}
# What waits to be embedded, and whether a worker is still at it.
UNDONE = """
    SELECT (SELECT count(*) FROM embedding_queue)
         + (SELECT count(*) FROM jobs WHERE kind = 'embed' AND status IN ('pending', 'leased'))"""


@dataclass
class Answers:
    """What one way of asking found, question by question."""

    found: list[tuple[Question, list[str]]] = field(default_factory=list)
    seconds: list[float] = field(default_factory=list)

    def value(self, metric: str, category: str | None = None) -> float:
        """The mean over all questions, or those of one category."""
        measure = METRICS[metric]
        return statistics.mean(
            measure(found, question.gold) for question, found in self.found if category in (None, question.category)
        )


@contextmanager
def evaluated_service(database: TestDatabase) -> Iterator[str]:
    """The service and a worker, as processes of their own."""
    with TemporaryDirectory() as folder, start_service(database.url("app"), LOG_LEVEL="warning") as service:
        log = Path(folder) / "worker"
        worker = spawn("worker", log=log, DATABASE_URL=database.url("app"), POLL_SECONDS="0.2", LOG_LEVEL="warning")
        try:
            yield service.url
        finally:
            stop(worker)


class Project:
    """One corpus in a project of its own."""

    def __init__(self, url: str, key: str, corpus: Corpus) -> None:
        self._client = httpx.Client(base_url=url, headers={"Authorization": f"Bearer {key}"}, timeout=120, verify=False)
        self.corpus = corpus
        self._names: dict[str, str] = {}

    def close(self) -> None:
        self._client.close()

    def store(self) -> None:
        """Stores its notes."""
        names = list(self.corpus.notes)
        for start in range(0, len(names), BATCH):
            batch = names[start : start + BATCH]
            answer = self._client.post("/v1/notes/batch", json={"notes": [self.corpus.notes[name] for name in batch]})
            assert answer.status_code == 200, answer.text
            for name, result in zip(batch, answer.json()["results"], strict=True):
                # Two passages may say the same: the note goes by the name of the first.
                self._names.setdefault(result["note"]["note_id"], name)

    def ask(self, question: str, **way: Any) -> tuple[list[str], float]:
        """The names of what is recalled, in order, and how long it took."""
        started = time.perf_counter()
        answer = self._client.post("/v1/recall", json={**ASKED, "query": question, **way})
        seconds = time.perf_counter() - started
        assert answer.status_code == 200, answer.text
        said = answer.json()
        assert not said["meta"]["degraded"], "every channel that was asked for took part"
        return [self._names[result["id"]] for result in said["results"]], seconds


@contextmanager
def stored(database: TestDatabase, url: str, name: str, corpora: list[Corpus]) -> Iterator[list[Project]]:
    """All of one set, each corpus a project of one tenant, stored and embedded."""
    tenancy = Tenancy(database)
    tenancy.tenant(name, *(corpus.name for corpus in corpora))
    projects = [
        Project(url, tenancy.key(name, project_id=corpus.name, rate_limits={"read": 0, "write": 0}), corpus)
        for corpus in corpora
    ]
    try:
        for project in projects:
            project.store()
        await_vectors(database)
        yield projects
    finally:
        for project in projects:
            project.close()


def await_vectors(database: TestDatabase, *, seconds: float = 3600) -> None:
    """Returns once everything has its vector."""
    deadline = time.monotonic() + seconds
    with psycopg.connect(database.superuser, autocommit=True) as connection:
        while True:
            row = connection.execute(UNDONE.encode()).fetchone()
            assert row is not None
            if not row[0]:
                break
            assert time.monotonic() < deadline, f"{row[0]} still wait to be embedded"
            time.sleep(0.5)
        # What autovacuum does within its first minutes.
        connection.execute("ANALYZE")


def ask_all(projects: list[Project], ways: dict[str, dict[str, Any]]) -> dict[str, Answers]:
    """Every question in every way."""
    answers = {way: Answers() for way in ways}
    for project in projects:
        for question in project.corpus.questions:
            for way, extra in ways.items():
                found, seconds = project.ask(question.text, **extra)
                answers[way].found.append((question, found))
                answers[way].seconds.append(seconds)
    return answers


# How look_up_terms prunes: it looks up the rarest terms, and reads a limited number of units.
PRUNED = re.compile(r"choose_terms\(v_found\.terms, \w+, \d+\)")
READ_LIMIT = re.compile(r"v_chosen, \d+,")


@contextmanager
def without_pruning(database: TestDatabase) -> Iterator[None]:
    """Frequent terms are looked up too, for as long as this lasts."""
    with psycopg.connect(database.superuser, autocommit=True) as connection:
        row = connection.execute("SELECT pg_get_functiondef(to_regproc('look_up_terms'))").fetchone()
        assert row is not None
        usual: str = row[0]
        changed, terms = PRUNED.subn("v_found.terms", usual)
        changed, reads = READ_LIMIT.subn("v_chosen, 1000000,", changed)
        assert (terms, reads) == (1, 2), "look_up_terms prunes in another way now"
        connection.execute(changed.encode())
        try:
            yield
        finally:
            connection.execute(usual.encode())
