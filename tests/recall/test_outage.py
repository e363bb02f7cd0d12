"""Provider, worker and database go away in turn under load: no write is refused for want of a vector, recall answers
from what is left and says so, and what waits is worked off by itself."""

import hashlib
import json
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, ClassVar

import httpx
import psycopg
import pytest
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from tests.commands import killed_worker
from tests.conftest import Tenancy, TestDatabase
from tests.service import free_port, start_service

DIMENSIONS = 384


class Provider(BaseHTTPRequestHandler):
    """Embeds as the real one does, by a hash of the text."""

    def do_POST(self) -> None:
        texts = json.loads(self.rfile.read(int(self.headers["content-length"])))["input"]
        vectors = []
        for text in texts:
            digest = hashlib.sha256(text.encode()).digest()
            vectors.append([digest[i % 32] / 255 - 0.5 for i in range(DIMENSIONS)])
        body = json.dumps({"embeddings": vectors}).encode()
        self.send_response(200)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:
        pass


class Absurd(Provider):
    """Answers what nobody would think of."""

    answers: ClassVar = [
        (200, {}, b'{"x":' + b"[" * 5000 + b"]" * 5000 + b"}"),
        (429, {"retry-after": "Mon, 01 Jan 2020 00:00:00 +99999999999999"}, b""),
        (503, {"retry-after": "Fri, 31 Dec 9999 23:59:59 -2359"}, b"{"),
    ]
    asked: ClassVar[list[int]] = []

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["content-length"]))
        status, headers, body = self.answers[len(self.asked) % len(self.answers)]
        self.asked.append(status)
        self.send_response(status)
        for name, value in {**headers, "content-length": str(len(body))}.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)


@contextmanager
def provider(port: int, handler: type[Provider] = Provider) -> Iterator[None]:
    """A provider that answers at a port as long as the block lasts."""
    ThreadingHTTPServer.allow_reuse_address = True
    server = ThreadingHTTPServer(("127.0.0.1", port), handler)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


class Writer:
    """Writes notes one after another and keeps the answers, until it is stopped."""

    def __init__(self, client: httpx.Client, bird: str) -> None:
        self.statuses: list[int] = []
        self._bird = bird
        self._client = client
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        while not self._stop.is_set():
            body = {"content": f"The {self._bird} number {len(self.statuses)} stands in the reeds."}
            self.statuses.append(self._client.post("/v1/notes", json=body).status_code)
            time.sleep(0.02)

    def end(self) -> list[int]:
        self._stop.set()
        self._thread.join()
        return self.statuses


def recall(client: httpx.Client) -> dict[str, Any]:
    answer = client.post("/v1/recall", json={"query": f"heron in the reeds {time.monotonic()}"})
    assert answer.status_code == 200, answer.text
    return answer.json()


def wait_for(condition: Any, *, seconds: float, what: str) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, what
        time.sleep(0.2)


@pytest.mark.slow
def test_nothing_is_refused_for_want_of_a_vector_and_the_backlog_drains_by_itself(fresh_database: TestDatabase) -> None:
    database, port = fresh_database, free_port()
    tenancy = Tenancy(database)
    tenancy.tenant("fen")
    key = tenancy.key("fen", agent_id="robin", rate_limits={"write": 0, "read": 0})
    variables = {"OLLAMA_URL": f"http://127.0.0.1:{port}", "EMBED_BREAKER_HALF_OPEN_SECONDS": "1", "LOG_LEVEL": "error"}
    environment = {"DATABASE_URL": database.url("app"), "LEASE_SECONDS": "2", **variables}
    elsewhere = make_conninfo(database.superuser, dbname="postgres")
    name = conninfo_to_dict(database.superuser)["dbname"]

    def count(table: str) -> int:
        with psycopg.connect(database.superuser, autocommit=True) as connection:
            (found,) = connection.execute(f"SELECT count(*) FROM {table}".encode()).fetchone() or (0,)
        return found

    with psycopg.connect(database.superuser, autocommit=True) as connection:
        connection.execute("UPDATE embedding_models SET provider = 'ollama', model = 'nomic-embed-text'")
    with (
        start_service(database.url("app"), **variables) as service,
        httpx.Client(base_url=service.url, headers={"Authorization": f"Bearer {key}"}, timeout=60) as client,
        psycopg.connect(elsewhere, autocommit=True) as custodian,
    ):
        with killed_worker(**environment):
            with provider(port):
                writer = Writer(client, "heron")
                wait_for(lambda: "vector" in recall(client)["meta"]["channels"], seconds=30, what="no vectors at all")
                time.sleep(1)
            # 1. Without its provider.
            wait_for(lambda: recall(client)["meta"]["degraded"], seconds=30, what="nobody said that it is degraded")
            left = recall(client)
            assert left["meta"]["channels"] == ["lexical", "graph"]
            assert left["results"], "words are still found"
            time.sleep(2)
        # 2. Without a worker, while the provider is back.
        with provider(port):
            time.sleep(2)
            wait_for(lambda: len(writer.statuses) > 100, seconds=120, what="fewer than a hundred writes")
            assert set(writer.end()) == {201}
            written = len(writer.statuses)
            # 3. Without its database, in the middle of the work that waited.
            with killed_worker(**environment):
                writer = Writer(client, "bittern")
                waiting = count("embedding_queue")
                wait_for(lambda: count("embedding_queue") < waiting, seconds=60, what="the worker does not begin")
                custodian.execute(f'ALTER DATABASE "{name}" ALLOW_CONNECTIONS false'.encode())
                custodian.execute("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = %s", (name,))
                time.sleep(2)
                custodian.execute(f'ALTER DATABASE "{name}" ALLOW_CONNECTIONS true'.encode())
                known = len(writer.statuses)
                wait_for(lambda: 201 in writer.statuses[known:], seconds=60, what="no write after the database is back")
                later = writer.end()
                assert set(later) <= {201, 503}, "a write that fails says that the database is away"
                assert later[-1] == 201
                wait_for(lambda: count("embedding_queue") == 0, seconds=120, what="the backlog does not drain")
                assert count("memory_notes") == count("embeddings") >= written + later.count(201)
                wait_for(lambda: not recall(client)["meta"]["degraded"], seconds=30, what="recall stays degraded")


def test_recall_goes_on_whatever_a_provider_answers(fresh_database: TestDatabase) -> None:
    database, port = fresh_database, free_port()
    tenancy = Tenancy(database)
    tenancy.tenant("fen")
    key = tenancy.key("fen", agent_id="robin", rate_limits={"write": 0, "read": 0})
    variables = {"OLLAMA_URL": f"http://127.0.0.1:{port}", "LOG_LEVEL": "error"}
    with psycopg.connect(database.superuser, autocommit=True) as connection:
        connection.execute("UPDATE embedding_models SET provider = 'ollama', model = 'nomic-embed-text'")
    with (
        provider(port, Absurd),
        start_service(database.url("app"), **variables) as service,
        httpx.Client(base_url=service.url, headers={"Authorization": f"Bearer {key}"}, timeout=60) as client,
    ):
        assert client.post("/v1/notes", json={"content": "A heron in the reeds."}).status_code == 201
        for _ in range(4):
            found = recall(client)
            assert found["meta"]["degraded"]
            assert len(found["results"]) == 1
    assert set(Absurd.asked) == {200, 429, 503}
