"""Silent and slow callers: they are disconnected in time, and cannot block the port of the probes."""

import socket
from collections.abc import Callable, Iterator
from contextlib import ExitStack

import httpx
import pytest

from app.errors import TooLarge
from app.web.requests import check_values
from tests.conftest import Tenancy, TestDatabase
from tests.service import RunningService, free_port, start_service

CONNECTIONS = 8


@pytest.fixture(scope="module")
def monitored() -> str:
    """The address of the probes."""
    return f"http://127.0.0.1:{free_port()}"


@pytest.fixture(scope="module")
def service(database: TestDatabase, monitored: str) -> Iterator[RunningService]:
    """A service with few connections and short deadlines."""
    variables = {
        "MONITORING_PORT": monitored.rpartition(":")[2],
        "MAX_CONNECTIONS": str(CONNECTIONS),
        "HEADER_SECONDS": "5",
        "BODY_SECONDS": "0.5",
        "MAX_JSON_VALUES": "1000",
    }
    with start_service(database.url("app"), **variables) as running:
        yield running


def connect(service: RunningService, sent: bytes) -> socket.socket:
    made = socket.create_connection(("127.0.0.1", int(service.url.rpartition(":")[2])), timeout=60)
    made.sendall(sent)
    return made


@pytest.mark.parametrize("sent", [b"", b"GET /health HTTP/1.1\r\nhost:"])
def test_idle_connections_end_and_do_not_block_the_probes(service: RunningService, monitored: str, sent: bytes) -> None:
    with ExitStack() as stack:
        idle = [stack.enter_context(connect(service, sent)) for _ in range(CONNECTIONS + 2)]
        assert httpx.get(f"{monitored}/health", timeout=30).json()["status"] == "ok"
        assert httpx.get(f"{monitored}/ready", timeout=30).json()["status"] == "ready"
        for one in idle:
            # Closed by the service; a connection that stays open raises TimeoutError.
            assert one.recv(100) == b""
    assert httpx.get(f"{service.url}/health", timeout=60).status_code == 200


def test_many_idle_connections_stop_nobody_by_default(database: TestDatabase) -> None:
    with start_service(database.url("app")) as service, ExitStack() as stack:
        for _ in range(1100):
            stack.enter_context(connect(service, b""))
        assert httpx.get(f"{service.url}/health", timeout=30).status_code == 200


def test_a_body_has_to_arrive_in_time(service: RunningService, tenancy: Tenancy) -> None:
    key = tenancy.key(tenancy.tenant("slow"))
    head = (
        f"POST /v1/notes HTTP/1.1\r\nhost: x\r\nauthorization: Bearer {key}\r\ncontent-type: application/json\r\n"
        "content-length: 100\r\n\r\n{"
    )
    with connect(service, head.encode()) as slow:
        answer = slow.recv(10_000)
    assert answer.startswith(b"HTTP/1.1 408 ")
    assert b'"code":"body_timeout"' in answer


def test_a_body_with_too_many_values_is_refused(tenancy: Tenancy, as_key: Callable[..., httpx.Client]) -> None:
    client = as_key(tenancy.key(tenancy.tenant("many")))
    headers = {"Content-Type": "application/json"}
    refused = client.post("/v1/notes/batch", content=b"[" + b"[]," * 2000 + b"[]]", headers=headers)
    assert refused.status_code == 413
    assert refused.json()["error"]["code"] == "too_many_values"
    text = 'a, b, [c], {d}, "e", \\ ' * 500
    assert client.post("/v1/notes", json={"content": text}).status_code == 201


def test_values_are_counted_outside_of_texts() -> None:
    check_values(b'["' + b"," * 5000 + b'", "a\\",b"]', 1000)
    check_values(b"[" + b"1," * 998 + b"1]", 1000)
    for body in (b"[" * 1001, b'{"a":1},' * 1001, b"[" + b"1," * 1001):
        with pytest.raises(TooLarge):
            check_values(body, 1000)
