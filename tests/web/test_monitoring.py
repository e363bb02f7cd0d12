"""The port of a worker of its own: /health, /ready and /metrics, who may read them, and what cannot stop it."""

import asyncio
import socket
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import httpx
import psycopg
import pytest

from app.db.database import Database
from app.errors import AppError
from app.web.health import MetricsReader
from tests.conftest import Tenancy, TestDatabase
from tests.service import RunningService, free_port, palimpsest, spawn, stop, wait_until_ready

TOKEN = "metrics-token-of-the-tests-0123456789"


@contextmanager
def working(folder: Path, database: TestDatabase, **variables: str) -> Iterator[RunningService]:
    """`palimpsest worker` on a database, ready on a port of its own."""
    port, log = free_port(), folder / "worker.log"
    environment = {"DATABASE_URL": database.url("app"), "MONITORING_PORT": str(port), **variables}
    process = spawn("worker", log=log, **environment)
    running = RunningService(f"http://127.0.0.1:{port}", process, log)
    try:
        wait_until_ready(running.url, process, log)
        yield running
    finally:
        stop(process)


@pytest.fixture(scope="module")
def worker(tmp_path_factory: pytest.TempPathFactory, database: TestDatabase) -> Iterator[RunningService]:
    """A worker of this module's database, whose metrics need no token."""
    with working(tmp_path_factory.mktemp("worker"), database) as running:
        yield running


@pytest.fixture
def probe(worker: RunningService) -> Iterator[httpx.Client]:
    """A client of the worker's port."""
    with httpx.Client(base_url=worker.url, timeout=30, verify=False) as client:
        yield client


def eventually(check: Callable[[], bool], *, seconds: float = 120) -> None:
    """Return once the check holds, or fail."""
    deadline = time.monotonic() + seconds
    while not check():
        assert time.monotonic() < deadline
        time.sleep(0.1)


def test_a_worker_tells_that_it_is_up_and_ready(probe: httpx.Client) -> None:
    assert probe.get("/health").json()["status"] == "ok"
    ready = probe.get("/ready?verbose=1")
    health = probe.get("/health").json()
    assert (health["rls_policies_ok"], len(health["rls_policy_hash"])) == (True, 64)
    assert (ready.status_code, ready.json()["status"], ready.json()["problems"]) == (200, "ready", [])
    assert ready.headers["content-type"] == "application/json"
    head = probe.head("/health")
    assert (head.status_code, head.content) == (200, b"")


def test_a_worker_shows_the_jobs_it_ran(
    probe: httpx.Client, tenancy: Tenancy, as_key: Callable[..., httpx.Client]
) -> None:
    tenancy.tenant("acme")
    assert as_key(tenancy.key("acme")).post("/v1/notes", json={"content": "Tea is kept."}).status_code == 201
    eventually(lambda: 'outcome="completed"' in probe.get("/metrics").text)
    text = probe.get("/metrics")
    assert "palimpsest_job_seconds_count{" in text.text
    assert "palimpsest_queue_oldest_seconds" in text.text
    assert "acme" not in text.text
    kind = text.headers["content-type"]
    assert sorted(part.strip() for part in kind.split(";")) == ["charset=utf-8", "text/plain", "version=0.0.4"]


@pytest.mark.parametrize(
    ("method", "path", "status", "code"),
    [
        ("GET", "/v1/whoami", 404, "not_found"),
        ("GET", "/", 404, "not_found"),
        ("POST", "/health", 405, "method_not_allowed"),
        ("DELETE", "/metrics", 405, "method_not_allowed"),
    ],
)
def test_it_serves_nothing_else(probe: httpx.Client, method: str, path: str, status: int, code: str) -> None:
    refused = probe.request(method, path)
    assert (refused.status_code, refused.json()["error"]["code"]) == (status, code)
    assert refused.json()["error"]["request_id"]


def test_a_line_that_is_not_http_is_refused(worker: RunningService) -> None:
    with socket.create_connection(("127.0.0.1", int(worker.url.rpartition(":")[2])), timeout=30) as raw:
        raw.sendall(b"\x16\x03\x01 hello\r\n\r\n")
        assert raw.makefile("rb").readline().startswith(b"HTTP/1.1 400 ")


def test_silent_and_endless_connections_do_not_keep_probes_out(worker: RunningService, probe: httpx.Client) -> None:
    address = ("127.0.0.1", int(worker.url.rpartition(":")[2]))
    with ExitStack() as stack:
        for number in range(200):
            idle = stack.enter_context(socket.create_connection(address, timeout=30))
            if number % 2:
                idle.sendall(b"GET /health HTTP/1.1\r\nx-slow: ")
        assert probe.get("/health").status_code == 200
        endless = stack.enter_context(socket.create_connection(address, timeout=30))
        with pytest.raises((ConnectionResetError, BrokenPipeError)):
            endless.sendall(b"x" * 64 * 1024 * 1024)
        assert probe.get("/health").status_code == 200


def test_a_worker_is_not_ready_while_a_policy_is_missing(tmp_path: Path, fresh_database: TestDatabase) -> None:
    with (
        working(tmp_path, fresh_database) as running,
        httpx.Client(base_url=running.url, timeout=30, verify=False) as probe,
    ):
        with psycopg.connect(fresh_database.superuser, autocommit=True) as connection:
            connection.execute("ALTER TABLE gardens NO FORCE ROW LEVEL SECURITY")
        eventually(lambda: probe.get("/ready").status_code == 503)
        state = probe.get("/ready").json()
        assert (state["status"], state["database"], state["policies"]) == ("not_ready", True, False)
        assert any("gardens" in problem for problem in state["problems"])
        assert probe.get("/health").status_code == 200


def test_metrics_of_a_worker_follow_the_token(tmp_path: Path, database: TestDatabase) -> None:
    with (
        working(tmp_path, database, METRICS_TOKEN=TOKEN) as running,
        httpx.Client(base_url=running.url, timeout=30, verify=False) as probe,
    ):
        refused = probe.get("/metrics")
        assert (refused.status_code, refused.json()["error"]["code"]) == (401, "metrics_token_required")
        assert "bearer" in refused.headers["www-authenticate"].lower()
        assert probe.get("/metrics", headers={"Authorization": f"Bearer {TOKEN}x"}).status_code == 401
        assert probe.get("/metrics", headers={"Authorization": f"Bearer {TOKEN}"}).status_code == 200
        assert probe.get("/health").status_code == 200


@pytest.mark.parametrize("where", ["worker", "service"])
def test_without_a_token_metrics_are_not_for_callers_behind_a_proxy(where: str, request: pytest.FixtureRequest) -> None:
    url = request.getfixturevalue(where).url
    assert httpx.get(f"{url}/metrics", timeout=30).status_code == 200
    refused = httpx.get(f"{url}/metrics", headers={"X-Forwarded-For": "203.0.113.7"}, timeout=30)
    assert (refused.status_code, refused.json()["error"]["code"]) == (403, "metrics_local_only")
    assert "METRICS_TOKEN" in refused.json()["error"]["message"]


@pytest.mark.anyio
@pytest.mark.parametrize(
    ("token", "headers", "client", "code"),
    [
        (None, {}, "127.0.0.1", None),
        (None, {}, "::1", None),
        (None, {}, "::ffff:127.0.0.1", None),
        (None, {}, "10.0.0.7", "metrics_local_only"),
        (None, {}, None, "metrics_local_only"),
        (None, {"forwarded": "for=10.0.0.7"}, "127.0.0.1", "metrics_local_only"),
        (None, {"authorization": "Bearer "}, "10.0.0.7", "metrics_local_only"),
        (TOKEN, {}, "127.0.0.1", "metrics_token_required"),
        (TOKEN, {"authorization": TOKEN}, "127.0.0.1", "metrics_token_required"),
        (TOKEN, {"authorization": f"Bearer {TOKEN}"}, "10.0.0.7", None),
    ],
)
async def test_who_may_read_metrics(
    database: TestDatabase, token: str | None, headers: dict[str, str], client: str | None, code: str | None
) -> None:
    db = Database(database.app, pool_size=1)
    found = None
    try:
        assert b"palimpsest_" in await MetricsReader(db, token).read(headers, client=client)
    except AppError as problem:
        found = problem.code
    finally:
        await db.close()
    assert found == code


@pytest.mark.anyio
async def test_readers_of_metrics_at_the_same_time_share_one_text(database: TestDatabase) -> None:
    db = Database(database.app, pool_size=1)
    try:
        reader = MetricsReader(db, None)
        texts = await asyncio.gather(*(reader.read({}, client="127.0.0.1") for _ in range(20)))
        later = await reader.read({}, client="127.0.0.1")
    finally:
        await db.close()
    # The first reader has its own, all that came while it was made share the next.
    assert len({id(text) for text in texts}) == 2
    assert id(later) not in {id(text) for text in texts}


def test_a_port_in_use_ends_the_worker_with_its_name(database: TestDatabase) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = str(taken.getsockname()[1])
        ended = palimpsest("worker", DATABASE_URL=database.url("app"), MONITORING_PORT=port)
    assert ended.returncode == 1
    assert f"127.0.0.1:{port}" in ended.stderr
    assert "MONITORING_PORT" in ended.stderr


@pytest.mark.slow
def test_serve_shares_the_port_with_no_worker(tmp_path: Path, database: TestDatabase) -> None:
    port, monitored, log = free_port(), free_port(), tmp_path / "log"
    environment = {"DATABASE_URL": database.url("app"), "PORT": str(port), "MONITORING_PORT": str(monitored)}
    process: subprocess.Popen[bytes] = spawn("serve", log=log, **environment)
    try:
        wait_until_ready(f"http://127.0.0.1:{port}", process, log)
        eventually(lambda: "worker_started" in log.read_text(errors="replace"))
        # The API listens there, and the worker beside it did not fail because of that.
        assert httpx.get(f"http://127.0.0.1:{monitored}/ready", timeout=30).json()["status"] == "ready"
        assert "port_unusable" not in log.read_text(errors="replace")
    finally:
        stop(process)
