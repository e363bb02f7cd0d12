"""PIPELINE, Worker Model and Provider Abstraction: slow, failing and lying models, spent budgets, killed workers."""

import random
import socket
import threading
import time
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import httpx
import psycopg
import pytest

from tests.conftest import Tenancy, TestDatabase
from tests.extraction.conftest import ENDED, Project, worker_process
from tests.extraction.model_server import Asked, ModelServer, Reply, decision, extraction, model_server
from tests.long import sized
from tests.service import start_service

HERON = "The heron nests in the old willow."


def test_provider_a_failing_server_is_tried_again_and_then_left(project: Project) -> None:
    project.script(lambda _: Reply("x" * 500, status=500))
    made = project.agent.post("/v1/notes", json={"content": "Nobody can read this."}).json()
    job = project.job(made["job_id"])
    assert (job["status"], job["attempts"]) == ("dead", 3)
    assert len(project.asked()) == 3
    assert job["last_error"].startswith("provider_down: ollama answered 500. It said: ")
    assert job["last_error"].count("x") == 200 - len('{"error": "')
    note = project.agent.get(f"/v1/notes/{made['note']['note_id']}").json()
    assert (note["extraction_status"], note["content"]) == ("failed", "Nobody can read this.")


def test_provider_worker_max_retries_is_the_projects(make_project: Callable[..., Project]) -> None:
    project = make_project(worker_max_retries=1)
    project.script(lambda _: Reply(status=503))
    made = project.agent.post("/v1/notes", json={"content": "Nobody can read this."}).json()
    assert project.job(made["job_id"])["attempts"] == 1


@pytest.mark.parametrize(
    "fault",
    [Reply(status=429, headers={"retry-after": "1"}), Reply(hang_up=True), Reply(raw=b"<html>"), Reply(status=500)],
)
def test_provider_what_passes_is_got_over(project: Project, fault: Reply) -> None:
    left = [fault]
    project.script(lambda asked: left.pop() if left else Reply(extraction(HERON)))
    made = project.say("Somebody reads this in the end.")
    assert made["note"]["extraction_status"] == "completed"
    assert len(project.derived()) == 1
    assert project.job(made["job_id"])["attempts"] == 2


def test_provider_that_cannot_be_reached_is_waited_for(fresh_database: TestDatabase, models: ModelServer) -> None:
    tenancy = Tenancy(fresh_database)
    tenancy.tenant("t")
    admin = {"Authorization": f"Bearer {tenancy.key('t', kind='admin', project_id='default')}"}
    agent = {"Authorization": f"Bearer {tenancy.key('t', agent_id='robin')}"}
    with socket.socket() as taken:
        # Bound and not listening: connections are refused.
        taken.bind(("127.0.0.1", 0))
        port = taken.getsockname()[1]
        with (
            start_service(fresh_database.url("app"), LOG_LEVEL="error") as service,
            worker_process(fresh_database, models, OLLAMA_URL=f"http://me:secret@127.0.0.1:{port}"),
            httpx.Client(base_url=service.url, verify=False, timeout=30) as client,
        ):
            settings = {"enabled": True, "worker_max_retries": 1}
            assert client.put("/v1/projects/default/settings", json=settings, headers=admin).status_code == 200
            said = {"content": "Nobody is there to read this."}
            path = f"/v1/jobs/{client.post('/v1/notes', json=said, headers=agent).json()['job_id']}"
            deadline = time.monotonic() + 60
            while (job := client.get(path, headers=agent).json())["last_error"] is None:
                assert time.monotonic() < deadline, job
                time.sleep(0.05)
    assert (job["status"], job["attempts"]) == ("pending", 0)
    assert job["last_error"] == f"provider_down: ollama at http://127.0.0.1:{port} cannot be reached (ConnectError)."


def test_provider_what_is_refused_is_not_asked_again(project: Project) -> None:
    project.script(lambda _: Reply("too long for this model", status=400))
    made = project.agent.post("/v1/notes", json={"content": "Nobody will read this."}).json()
    job = project.job(made["job_id"])
    assert (job["status"], job["attempts"]) == ("failed", 1)
    assert "too long for this model" in job["last_error"]
    assert project.agent.get(f"/v1/notes/{made['note']['note_id']}").json()["extraction_status"] == "failed"


def test_provider_a_slow_model_is_given_up_after_extraction_timeout(make_project: Callable[..., Project]) -> None:
    project = make_project(extraction_timeout=5000, worker_max_retries=1)
    project.script(lambda _: Reply(extraction(HERON), delay=8))
    made = project.agent.post("/v1/notes", json={"content": "A model takes its time."}).json()
    job = project.job(made["job_id"])
    assert job["status"] == "dead"
    assert job["last_error"] == "provider_down: ollama did not answer within 5 s."


def test_provider_a_job_that_failed_can_be_tried_again(make_project: Callable[..., Project]) -> None:
    project = make_project(worker_max_retries=1)
    left = [Reply(status=500)]
    project.script(lambda _: left.pop() if left else Reply(extraction(HERON)))
    made = project.agent.post("/v1/notes", json={"content": "Read at the second try."}).json()
    assert project.job(made["job_id"])["status"] == "dead"
    again = project.agent.post(f"/v1/jobs/{made['job_id']}/retry")
    assert again.status_code == 200
    assert project.job(made["job_id"])["status"] == "completed"
    assert project.agent.get(f"/v1/notes/{made['note']['note_id']}").json()["extraction_status"] == "completed"


def test_extraction_garbage_fails_the_attempt_and_is_tried_again(make_project: Callable[..., Project]) -> None:
    project = make_project(worker_max_retries=2)
    left = ["I would rather not."]
    project.script(lambda _: left.pop() if left else extraction(HERON))
    made = project.say("A model does not want to read this at first.")
    job = project.job(made["job_id"])
    assert (job["status"], job["attempts"], len(project.derived())) == ("completed", 2, 1)
    project.script(lambda _: '{"facts": "none of your business"}')
    refused = project.agent.post("/v1/notes", json={"content": "A model never reads this."}).json()
    job = project.job(refused["job_id"])
    assert (job["status"], job["attempts"]) == ("dead", 2)
    assert job["last_error"].startswith("provider_answer_unusable: ")
    assert "facts: not a list" in job["last_error"]
    note = project.agent.get(f"/v1/notes/{refused['note']['note_id']}").json()
    assert note["extraction_status"] == "failed"


def test_extraction_reads_the_json_of_careless_models(project: Project) -> None:
    project.script(
        lambda _: '```json\n{"facts": [{"content": "' + HERON + '", "type": "fact", "confidence": 0.9,},],}\n```'
    )
    made = project.say("A model puts a comma everywhere.")
    assert project.job(made["job_id"])["result"]["warnings"] == []
    assert [note["content"] for note in project.derived()] == [HERON]


def test_extraction_a_decision_that_cannot_be_read_is_not_lost(make_project: Callable[..., Project]) -> None:
    project = make_project(worker_max_retries=2)
    project.script(lambda _: extraction(HERON))
    project.say("Somebody tells of a heron.")
    left = ["Hm."]

    def script(asked: Asked) -> str:
        if asked.is_decision:
            return left.pop() if left else decision("ADD")
        return extraction("The heron nests in the old willow again.")

    project.script(script)
    job = project.job(project.say("Somebody tells of a heron again.")["job_id"])
    assert (job["status"], job["attempts"]) == ("completed", 2)
    assert job["result"]["outcomes"]


def test_extraction_of_a_trivial_note_asks_no_model(project: Project) -> None:
    project.script(lambda _: extraction(HERON))
    for content in ("ok", "Hello", "Thanks!", "Ok, thank you very much \u200b"):
        made = project.say(content)
        assert project.job(made["job_id"])["result"] == {"skipped": "trivial_note"}
        assert made["note"]["extraction_status"] == "none"
    assert project.asked() == []


def test_an_empty_answer_is_no_answer(make_project: Callable[..., Project]) -> None:
    project = make_project(worker_max_retries=2)
    left = [Reply("")]
    project.script(lambda _: left.pop() if left else Reply(extraction(HERON)))
    made = project.say("The model is silent at first.")
    assert project.job(made["job_id"])["attempts"] == 2
    assert len(project.derived()) == 1


def test_a_note_that_was_deleted_before_it_was_read_is_read_when_it_comes_back(project: Project) -> None:
    project.script(lambda asked: Reply(extraction(f"It says: {asked.said}"), delay=0.7))
    made = project.agent.post("/v1/notes", json={"content": "Here and gone and here."}).json()
    path = f"/v1/notes/{made['note']['note_id']}"
    assert project.agent.delete(path, params={"reason": "a mistake"}).status_code == 204
    assert project.job(made["job_id"])["result"] == {"skipped": "note_gone"}
    assert project.derived() == []
    back = project.agent.post(f"{path}/recover", json={"reason": "no mistake"})
    assert back.json()["note"]["extraction_status"] == "pending"
    deadline = time.monotonic() + 60
    while not project.derived():
        assert time.monotonic() < deadline
        time.sleep(0.05)


def test_a_poisoned_note_starves_nobody(make_project: Callable[..., Project]) -> None:
    project = make_project(extraction_timeout=5000, worker_max_retries=1)

    def script(asked: Asked) -> Reply:
        return Reply(delay=6) if "poison" in asked.said else Reply(extraction(f"It says: {asked.said}"))

    project.script(script)
    bad = project.agent.post("/v1/notes", json={"content": "This one is poison."}).json()
    started = time.monotonic()
    assert project.say("This one is harmless.")["note"]["extraction_status"] == "completed"
    assert time.monotonic() - started < 4
    assert project.job(bad["job_id"])["status"] == "dead"


def test_a_write_that_waits_no_longer_answers_with_the_job(project: Project) -> None:
    answered = threading.Event()

    def script(_: Asked) -> Reply:
        # Not before the write was answered, however long that takes.
        assert answered.wait(60)
        return Reply(extraction(HERON))

    project.script(script)
    started = time.monotonic()
    made = project.say("It takes longer than anybody waits.", wait=0.5)
    answered.set()
    assert time.monotonic() - started > 0.4
    assert made["note"]["extraction_status"] == "pending"
    assert project.job(made["job_id"])["status"] == "completed"
    refused = project.agent.post("/v1/notes", params={"wait": "forever"}, json={"content": "x"})
    assert refused.status_code == 400


def test_tokens_are_counted_for_each_job_and_for_the_project(project: Project) -> None:
    def script(asked: Asked) -> Reply:
        if asked.is_decision:
            return Reply(decision("NONE"), tokens=(7, 3))
        return Reply(extraction(HERON), tokens=(100, 20))

    project.script(script)
    first = project.say("The first words about a heron.")
    second = project.say("The heron nests where an old willow stands.")
    usage = [project.job(made["job_id"])["result"]["usage"] for made in (first, second)]
    assert usage == [
        {"calls": 1, "input_tokens": 100, "output_tokens": 20},
        {"calls": 2, "input_tokens": 107, "output_tokens": 23},
    ]
    shown = project.admin.get("/v1/usage").json()
    assert (shown["spent"], shown["budget"], shown["period"]) == (250, None, "month")
    (day,) = shown["usage"]
    assert {name: day[name] for name in ("calls", "failures", "input_tokens", "output_tokens")} == {
        "calls": 3, "failures": 0, "input_tokens": 207, "output_tokens": 43,
    }  # fmt: skip
    assert project.agent.get("/v1/usage").status_code == 403


def test_a_spent_budget_stops_extraction_and_not_writing(make_project: Callable[..., Project]) -> None:
    project = make_project(extraction_token_budget=100)
    project.script(lambda asked: Reply(extraction(f"It says: {asked.said}"), tokens=(90, 20)))
    assert project.say("The first one is read.")["note"]["extraction_status"] == "completed"
    second = project.say("The second one is not.")
    assert second["note"]["extraction_status"] == "failed"
    job = project.job(second["job_id"])
    assert job["status"] == "failed"
    assert job["last_error"].startswith("token_budget_spent: ")
    assert len(project.asked()) == 1
    project.set(extraction_token_budget=1000)
    project.agent.post(f"/v1/jobs/{second['job_id']}/retry")
    assert project.job(second["job_id"])["status"] == "completed"


MODEL_SECONDS = sized(5, 10)


def test_no_model_call_inside_a_transaction(project: Project) -> None:
    """A model that takes many seconds: no transaction is open meanwhile, and other writers are not disturbed."""
    slow = threading.Event()

    def script(asked: Asked) -> Reply:
        if "slow" in asked.said or "Slow" in asked.said:
            slow.set()
            said = decision("ADD") if asked.is_decision else extraction("Slow words were said.")
            return Reply(said, delay=MODEL_SECONDS)
        return Reply(extraction())

    project.script(script)
    held = project.agent.post("/v1/notes", json={"content": "Words for a slow model."}).json()
    assert slow.wait(30)
    asked_at = time.monotonic()
    time.sleep(0.3)
    open_seconds: list[float] = []
    write_seconds: list[float] = []
    with psycopg.connect(project.tenancy.database.superuser, autocommit=True) as connection:
        while time.monotonic() - asked_at < 0.6 * MODEL_SECONDS:
            number = len(write_seconds)
            started = time.monotonic()
            body = {"content": f"Somebody else writes number {number}.", "type": "document_chunk"}
            assert project.agent.post("/v1/notes", json=body).status_code == 201
            write_seconds.append(time.monotonic() - started)
            rows = connection.execute(
                "SELECT extract(epoch FROM clock_timestamp() - xact_start)::float8 FROM pg_stat_activity "
                "WHERE datname = current_database() AND pid <> pg_backend_pid() AND xact_start IS NOT NULL "
                "AND backend_type = 'client backend'"
            ).fetchall()
            open_seconds += [row[0] for row in rows]
            time.sleep(0.15)
    assert project.models.in_flight > 0, "the model was done before we had looked"
    # Whatever is open at a moment is somebody's write, not somebody who waits.
    assert max(open_seconds, default=0.0) < 2.0
    assert sorted(write_seconds)[len(write_seconds) // 2] < 1.0
    assert project.job(held["job_id"])["status"] == "completed"


NOTES = sized(60, 200)
KILLS = sized(8, 50)
OPEN = """
    SELECT count(*) FROM jobs WHERE kind IN ('extract', 'graph_link') AND status = ANY (%s)"""


@pytest.mark.slow
def test_a_worker_killed_at_many_moments_loses_and_doubles_nothing(fresh_database: TestDatabase) -> None:
    """kill -9 at random moments while notes are processed: each ends with a reason, each derived note once."""
    chance = random.Random(7)
    tenancy = Tenancy(fresh_database)
    tenancy.tenant("fen")
    agent = {"Authorization": f"Bearer {tenancy.key('fen', agent_id='robin', rate_limits={'write': 0})}"}
    admin = {"Authorization": f"Bearer {tenancy.key('fen', kind='admin', project_id='default')}"}

    def script(asked: Asked) -> Reply:
        if asked.is_decision:
            return Reply(decision("ADD"))
        number = asked.said.rstrip(".").split()[-1]
        triple = {"source": f"bird {number}", "relationship": "sits_in", "target": f"tree {number}", "confidence": 0.9}
        said = extraction(f"Bird {number} sits in tree {number}.", entities=[triple])
        return Reply(said, delay=0.4 if kills < KILLS else 0.0)

    kills = 0
    working_moments = 0
    variables = {"LEASE_SECONDS": "1", "WORKER_CONCURRENCY": "3"}
    with (
        model_server() as models,
        start_service(fresh_database.url("app"), LOG_LEVEL="error") as service,
        psycopg.connect(fresh_database.superuser, autocommit=True) as connection,
    ):
        # Each worker would load the model of vectors anew, only to be killed with it.
        connection.execute("DELETE FROM embedding_models")
        models.scripts["quick"] = script
        settings = {"enabled": True, "graph_enabled": True, "extraction_model": "quick", "worker_max_retries": 10}
        httpx.put(f"{service.url}/v1/projects/default/settings", json=settings, headers=admin).raise_for_status()
        notes = [{"content": f"I saw a bird with the number {number}."} for number in range(NOTES)]
        httpx.post(f"{service.url}/v1/notes/batch", json={"notes": notes}, headers=agent).raise_for_status()

        def count(*statuses: str) -> int:
            row = connection.execute(OPEN.encode(), (list(statuses),)).fetchone()
            assert row is not None
            return row[0]

        def kill(_: int) -> bool:
            with worker_process(fresh_database, models, **variables):
                asked = len(models.asked)
                deadline = time.monotonic() + 60
                while len(models.asked) == asked and time.monotonic() < deadline:
                    time.sleep(0.01)
                time.sleep(chance.uniform(0.0, 0.9))
                return models.in_flight > 0

        with ThreadPoolExecutor(2) as pool:
            while kills < KILLS:
                working_moments += sum(pool.map(kill, range(2)))
                kills += 2
        assert working_moments > KILLS / 2, "most of them were killed at work"
        with worker_process(fresh_database, models, **variables):
            deadline = time.monotonic() + 120
            while count("pending", "leased"):
                assert time.monotonic() < deadline, "jobs are stuck"
                time.sleep(0.2)
        said = connection.execute("SELECT extraction_status FROM memory_notes WHERE derived_from IS NULL").fetchall()
        statuses: Counter[Any] = Counter(status for (status,) in said)
        assert statuses.keys() <= {"completed", "failed"}, statuses
        assert sum(statuses.values()) == NOTES
        assert statuses["completed"] >= NOTES / 2, statuses
        ends = connection.execute(
            "SELECT kind, status, last_error FROM jobs WHERE kind IN ('extract', 'graph_link')"
        ).fetchall()
        assert all(status in ENDED for _, status, _ in ends)
        assert all(error for _, status, error in ends if status in ("failed", "dead"))
        derived = connection.execute("SELECT content FROM memory_notes WHERE derived_from IS NOT NULL").fetchall()
        assert len(derived) == len(set(derived)) == statuses["completed"]
        facts = connection.execute("SELECT mentions FROM graph_facts").fetchall()
        assert len(facts) == sum((kind, status) == ("graph_link", "completed") for kind, status, _ in ends)
        assert set(facts) == {(1,)}
        kept = connection.execute("SELECT count(*) FROM memory_history WHERE proposal IS NOT NULL").fetchone()
        assert kept == (statuses["completed"],)
