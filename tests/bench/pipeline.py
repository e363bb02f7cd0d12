"""Benches of the pipeline: notes through extraction and write, with a model that answers at once."""

import secrets
import statistics
import time

import httpx
import psycopg

from tests.bench.measure import Figure
from tests.conftest import Tenancy, TestDatabase
from tests.pipeline.conftest import worker_process
from tests.pipeline.model_server import Asked, decision, extraction, model_server
from tests.service import start_service

NOTES = 600
OPEN = """
    SELECT count(*) FROM jobs
    WHERE tenant_id = 'mill' AND kind IN ('extract', 'graph_link') AND status IN ('pending', 'leased')"""


def _answer(asked: Asked) -> str:
    """One statement and one relation of every note; both new."""
    if asked.is_decision:
        return decision("ADD")
    bird, tree = asked.said.rstrip(".").split()[-3::2]
    triple = {"source": bird, "relationship": "sits_in", "target": tree, "confidence": 0.9}
    return extraction(f"The bird {bird} was seen in the tree {tree}.", entities=[triple])


def pipeline(database: TestDatabase, *, rounds: int) -> list[Figure]:
    """Notes a second from stored to extracted, derived and linked: the median of rounds, one worker process."""
    tenancy = Tenancy(database)
    tenancy.tenant("mill")
    agent = {"Authorization": f"Bearer {tenancy.key('mill', agent_id='robin', rate_limits={'write': 0})}"}
    admin = {"Authorization": f"Bearer {tenancy.key('mill', kind='admin', project_id='default')}"}
    settings = {"enabled": True, "graph_enabled": True, "extraction_model": "instant"}
    rates: list[float] = []
    with (
        model_server() as models,
        start_service(database.url("app"), LOG_LEVEL="error") as service,
        worker_process(database, models, LEASE_SECONDS="30", POLL_SECONDS="1"),
        psycopg.connect(database.superuser, autocommit=True) as connection,
    ):
        models.scripts["instant"] = _answer
        httpx.put(f"{service.url}/v1/projects/default/settings", json=settings, headers=admin).raise_for_status()
        for number in range(rounds + 1):
            notes = [{"content": f"I saw {secrets.token_hex(4)} in {secrets.token_hex(4)}."} for _ in range(NOTES)]
            started = time.perf_counter()
            httpx.post(
                f"{service.url}/v1/notes/batch", json={"notes": notes}, headers=agent, timeout=60
            ).raise_for_status()
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
