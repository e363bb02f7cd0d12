"""Benches of the pipeline: notes through extraction and write, with a model that answers at once."""

import os
import statistics
import time
from contextlib import ExitStack

import httpx
import psycopg

from tests.bench.archive import Language
from tests.bench.measure import Figure
from tests.conftest import Tenancy, TestDatabase
from tests.extraction.conftest import worker_process
from tests.extraction.model_server import Asked, decision, extraction, model_server
from tests.service import start_service

NOTES = 400
OPEN = """
    SELECT count(*) FROM jobs
    WHERE tenant_id = 'mill' AND kind IN ('extract', 'graph_link') AND status IN ('pending', 'leased')"""


def _answer(asked: Asked) -> str:
    """One statement and one relation of every note; both new."""
    if asked.is_decision:
        return decision("ADD")
    one, _, other = asked.said.rstrip(".").partition(" lives with ")
    triple = {"source": one, "relationship": "lives_with", "target": other, "confidence": 0.9}
    return extraction(f"It was said that {one} lives with {other}.", entities=[triple])


def _pairs(language: Language, number: int) -> list[tuple[str, str]]:
    names = language.names(2 * NOTES * (number + 1))[2 * NOTES * number :]
    return list(zip(names[:NOTES], names[NOTES:], strict=True))


def pipeline(database: TestDatabase, *, rounds: int) -> list[Figure]:
    """Notes a second from stored to extracted, derived and linked: the median of rounds, a worker for each core."""
    tenancy = Tenancy(database)
    tenancy.tenant("mill")
    agent = {"Authorization": f"Bearer {tenancy.key('mill', agent_id='robin', rate_limits={'write': 0})}"}
    admin = {"Authorization": f"Bearer {tenancy.key('mill', kind='admin', project_id='default')}"}
    settings = {"enabled": True, "graph_enabled": True, "extraction_model": "instant"}
    rates: list[float] = []
    language = Language(1)
    with (
        model_server() as models,
        start_service(database.url("app"), LOG_LEVEL="error") as service,
        ExitStack() as workers,
        psycopg.connect(database.superuser, autocommit=True) as connection,
    ):
        models.scripts["instant"] = _answer
        for _ in range(os.cpu_count() or 1):
            workers.enter_context(worker_process(database, models, LEASE_SECONDS="30", POLL_SECONDS="1"))
        httpx.put(f"{service.url}/v1/projects/default/settings", json=settings, headers=admin).raise_for_status()
        for number in range(rounds + 1):
            notes = [{"content": f"{bird} lives with {tree}."} for bird, tree in _pairs(language, number)]
            httpx.post(
                f"{service.url}/v1/notes/batch", json={"notes": notes}, headers=agent, timeout=60
            ).raise_for_status()
            # They are stored; from here on it is the pipeline's turn.
            started = time.perf_counter()
            while (row := connection.execute(OPEN.encode()).fetchone()) and row[0]:
                time.sleep(0.05)
            if number:
                rates.append(NOTES / (time.perf_counter() - started))
        derived = connection.execute(
            "SELECT count(*) FROM memory_notes WHERE tenant_id = 'mill' AND derived_from IS NOT NULL"
        ).fetchone()
        assert derived == (NOTES * (rounds + 1),), derived
    return [
        Figure(name="notes extracted, derived and linked", value=statistics.median(rates), unit="notes/s", target=50)
    ]
