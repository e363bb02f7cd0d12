"""Errors, and what the service says of itself: request ids, envelopes, log lines, metrics, and not a word too many."""

import json
import re
import secrets
import time
from collections.abc import Callable, Iterator
from typing import Any
from uuid import UUID, uuid4

import httpx
import psycopg
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
        ("GET", f"/v1/gardens/{garden}", "/v1/gardens/{garden_id}", 200),
        ("GET", f"/v1/gardens/{garden}/members?limit=3", "/v1/gardens/{garden_id}/members", 200),
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


# Errors that say where and what


@pytest.mark.parametrize(
    ("body", "line", "column"),
    [
        (b'{"slug": "a",}', 1, 14),
        (b'{\n  "slug" "a"\n}', 2, 10),
        ('{"name": "für Ölmühlen",\r\n "slug": x}'.encode(), 2, 10),
        (b'{"slug": "a"} {"slug": "b"}', 1, 15),
        (b'{"slug": "a"', 1, 13),
        (b'\n\n{"slug": "caf\xe9"}', 3, 14),
        (b'{"slug": "a\\q"}', 1, 13),
    ],
)
def test_malformed_json_names_line_and_column(agent: httpx.Client, body: bytes, line: int, column: int) -> None:
    answer = agent.post("/v1/gardens", content=body, headers={"Content-Type": "application/json"})
    error = envelope(answer, 400, "malformed_json")
    assert error["details"] == {"line": line, "column": column}
    assert f"at line {line}, column {column}." in error["message"]


def test_an_unknown_field_lists_those_that_exist_where_it_stands(agent: httpx.Client) -> None:
    error = envelope(agent.post("/v1/gardens", json={"slug": "a", "titel": "A"}), 400, "invalid_request")
    assert error["message"] == f"titel: unknown field; allowed here: {', '.join(error['details']['allowed'])}"
    assert {"slug", "name", "scope", "description"} <= set(error["details"]["allowed"])
    nested = {"subject": {"canonical": "Ada", "kin": "person"}, "predicate": "likes", "object": {"value": "tea"}}
    error = envelope(agent.post("/v1/facts", json=nested), 400, "invalid_request")
    assert error["details"]["fields"][0]["field"] == "subject.kin"
    assert {"canonical", "kind", "entity_id"} <= set(error["details"]["allowed"])
    assert "predicate" not in error["details"]["allowed"]
    batch = envelope(agent.post("/v1/notes/batch", json={"notes": [{"text": "tea"}]}), 400, "invalid_request")
    assert {"content", "tags"} <= set(batch["details"]["allowed"])


def test_an_unknown_setting_lists_those_that_exist(admin: httpx.Client) -> None:
    error = envelope(admin.put("/v1/projects/default/settings", json={"modus": "off"}), 400, "invalid_setting")
    assert "extraction_model" in error["details"]["allowed"]
    assert "extraction_model" in error["message"]


@pytest.mark.parametrize("name", ["Authorization", "X-Project-Id", "Idempotency-Key"])
def test_a_header_that_decides_is_refused_when_given_twice(admin: httpx.Client, name: str) -> None:
    headers = [(name, "one"), (name, "two")]
    error = envelope(httpx.get(f"{admin.base_url}/v1/whoami", headers=headers), 400, "repeated_header")
    assert error["message"].startswith(f"{name}: ")
    same = [("Authorization", admin.headers["authorization"]), ("Idempotency-Key", "x"), (name, "x"), (name, "x")]
    answer = httpx.post(f"{admin.base_url}/v1/gardens", headers=same, json={"slug": "twice"})
    envelope(answer, 400, "repeated_header")


def test_a_full_disk_is_told_as_what_it_is(tenancy: Tenancy, fresh_database: TestDatabase) -> None:
    """The server says so with its own state (53100), here by a trigger."""
    with psycopg.connect(fresh_database.superuser, autocommit=True) as connection:
        connection.execute("""
            CREATE FUNCTION fill_disk() RETURNS trigger LANGUAGE plpgsql AS $$
            BEGIN
                RAISE EXCEPTION 'could not extend file: No space left on device' USING ERRCODE = 'disk_full';
            END $$""")
        for table in ("memory_notes", "graph_facts"):
            connection.execute(
                f"CREATE TRIGGER fill BEFORE INSERT ON {table} FOR EACH ROW EXECUTE FUNCTION fill_disk()".encode()
            )
    here = Tenancy(fresh_database)
    key = here.key(here.tenant("full"))
    with (
        start_service(fresh_database.url("app"), RLS_POLICY_STRICT="off") as full,
        httpx.Client(base_url=full.url, headers={"Authorization": f"Bearer {key}"}, timeout=30) as client,
    ):
        fact = {"subject": "Ada", "predicate": "likes", "object": {"value": "tea"}}
        for answer in (client.post("/v1/notes", json={"content": "tea"}), client.post("/v1/facts", json=fact)):
            error = envelope(answer, 503, "storage_full")
            assert "disk" in error["message"]
            assert "reach" not in error["message"]
            assert int(answer.headers["retry-after"]) > 0


def test_answers_with_keys_are_kept_by_no_cache(admin: httpx.Client) -> None:
    body = {"kind": "agent", "agent_id": "robin", "project_id": "default"}
    first = admin.post("/v1/admin/keys", json=body, headers={"Idempotency-Key": "no-cache"})
    again = admin.post("/v1/admin/keys", json=body, headers={"Idempotency-Key": "no-cache"})
    rotated = admin.post(f"/v1/admin/keys/{first.json()['key_id']}/rotate")
    for answer in (first, again, rotated):
        assert answer.json()["key"].startswith("pk_")
        assert answer.headers["cache-control"] == "no-store"


def test_names_of_types_are_not_logged(service: RunningService, agent: httpx.Client) -> None:
    secret = f"Patient-{secrets.token_hex(6)}"
    made = agent.post("/v1/graph/objects", json={"type": secret, "properties": {}, "labels": [secret]})
    assert made.status_code == 201
    walk = {"roots": [made.json()["object"]["id"]], "nodeTypes": [secret], "labels": [secret]}
    found = agent.post("/v1/graph/expand", json=walk)
    assert found.status_code == 200, found.text
    lines_of(service, found.headers["x-request-id"])
    assert secret not in service.output()
