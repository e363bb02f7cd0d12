"""Errors, and what the service says of itself: request ids, envelopes, log lines, metrics, and not a word too many."""

import json
import re
import secrets
import time
from collections.abc import Callable, Iterator
from typing import Any
from uuid import UUID, uuid4

import httpx
import pytest

from tests.conftest import PLATFORM_KEY, Tenancy, TestDatabase
from tests.service import RunningService, start_service

Clients = Callable[..., httpx.Client]

UNDESCRIBED = {"/", "/docs", "/docs/{page}", "/schema", "/schema/openapi.json", "/schema/{path}", "unmatched"}
METHODS = {"GET", "POST", "PUT", "PATCH", "DELETE", "HEAD", "OPTIONS", "OTHER"}


@pytest.fixture(scope="module")
def keys(tenancy: Tenancy) -> dict[str, str]:
    """An agent's and an administrator's key."""
    tenancy.tenant("acme")
    return {"agent": tenancy.key("acme"), "admin": tenancy.key("acme", kind="admin")}


@pytest.fixture
def agent(keys: dict[str, str], as_key: Clients) -> httpx.Client:
    """A client with an agent's key."""
    return as_key(keys["agent"])


@pytest.fixture
def admin(keys: dict[str, str], as_key: Clients) -> httpx.Client:
    """A client with an administrator's key."""
    return as_key(keys["admin"], "default")


def envelope(answer: httpx.Response, status: int, code: str) -> dict[str, Any]:
    """Checks an error answer and returns what is inside."""
    assert answer.status_code == status, answer.text
    assert answer.headers["content-type"] == "application/json"
    assert set(answer.json()) == {"error"}
    error = answer.json()["error"]
    assert set(error) == {"code", "message", "request_id", "details"}
    assert error["code"] == code
    assert error["message"]
    assert error["request_id"] == answer.headers["x-request-id"]
    return error


def lines(service: RunningService) -> Iterator[dict[str, Any]]:
    """The log so far; a last line that is still being written is left out."""
    complete, _, _ = service.output().rpartition("\n")
    for line in complete.split("\n"):
        if line.startswith("{"):
            yield json.loads(line)


def lines_of(service: RunningService, request_id: str) -> list[dict[str, Any]]:
    """What was logged of one request, once it is there."""
    deadline = time.monotonic() + 60
    while True:
        found = [line for line in lines(service) if line.get("request_id") == request_id]
        if any(line["event"] == "request" for line in found) or time.monotonic() > deadline:
            return found
        time.sleep(0.02)


# Request ids


@pytest.mark.parametrize("given", ["a", "order-66", "A.b_c:d-1", "x" * 64, str(UUID(int=7))])
def test_a_request_id_that_was_given_is_echoed(client: httpx.Client, given: str) -> None:
    found = client.get("/health", headers={"X-Request-Id": given})
    assert (found.status_code, found.headers["x-request-id"]) == (200, given)
    missed = client.get("/nowhere", headers={"X-Request-Id": given})
    assert envelope(missed, 404, "not_found")["request_id"] == given


@pytest.mark.parametrize(
    "given",
    [b"", b"x" * 65, b"two words", b"a/b", b"a\tb", b'a"b', b"a,b", b"{}", b"<script>", b"caf\xc3\xa9", b"\xff"],
)
def test_a_request_id_that_cannot_be_one_is_replaced(client: httpx.Client, given: bytes) -> None:
    answer = client.get("/v1/whoami", headers={b"x-request-id": given})
    error = envelope(answer, 401, "key_missing")
    assert error["request_id"].encode("latin-1") != given
    assert UUID(error["request_id"])


def test_requests_without_an_id_each_get_their_own(client: httpx.Client) -> None:
    ids = [client.get("/health").headers["x-request-id"] for _ in range(20)]
    assert len(set(ids)) == 20
    assert all(UUID(given) for given in ids)


def test_an_answer_carries_one_request_id(client: httpx.Client) -> None:
    answer = client.get("/health", headers=[("X-Request-Id", "first"), ("X-Request-Id", "second")])
    assert answer.headers.get_list("x-request-id") in (["first"], ["second"])


# Envelopes


@pytest.mark.parametrize("path", ["/nowhere", "/v1", "/v1/nowhere", "/schema/nowhere", "/health/nowhere"])
@pytest.mark.parametrize("accept", ["*/*", "text/html", "application/xml"])
def test_an_unknown_address_is_answered_in_the_envelope(client: httpx.Client, path: str, accept: str) -> None:
    envelope(client.get(path, headers={"Accept": accept}), 404, "not_found")


@pytest.mark.parametrize(
    ("method", "path"),
    [("DELETE", "/v1/gardens"), ("PUT", "/v1/whoami"), ("POST", "/health"), ("PATCH", "/metrics"), ("POST", "/schema")],
)
def test_a_wrong_method_is_answered_in_the_envelope(client: httpx.Client, method: str, path: str) -> None:
    envelope(client.request(method, path), 405, "method_not_allowed")


def test_a_wrong_method_gets_the_allowed_ones(client: httpx.Client) -> None:
    answer = client.delete("/v1/gardens")
    envelope(answer, 405, "method_not_allowed")
    assert {"GET", "POST"} <= set(re.split(r", *", answer.headers["allow"]))


def test_a_missing_key_gets_the_scheme(client: httpx.Client) -> None:
    answer = client.get("/v1/whoami")
    envelope(answer, 401, "key_missing")
    assert answer.headers["www-authenticate"].startswith("Bearer")


def test_a_wrong_field_is_named_in_the_details(agent: httpx.Client) -> None:
    error = envelope(agent.post("/v1/gardens", json={"slug": 5}), 400, "invalid_request")
    assert error["message"].startswith("slug: ")
    assert [(field["field"], field["in"]) for field in error["details"]["fields"]] == [("slug", "body")]
    error = envelope(agent.get("/v1/gardens", params={"limit": "many"}), 400, "invalid_request")
    assert [(field["field"], field["in"]) for field in error["details"]["fields"]] == [("limit", "query")]


def test_a_missing_scope_is_named_in_the_details(tenancy: Tenancy, keys: dict[str, str], as_key: Clients) -> None:
    reader = as_key(tenancy.key("acme", scopes=["graph:read"]))
    error = envelope(reader.post("/v1/gardens", json={"slug": "closed"}), 403, "missing_scope")
    assert "notes:write" in error["details"]["needs"]


# The log


def test_each_request_is_one_line_of_json_with_its_route(
    service: RunningService, keys: dict[str, str], agent: httpx.Client
) -> None:
    me = agent.get("/v1/whoami").json()
    garden = agent.post("/v1/gardens", json={"slug": "logged"}).json()["garden"]["garden_id"]
    unknown = uuid4()
    for method, path, route, status in (
        ("GET", "/v1/whoami", "/v1/whoami", 200),
        ("GET", f"/v1/gardens/{garden}?limit=3", "/v1/gardens/{garden_id}", 200),
        ("DELETE", f"/v1/gardens/{garden}/members/wren", "/v1/gardens/{garden_id}/members/{agent}", 404),
        ("GET", f"/v1/jobs/{unknown}", "/v1/jobs/{job_id}", 404),
        ("POST", f"/v1/jobs/{unknown}/cancel", "/v1/jobs/{job_id}/cancel", 404),
        ("POST", "/v1/gardens", "/v1/gardens", 400),
        ("GET", "/v1/admin/keys", "/v1/admin/keys", 403),
    ):
        answer = agent.request(method, path)
        assert answer.status_code == status
        (line,) = lines_of(service, answer.headers["x-request-id"])
        assert line["event"] == "request"
        assert (line["method"], line["route"], line["status"]) == (method, route, status)
        assert (line["tenant"], line["key_id"]) == ("acme", me["key_id"])
        assert line["ms"] > 0
        assert line["level"] == "info"
        assert line["timestamp"].endswith("Z")


def test_requests_that_lead_nowhere_are_logged_without_their_path(
    service: RunningService, client: httpx.Client
) -> None:
    for method, path, status in (
        ("GET", "/nowhere/at-all", 404),
        ("PUT", "/v1/whoami", 405),
        ("GET", "/v1/%00", 400),
        ("BREW", "/v1/gardens", 405),
    ):
        answer = client.request(method, path)
        assert answer.status_code == status
        (line,) = lines_of(service, answer.headers["x-request-id"])
        assert (line["route"], line["status"]) in {("unmatched", status), (path, 405)}
        assert line["method"] in METHODS
        assert line["tenant"] is None
        assert line["key_id"] is None


def test_a_request_without_a_working_key_is_logged_without_a_tenant(
    service: RunningService, client: httpx.Client
) -> None:
    answer = client.get("/v1/whoami", headers={"Authorization": "Bearer nonsense"})
    (line,) = lines_of(service, answer.headers["x-request-id"])
    assert (line["status"], line["tenant"], line["key_id"]) == (401, None, None)


def test_probes_that_succeed_leave_no_line(service: RunningService, client: httpx.Client) -> None:
    quiet = [client.get(path).headers["x-request-id"] for path in ("/health", "/ready", "/metrics")]
    # Once a later request has its line, the earlier ones would have theirs.
    later = client.get("/nowhere").headers["x-request-id"]
    assert lines_of(service, later)
    logged = {line.get("request_id") for line in lines(service)}
    assert logged.isdisjoint(quiet)


def provoke(base: str, keys: dict[str, str], marker: str) -> list[str]:
    """Puts a marker wherever a caller can put text, in requests that succeed and that fail; answers ids it made."""
    secret = f"{marker}{'s' * (43 - len(marker))}"
    forged = {"Authorization": f"Bearer pk_{uuid4().hex}_{secret}"}
    ids: list[str] = []
    with httpx.Client(base_url=base, headers={"Authorization": f"Bearer {keys['agent']}"}, timeout=30) as client:
        made = client.post("/v1/gardens", json={"slug": marker.lower(), "name": marker, "description": marker})
        assert made.status_code == 201
        garden = made.json()["garden"]["garden_id"]
        client.post("/v1/gardens", json={"slug": marker.lower()})
        client.post("/v1/gardens", json={"slug": f"{marker} {marker}", marker: marker})
        client.post("/v1/gardens", content=f'{{"slug": "{marker}"'.encode())
        client.post("/v1/gardens", json={"slug": f"{marker}\0"})
        client.post("/v1/gardens", content=marker.encode(), headers={"Content-Type": f"text/{marker}"})
        client.post("/v1/gardens", json={"slug": "x"}, headers={"Idempotency-Key": marker})
        client.post("/v1/gardens", json={"slug": "y"}, headers={"Idempotency-Key": marker * 20})
        client.put(f"/v1/gardens/{garden}/members/{marker}", json={"role": "reader"})
        client.delete(f"/v1/gardens/{garden}/members/{marker}%20")
        client.get(f"/v1/gardens/{garden}", params={"q": marker})
        client.get("/v1/gardens", params={"cursor": marker, "limit": marker})
        client.get("/v1/gardens", params={"limit": marker})
        client.get("/v1/jobs", params={"kind": marker, "status": marker})
        client.get(f"/v1/{marker}")
        client.get(f"/{marker}/%00/{marker}")
        client.request(marker.upper(), "/v1/gardens")
        client.options("/v1/gardens", headers={"Origin": f"http://{marker}"})
        client.get("/v1/whoami", headers={"User-Agent": marker, "Cookie": marker, "X-Project-Id": marker})
        client.get("/v1/whoami", headers={"X-Request-Id": f"{marker} not one"})
        client.get("/v1/whoami", headers=forged)
        client.get("/v1/whoami", headers={"Authorization": f"Bearer {marker}"})
        client.get("/v1/whoami", headers={"Authorization": f"Basic {marker}"})
        client.get(f"/v1/jobs/{uuid4()}", headers=forged)
        ids.append(garden)
    admin = {"Authorization": f"Bearer {keys['admin']}"}
    with httpx.Client(base_url=base, headers=admin, timeout=30) as client:
        issued = client.post("/v1/admin/keys", json={"agent_id": marker, "name": marker}).json()
        rotated = client.post(f"/v1/admin/keys/{issued['key_id']}/rotate", json={"grace_seconds": 60}).json()
        client.post("/v1/admin/keys", json={"agent_id": marker, "scopes": [marker]})
        client.post("/v1/admin/keys", json={"agent_id": marker, "project_id": marker.lower()})
        client.post("/v1/admin/keys", json={"agent_id": marker, "tenant_id": marker.lower()})
        client.delete(f"/v1/admin/keys/{issued['key_id']}")
        client.get("/v1/admin/keys", params={"tenant_id": marker})
        ids += [issued["key_id"], issued["key"].rpartition("_")[2], rotated["key"].rpartition("_")[2]]
    platform = {"Authorization": f"Bearer {PLATFORM_KEY}"}
    with httpx.Client(base_url=base, headers=platform, timeout=30) as client:
        client.post("/v1/admin/tenants", json={"tenant_id": marker.lower(), "name": marker})
        client.post("/v1/admin/projects", json={"tenant_id": f"{marker.lower()}-absent", "project_id": "default"})
        last = client.get("/nowhere").headers["x-request-id"]
    return [*ids, last]


def said_nothing(service: RunningService, keys: dict[str, str], marker: str) -> None:
    """Checks that neither log nor metrics hold the marker, an id from a path, or a secret."""
    *ids, last = provoke(service.url, keys, marker)
    assert lines_of(service, last)
    metrics = httpx.get(f"{service.url}/metrics", timeout=30).text
    hidden = [marker, *ids, PLATFORM_KEY, *(key.rpartition("_")[2] for key in keys.values())]
    for place, text in (("log", service.output()), ("metrics", metrics)):
        found = [word for word in hidden if word.lower() in text.lower()]
        assert not found, f"the {place} says {found}"


def test_neither_bodies_nor_queries_nor_secrets_are_in_log_or_metrics(
    service: RunningService, keys: dict[str, str]
) -> None:
    said_nothing(service, keys, f"Marker{secrets.token_hex(6)}")


def test_the_most_talkative_log_says_no_more_of_them(database: TestDatabase, keys: dict[str, str]) -> None:
    with start_service(database.url("app"), PLATFORM_KEY=PLATFORM_KEY, LOG_LEVEL="debug") as talkative:
        said_nothing(talkative, keys, f"Marker{secrets.token_hex(6)}")


def test_every_line_after_the_greeting_is_json(service: RunningService, client: httpx.Client) -> None:
    last = client.get("/nowhere").headers["x-request-id"]
    assert lines_of(service, last)
    complete, _, _ = service.output().rpartition("\n")
    first = complete.index("\n{")
    for line in complete[first:].strip().split("\n"):
        assert set(json.loads(line)) >= {"event", "level", "timestamp"}


# Metrics


def counted(text: str) -> dict[tuple[str, str, str], float]:
    """Requests by method, route and status."""
    found: dict[tuple[str, str, str], float] = {}
    for line in text.splitlines():
        if line.startswith("palimpsest_requests_total{"):
            labels = dict(re.findall(r'(\w+)="((?:[^"\\]|\\.)*)"', line))
            found[labels["method"], labels["route"], labels["status"]] = float(line.rpartition(" ")[2])
    return found


def test_metrics_count_requests_by_route_template(client: httpx.Client, agent: httpx.Client) -> None:
    before = counted(client.get("/metrics").text)
    for _ in range(3):
        agent.get(f"/v1/gardens/{uuid4()}")
    agent.get("/v1/whoami")
    client.get(f"/nowhere/{uuid4()}")
    client.request("BREW", "/v1/whoami")
    after = counted(client.get("/metrics").text)
    grown = {labels: count - before.get(labels, 0) for labels, count in after.items() if count != before.get(labels, 0)}
    assert grown[("GET", "/v1/gardens/{garden_id}", "404")] == 3
    assert grown[("GET", "/v1/whoami", "200")] == 1
    assert grown[("GET", "unmatched", "404")] == 1
    assert [count for (method, _, status), count in grown.items() if (method, status) == ("OTHER", "405")] == [1]


def test_metrics_name_no_route_but_templates(client: httpx.Client, agent: httpx.Client) -> None:
    for path in (f"/v1/gardens/{uuid4()}", f"/v1/jobs/{uuid4()}", f"/{secrets.token_hex(8)}", "/v1/gardens?limit=7"):
        agent.get(path)
    text = client.get("/metrics").text
    routes = set(re.findall(r'route="([^"]*)"', text))
    assert "/v1/gardens/{garden_id}" in routes
    assert routes <= set(client.get("/schema/openapi.json").json()["paths"]) | UNDESCRIBED
    assert set(re.findall(r'method="([^"]*)"', text)) <= METHODS
    assert "acme" not in text


def test_metrics_time_requests(client: httpx.Client) -> None:
    client.get("/v1/whoami")
    text = client.get("/metrics").text
    assert re.search(r'^palimpsest_request_seconds_count\{method="GET",route="/v1/whoami"\} [1-9]', text, re.MULTILINE)


def test_metrics_can_be_read_by_prometheus(client: httpx.Client) -> None:
    kind = client.get("/metrics").headers["content-type"]
    # A parameter named twice is no media type at all to a strict reader.
    assert sorted(part.strip() for part in kind.split(";")) == ["charset=utf-8", "text/plain", "version=0.0.4"]
