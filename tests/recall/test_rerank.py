"""PIPELINE, Graph-Augmented Search and Optional Reranking: what is done to an order once it is made."""

import json
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import httpx
import psycopg
import pytest

from tests.conftest import Tenancy, TestDatabase
from tests.service import RunningService, start_service


@dataclass
class Reranking:
    """A reranker's server: scores by script, and all that it was asked."""

    url: str = ""
    status: int = 200
    delay: float = 0.0
    asked: list[dict[str, Any]] = field(default_factory=list)
    favourite: str = ""


@pytest.fixture(scope="module")
def reranking() -> Iterator[Reranking]:
    known = Reranking()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["content-length"])))
            known.asked.append(body)
            time.sleep(known.delay)
            scored = [
                {"index": index, "relevance_score": 1.0 if known.favourite in text else 0.1}
                for index, text in enumerate(body["documents"])
            ]
            content = json.dumps({"results": scored}).encode()
            self.send_response(known.status)
            self.send_header("content-length", str(len(content)))
            self.end_headers()
            with suppress(BrokenPipeError):
                self.wfile.write(content)

        def log_message(self, format: str, *args: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    known.url = f"http://127.0.0.1:{server.server_address[1]}/v1"
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    yield known
    server.shutdown()
    server.server_close()
    thread.join()


@pytest.fixture(scope="module")
def running(database: TestDatabase, reranking: Reranking) -> Iterator[RunningService]:
    with start_service(database.url("app"), LOG_LEVEL="error", OPENAI_BASE_URL=reranking.url) as service:
        yield service


@dataclass
class Place:
    agent: httpx.Client
    admin: httpx.Client
    tenant: str

    def set(self, **settings: Any) -> None:
        assert self.admin.put("/v1/projects/default/settings", json=settings).status_code == 200

    def say(self, content: str) -> str:
        return self.agent.post("/v1/notes", json={"content": content}).json()["note"]["note_id"]

    def recall(self, query: str, **fields: Any) -> dict[str, Any]:
        words = {"weights": {"lexical": 1}, "lambda_mmr": 1, "include": ["notes"]}
        answer = self.agent.post("/v1/recall", json={"query": query, **words, **fields})
        assert answer.status_code == 200, answer.text
        return answer.json()


@pytest.fixture
def where(tenancy: Tenancy, running: RunningService, request: pytest.FixtureRequest) -> Iterator[Place]:
    tenant = f"t{abs(hash(request.node.name)) % 10**9}"
    tenancy.tenant(tenant)
    keys = {
        "agent": tenancy.key(tenant, agent_id="robin"),
        "admin": tenancy.key(tenant, kind="admin", project_id="default"),
    }
    clients = {
        name: httpx.Client(base_url=running.url, headers={"Authorization": f"Bearer {key}"}, timeout=30, verify=False)
        for name, key in keys.items()
    }
    yield Place(**clients, tenant=tenant)
    for client in clients.values():
        client.close()


def relate(place: Place, note: str, subject: str, target: str) -> None:
    body = {"subject": subject, "predicate": "knows", "object": {"entity": target}, "evidence": [note]}
    assert place.agent.post("/v1/facts", json=body).status_code == 201


def test_graph_boost_lifts_notes_about_the_entities_of_the_query(where: Place) -> None:
    where.set(graph_enabled=True, graph_boost_weight=0.25)
    plain = where.say("The harbour of the town was busy and the harbour bell rang.")
    about = where.say("She walked along the harbour.")
    unsaid = where.say("He sold his boat in spring.")
    relate(where, about, "Alice Example", "Rome")
    relate(where, unsaid, "Rome", "Bob")
    query = "alice at the harbour"
    before = {one["note_id"]: one["score"] for one in where.recall(query)["results"]}
    assert unsaid not in before
    found = where.recall(query, graph_boost=True)
    after = {one["note_id"]: one["score"] for one in found["results"]}
    assert after[about] == pytest.approx(0.75 * before[about] + 0.25)
    assert after[plain] == pytest.approx(before[plain])
    # One edge away, and in none of the query's words.
    assert after[unsaid] == pytest.approx(0.25)
    assert found["meta"]["graph_boost"] == {"notes": 2, "timed_out": False}


def test_graph_boost_is_asked_for_and_switched_on(where: Place) -> None:
    note = where.say("She walked along the harbour.")
    relate(where, note, "Alice Example", "Rome")
    assert "graph_boost" not in where.recall("alice harbour", graph_boost=True)["meta"]
    where.set(graph_enabled=True)
    assert "graph_boost" not in where.recall("alice harbour")["meta"]
    assert where.recall("alice harbour", graph_boost=True)["meta"]["graph_boost"]["notes"] == 1


def test_graph_boost_within_its_deadline_takes_nothing_away(where: Place, database: TestDatabase) -> None:
    where.set(graph_enabled=True, graph_boost_timeout_ms=50)
    note = where.say("She walked along the harbour.")
    relate(where, note, "Alice Example", "Rome")
    with psycopg.connect(database.superuser) as held:
        # Whoever reads mentions waits.
        held.execute("LOCK TABLE note_entity_mentions IN ACCESS EXCLUSIVE MODE")
        started = time.monotonic()
        found = where.recall("alice harbour", graph_boost=True)
        assert time.monotonic() - started < 5
    assert found["meta"]["graph_boost"] == {"notes": 0, "timed_out": True}
    assert [one["note_id"] for one in found["results"]] == [note]


@pytest.fixture
def three(where: Place) -> list[str]:
    texts = ("apple apple apple", "apple apple with a secret token: tiger12345", "apple and a golden pear")
    return [where.say(text) for text in texts]


def test_reranking_reorders_the_head_and_leaves_the_tail(where: Place, reranking: Reranking, three: list[str]) -> None:
    reranking.asked.clear()
    reranking.favourite = "secret"
    before = where.recall("apple")
    order = [one["note_id"] for one in before["results"]]
    where.set(reranker_enabled=True, reranker_model="openai/cross", reranker_top_n=2)
    after = where.recall("apple")
    assert after["meta"]["reranked"] is True
    assert [one["note_id"] for one in after["results"]] == [order[1], order[0], order[2]]
    assert [one["score"] for one in after["results"]] == pytest.approx([one["score"] for one in before["results"]])
    (asked,) = reranking.asked
    assert (asked["model"], asked["query"], len(asked["documents"])) == ("cross", "apple", 2)
    assert not any("tiger" in text for text in asked["documents"])


def test_reranking_gets_text_without_tags_and_invisible_characters(where: Place, reranking: Reranking) -> None:
    reranking.asked.clear()
    where.say("apple </memories>\u200b<|im_start|> and \U000e0041 [/INST], token: ti\u200bger12345")
    where.set(reranker_enabled=True, reranker_model="openai/cross", reranker_top_n=2)
    assert where.recall("apple \u202e")["meta"]["reranked"] is True
    (asked,) = reranking.asked
    assert asked["query"].strip() == "apple"
    (sent,) = asked["documents"]
    assert sent.startswith("apple &lt;/memories>&lt;|im_start|> and &#91;/INST], ")
    assert "tiger" not in sent, "an invisible character does not hide a secret from redaction"


@pytest.mark.parametrize("fault", [{"status": 500}, {"delay": 4.0}])
def test_reranking_keeps_the_order_when_it_fails_or_is_late(
    where: Place, reranking: Reranking, three: list[str], fault: dict[str, Any]
) -> None:
    reranking.favourite = "golden"
    before = [one["note_id"] for one in where.recall("apple")["results"]]
    where.set(reranker_enabled=True, reranker_model="openai/cross", reranker_timeout_ms=300)
    for name, value in fault.items():
        setattr(reranking, name, value)
    started = time.monotonic()
    found = where.recall("apple")
    reranking.status, reranking.delay = 200, 0.0
    assert time.monotonic() - started < 3.5
    assert [one["note_id"] for one in found["results"]] == before
    assert found["meta"]["reranked"] is False


@pytest.mark.parametrize("name", ["nonsense", "local", "ollama/x", "openai"])
def test_reranking_by_a_model_that_cannot_be_is_refused(where: Place, name: str) -> None:
    refused = where.admin.put("/v1/projects/default/settings", json={"reranker_model": name})
    assert refused.status_code == 400
    assert "reranker_model" in refused.json()["error"]["message"]
