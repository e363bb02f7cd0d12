"""Tenants, projects and keys over HTTP: who may make, see, rotate and revoke what."""

import secrets
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import uuid4

import httpx
import pytest

from tests.conftest import PLATFORM_KEY
from tests.service import RunningService

Clients = Callable[..., httpx.Client]

KEY_FIELDS = {
    "key_id", "kind", "name", "agent_id", "project_id", "user_id", "scopes", "rate_limits", "created_at",
    "expires_at", "last_used_at", "rotated_at", "revoked_at",
}  # fmt: skip
KEY_ROUTES = [
    ("GET", "/v1/admin/keys"),
    ("POST", "/v1/admin/keys"),
    ("DELETE", "/v1/admin/keys/{key_id}"),
    ("POST", "/v1/admin/keys/{key_id}/rotate"),
]
ADMIN_ROUTES = [("GET", "/v1/admin/projects"), ("POST", "/v1/admin/projects"), *KEY_ROUTES]
PLATFORM_ROUTES = [("GET", "/v1/admin/tenants"), ("POST", "/v1/admin/tenants")]


def unique(prefix: str) -> str:
    """A name nobody else uses."""
    return f"{prefix}-{secrets.token_hex(4)}"


def body_of(method: str, path: str, **extra: str) -> dict[str, Any]:
    """Arguments for httpx that make a call to an administrative route valid."""
    if method in {"GET", "DELETE"}:
        return {"params": extra}
    if path.endswith("/rotate"):
        return {"params": extra, "json": {}}
    bodies: dict[str, dict[str, Any]] = {
        "/v1/admin/tenants": {"tenant_id": unique("made")},
        "/v1/admin/projects": {"project_id": unique("made")},
        "/v1/admin/keys": {"agent_id": "wren"},
    }
    return {"json": {**bodies[path], **extra}}


def code(answer: httpx.Response) -> str:
    """The code of an error."""
    return answer.json()["error"]["code"]


def refused(answer: httpx.Response, status: int, *codes: str) -> None:
    """Checks that an answer is this refusal."""
    assert answer.status_code == status, answer.text
    assert code(answer) in codes


def walk(client: httpx.Client, path: str, items: str, limit: int, **params: str) -> list[dict[str, Any]]:
    """All rows of a list, page by page; no page is longer than asked for."""
    found: list[dict[str, Any]] = []
    cursor: dict[str, str] = {}
    while True:
        answer = client.get(path, params={"limit": limit, **params, **cursor})
        assert answer.status_code == 200, answer.text
        page = answer.json()
        assert len(page[items]) <= limit
        found += page[items]
        if page["next_cursor"] is None:
            return found
        assert len(page[items]) == limit
        cursor = {"cursor": page["next_cursor"]}


def until(ask: Callable[[], httpx.Response], status: int, *, seconds: float = 60) -> httpx.Response:
    """Asks again until the answer has this status."""
    deadline = time.monotonic() + seconds
    while (answer := ask()).status_code != status:
        assert time.monotonic() < deadline, f"still {answer.status_code} after {seconds} s"
        time.sleep(0.05)
    return answer


@pytest.fixture
def as_key(service: RunningService) -> Iterator[Clients]:
    """As everywhere; but these tests make many clients, and most of the cost of one is its TLS."""
    with ExitStack() as stack:

        def build(key: str, project: str | None = None) -> httpx.Client:
            headers = {"Authorization": f"Bearer {key}"} | ({"X-Project-Id": project} if project else {})
            return stack.enter_context(httpx.Client(base_url=service.url, timeout=30, headers=headers, verify=False))

        yield build


@pytest.fixture
def platform(as_key: Clients) -> httpx.Client:
    """A client with the platform key."""
    return as_key(PLATFORM_KEY)


@pytest.fixture
def tenant(platform: httpx.Client) -> str:
    """A tenant of its own with the projects default and other."""
    return found(platform, "tenant", "default", "other")


@pytest.fixture
def admin(platform: httpx.Client, tenant: str, as_key: Clients) -> httpx.Client:
    """A client with an admin key that spans the tenant's projects."""
    return as_key(issue(platform, tenant_id=tenant, kind="admin", project_id=None)["key"])


@pytest.fixture
def bound_admin(platform: httpx.Client, tenant: str, as_key: Clients) -> httpx.Client:
    """A client with an admin key bound to project default."""
    return as_key(issue(platform, tenant_id=tenant, kind="admin")["key"])


@pytest.fixture
def stranger(platform: httpx.Client, as_key: Clients) -> httpx.Client:
    """An administrator of another tenant."""
    other = found(platform, "stranger", "default")
    return as_key(issue(platform, tenant_id=other, kind="admin", project_id=None)["key"])


def found(platform: httpx.Client, prefix: str, *projects: str) -> str:
    """A new tenant with these projects."""
    name = unique(prefix)
    assert platform.post("/v1/admin/tenants", json={"tenant_id": name}).status_code == 201
    for project in projects:
        made = platform.post("/v1/admin/projects", json={"tenant_id": name, "project_id": project})
        assert made.status_code == 201
    return name


def issue(client: httpx.Client, **fields: Any) -> dict[str, Any]:
    """A new key, issued over HTTP."""
    answer = client.post("/v1/admin/keys", json={"agent_id": "robin", "project_id": "default", **fields})
    assert answer.status_code == 201, answer.text
    return answer.json()


# Tenants


def test_a_tenant_is_created_once_and_then_found(platform: httpx.Client) -> None:
    name = unique("acme")
    first = platform.post("/v1/admin/tenants", json={"tenant_id": name, "name": "Acme"})
    assert first.status_code == 201
    assert first.json()["created"] is True
    assert first.json()["tenant"]["tenant_id"] == name
    assert first.json()["tenant"]["name"] == "Acme"
    again = platform.post("/v1/admin/tenants", json={"tenant_id": name, "name": "Another name"})
    assert again.status_code == 200
    assert again.json() == {"tenant": first.json()["tenant"], "created": False}


@pytest.mark.parametrize(("method", "path"), PLATFORM_ROUTES)
@pytest.mark.parametrize("kind", ["agent", "admin"])
def test_only_the_platform_key_makes_and_lists_tenants(
    method: str, path: str, kind: str, tenant: str, as_key: Clients, platform: httpx.Client
) -> None:
    arguments = body_of(method, path)
    key = issue(platform, tenant_id=tenant, kind=kind)["key"]
    refused(as_key(key).request(method, path, **arguments), 403, "wrong_key_kind")
    if method == "POST":
        made = [row["tenant_id"] for row in walk(platform, path, "tenants", 200)]
        assert arguments["json"]["tenant_id"] not in made


@pytest.mark.parametrize("limit", [1, 2, 200])
def test_pages_of_tenants_name_each_tenant_once_in_order(platform: httpx.Client, limit: int) -> None:
    mine = sorted(unique("paged") for _ in range(3))
    for name in mine:
        platform.post("/v1/admin/tenants", json={"tenant_id": name})
    listed = [row["tenant_id"] for row in walk(platform, "/v1/admin/tenants", "tenants", limit)]
    assert len(listed) == len(set(listed))
    assert [name for name in listed if name in mine] == mine


def test_a_new_tenant_is_ready_for_projects_and_keys_over_http_alone(platform: httpx.Client, as_key: Clients) -> None:
    name = unique("fresh")
    platform.post("/v1/admin/tenants", json={"tenant_id": name})
    assert platform.post("/v1/admin/projects", json={"tenant_id": name, "project_id": "garden"}).status_code == 201
    key = issue(platform, tenant_id=name, project_id="garden")
    assert key["tenant_id"] == name
    me = as_key(key["key"]).get("/v1/whoami").json()
    assert (me["tenant_id"], me["project_id"], me["agent_id"], me["kind"]) == (name, "garden", "robin", "agent")


# Projects


def test_a_project_is_created_once_and_then_found(admin: httpx.Client) -> None:
    first = admin.post("/v1/admin/projects", json={"project_id": "atlas", "name": "Atlas"})
    assert first.status_code == 201
    assert first.json()["created"] is True
    assert first.json()["project"]["name"] == "Atlas"
    again = admin.post("/v1/admin/projects", json={"project_id": "atlas", "name": "Another name"})
    assert again.status_code == 200
    assert again.json() == {"project": first.json()["project"], "created": False}


@pytest.mark.parametrize("limit", [1, 2, 200])
def test_pages_of_projects_name_each_project_once_in_order(admin: httpx.Client, limit: int) -> None:
    for name in ("zeta", "alpha", "mid-1", "mid_2"):
        admin.post("/v1/admin/projects", json={"project_id": name})
    listed = [row["project_id"] for row in walk(admin, "/v1/admin/projects", "projects", limit)]
    assert len(listed) == 6
    assert set(listed) == {"default", "other", "zeta", "alpha", "mid-1", "mid_2"}


def test_two_tenants_may_have_projects_of_the_same_name(admin: httpx.Client, stranger: httpx.Client) -> None:
    assert admin.post("/v1/admin/projects", json={"project_id": "shared", "name": "ours"}).status_code == 201
    theirs = stranger.post("/v1/admin/projects", json={"project_id": "shared", "name": "theirs"})
    assert theirs.status_code == 201
    names = {row["project_id"]: row["name"] for row in walk(admin, "/v1/admin/projects", "projects", 200)}
    assert names["shared"] == "ours"


@pytest.mark.parametrize("project", ["third", "other"])
def test_an_admin_key_bound_to_a_project_creates_no_other(
    admin: httpx.Client, bound_admin: httpx.Client, project: str
) -> None:
    answer = bound_admin.post("/v1/admin/projects", json={"project_id": project})
    refused(answer, 403, "project_forbidden", "forbidden")
    assert {row["project_id"] for row in walk(admin, "/v1/admin/projects", "projects", 200)} == {"default", "other"}


def test_an_admin_key_bound_to_a_project_finds_its_own_only(bound_admin: httpx.Client) -> None:
    again = bound_admin.post("/v1/admin/projects", json={"project_id": "default"})
    assert (again.status_code, again.json()["created"]) == (200, False)
    assert [row["project_id"] for row in walk(bound_admin, "/v1/admin/projects", "projects", 1)] == ["default"]


# The platform key in a tenant's affairs


@pytest.mark.parametrize(("method", "path"), ADMIN_ROUTES)
def test_the_platform_key_has_to_name_a_tenant(platform: httpx.Client, method: str, path: str) -> None:
    answer = platform.request(method, path.format(key_id=uuid4()), **body_of(method, path))
    refused(answer, 400, "tenant_required")


@pytest.mark.parametrize("path", ["/v1/admin/projects", "/v1/admin/keys"])
def test_nothing_is_made_in_a_tenant_that_is_not_there(platform: httpx.Client, path: str) -> None:
    answer = platform.post(path, **body_of("POST", path, tenant_id=unique("absent")))
    refused(answer, 404, "tenant_not_found")


def test_the_platform_key_manages_the_tenant_it_names(platform: httpx.Client, tenant: str, as_key: Clients) -> None:
    key = issue(platform, tenant_id=tenant)
    place = {"tenant_id": tenant}
    assert [row["key_id"] for row in walk(platform, "/v1/admin/keys", "keys", 1, **place)] == [key["key_id"]]
    listed = {row["project_id"] for row in walk(platform, "/v1/admin/projects", "projects", 1, **place)}
    assert listed == {"default", "other"}
    rotated = platform.post(f"/v1/admin/keys/{key['key_id']}/rotate", params=place)
    assert rotated.status_code == 200
    assert as_key(rotated.json()["key"]).get("/v1/whoami").status_code == 200
    assert platform.delete(f"/v1/admin/keys/{key['key_id']}", params=place).status_code == 204
    refused(as_key(rotated.json()["key"]).get("/v1/whoami"), 401, "key_revoked")


@pytest.mark.parametrize("path", ["/v1/gardens", "/v1/jobs", "/v1/jobs/018f0000-0000-7000-8000-0000000000ff"])
def test_the_platform_key_reads_nothing_of_a_tenant(platform: httpx.Client, path: str) -> None:
    refused(platform.get(path, headers={"X-Project-Id": "default"}), 403, "wrong_key_kind")


# Who may administer


@pytest.mark.parametrize(("method", "path"), ADMIN_ROUTES)
def test_an_agent_key_administers_nothing(admin: httpx.Client, as_key: Clients, method: str, path: str) -> None:
    victim = issue(admin)
    agent = as_key(issue(admin, agent_id="wren")["key"])
    answer = agent.request(method, path.format(key_id=victim["key_id"]), **body_of(method, path))
    refused(answer, 403, "wrong_key_kind")
    assert as_key(victim["key"]).get("/v1/whoami").status_code == 200


@pytest.mark.parametrize(("method", "path"), ADMIN_ROUTES)
def test_an_admin_key_without_the_scope_admin_administers_nothing(
    admin: httpx.Client, as_key: Clients, method: str, path: str
) -> None:
    weak = issue(admin, kind="admin", scopes=["notes:read"], project_id=None)
    answer = as_key(weak["key"]).request(method, path.format(key_id=weak["key_id"]), **body_of(method, path))
    refused(answer, 403, "missing_scope")


@pytest.mark.parametrize(("method", "path"), ADMIN_ROUTES)
def test_naming_another_tenant_is_answered_as_if_it_were_not_there(
    tenant: str, admin: httpx.Client, stranger: httpx.Client, as_key: Clients, method: str, path: str
) -> None:
    ours = issue(admin)
    address = path.format(key_id=ours["key_id"])
    theirs = stranger.request(method, address, **body_of(method, path, tenant_id=tenant))
    absent = stranger.request(method, address, **body_of(method, path, tenant_id=unique("absent")))
    refused(theirs, 404, "tenant_not_found")
    refused(absent, 404, "tenant_not_found")
    assert as_key(ours["key"]).get("/v1/whoami").status_code == 200


def test_naming_the_own_tenant_is_allowed(tenant: str, admin: httpx.Client) -> None:
    assert issue(admin, tenant_id=tenant)["tenant_id"] == tenant
    assert admin.get("/v1/admin/keys", params={"tenant_id": tenant}).status_code == 200


def test_another_tenants_keys_and_projects_are_in_no_list(admin: httpx.Client, stranger: httpx.Client) -> None:
    ours = issue(admin)["key_id"]
    admin.post("/v1/admin/projects", json={"project_id": "only-ours"})
    assert ours in {row["key_id"] for row in walk(admin, "/v1/admin/keys", "keys", 200)}
    assert ours not in {row["key_id"] for row in walk(stranger, "/v1/admin/keys", "keys", 200)}
    seen = {row["project_id"] for row in walk(stranger, "/v1/admin/projects", "projects", 200)}
    assert seen == {"default"}


def test_another_tenants_key_can_neither_be_rotated_nor_revoked(
    admin: httpx.Client, stranger: httpx.Client, as_key: Clients
) -> None:
    ours = issue(admin)
    refused(stranger.delete(f"/v1/admin/keys/{ours['key_id']}"), 404, "key_not_found")
    refused(stranger.post(f"/v1/admin/keys/{ours['key_id']}/rotate", json={}), 404, "key_not_found")
    assert as_key(ours["key"]).get("/v1/whoami").status_code == 200


def test_an_unknown_key_can_neither_be_rotated_nor_revoked(admin: httpx.Client) -> None:
    refused(admin.delete(f"/v1/admin/keys/{uuid4()}"), 404, "key_not_found")
    refused(admin.post(f"/v1/admin/keys/{uuid4()}/rotate", json={}), 404, "key_not_found")


def test_an_admin_key_bound_to_a_project_lists_that_projects_keys_only(
    admin: httpx.Client, bound_admin: httpx.Client
) -> None:
    inside = issue(admin, project_id="default")["key_id"]
    elsewhere = issue(admin, project_id="other")["key_id"]
    spanning = issue(admin, project_id=None)["key_id"]
    listed = {row["key_id"] for row in walk(bound_admin, "/v1/admin/keys", "keys", 1)}
    assert inside in listed
    assert listed.isdisjoint({elsewhere, spanning})
    assert {inside, elsewhere, spanning} <= {row["key_id"] for row in walk(admin, "/v1/admin/keys", "keys", 1)}


@pytest.mark.parametrize("project", ["other", None])
def test_an_admin_key_bound_to_a_project_cannot_touch_keys_beyond_it(
    admin: httpx.Client, bound_admin: httpx.Client, as_key: Clients, project: str | None
) -> None:
    beyond = issue(admin, project_id=project)
    refused(bound_admin.delete(f"/v1/admin/keys/{beyond['key_id']}"), 404, "key_not_found")
    refused(bound_admin.post(f"/v1/admin/keys/{beyond['key_id']}/rotate", json={}), 404, "key_not_found")
    assert as_key(beyond["key"]).get("/v1/whoami").status_code == 200


@pytest.mark.parametrize("project", ["other", None])
@pytest.mark.parametrize("kind", ["agent", "admin"])
def test_an_admin_key_bound_to_a_project_issues_no_keys_beyond_it(
    admin: httpx.Client, bound_admin: httpx.Client, project: str | None, kind: str
) -> None:
    before = len(walk(admin, "/v1/admin/keys", "keys", 200))
    fields = {"kind": kind, "agent_id": "wren", "project_id": project}
    refused(bound_admin.post("/v1/admin/keys", json=fields), 403, "project_forbidden")
    assert len(walk(admin, "/v1/admin/keys", "keys", 200)) == before


def test_an_admin_key_bound_to_a_project_manages_that_projects_keys(bound_admin: httpx.Client, as_key: Clients) -> None:
    key = issue(bound_admin, project_id="default")
    rotated = bound_admin.post(f"/v1/admin/keys/{key['key_id']}/rotate", json={}).json()
    assert as_key(rotated["key"]).get("/v1/whoami").json()["project_id"] == "default"
    assert bound_admin.delete(f"/v1/admin/keys/{key['key_id']}").status_code == 204
    refused(as_key(rotated["key"]).get("/v1/whoami"), 401, "key_revoked")


# Issuing keys


def test_a_key_says_what_it_was_issued_for(admin: httpx.Client, as_key: Clients) -> None:
    fields = {"agent_id": "Wren.2:x@y", "project_id": "other", "scopes": ["facts:read", "notes:read"]}
    issued = issue(admin, **fields, name="for the wren")
    assert (issued["kind"], issued["agent_id"], issued["project_id"]) == ("agent", "Wren.2:x@y", "other")
    assert sorted(issued["scopes"]) == ["facts:read", "notes:read"]
    me = as_key(issued["key"]).get("/v1/whoami").json()
    assert (me["agent_id"], me["project_id"], me["key_id"]) == ("Wren.2:x@y", "other", issued["key_id"])
    assert me["scopes"] == ["facts:read", "notes:read"]
    listed = {row["key_id"]: row for row in walk(admin, "/v1/admin/keys", "keys", 200)}
    assert listed[issued["key_id"]]["name"] == "for the wren"
    assert listed[issued["key_id"]]["revoked_at"] is None


@pytest.mark.parametrize("limit", [1, 2, 200])
def test_pages_of_keys_name_each_key_once_and_never_a_secret(admin: httpx.Client, limit: int) -> None:
    issued = [issue(admin, name=f"key {number}") for number in range(4)]
    listed = walk(admin, "/v1/admin/keys", "keys", limit)
    ids = [row["key_id"] for row in listed]
    assert len(ids) == len(set(ids)) == 5
    assert [row["name"] for row in listed][1:] == [f"key {number}" for number in range(4)]
    for row in listed:
        assert set(row) == KEY_FIELDS
    text = admin.get("/v1/admin/keys").text
    for key in issued:
        assert key["key"].rpartition("_")[2] not in text


@pytest.mark.parametrize("kind", ["agent", "admin"])
def test_a_key_cannot_grant_a_scope_it_does_not_have(admin: httpx.Client, as_key: Clients, kind: str) -> None:
    limited = as_key(issue(admin, kind="admin", project_id=None, scopes=["admin", "notes:read"])["key"])
    before = len(walk(admin, "/v1/admin/keys", "keys", 200))
    fields = {"kind": kind, "agent_id": "wren", "scopes": ["notes:read", "notes:write"]}
    refused(limited.post("/v1/admin/keys", json=fields), 403, "scope_escalation")
    assert len(walk(admin, "/v1/admin/keys", "keys", 200)) == before


@pytest.mark.parametrize("kind", ["agent", "admin"])
def test_a_key_issued_without_named_scopes_has_no_more_than_its_issuer(
    admin: httpx.Client, as_key: Clients, kind: str
) -> None:
    limited = as_key(issue(admin, kind="admin", project_id=None, scopes=["admin", "notes:read"])["key"])
    issued = issue(limited, kind=kind)
    assert set(issued["scopes"]) <= {"admin", "notes:read"}
    assert as_key(issued["key"]).get("/v1/whoami").json()["scopes"] == sorted(issued["scopes"])


def test_an_agent_key_issued_without_named_scopes_can_read_and_write_but_not_administer(admin: httpx.Client) -> None:
    scopes = set(issue(admin)["scopes"])
    assert {"notes:read", "notes:write", "facts:read", "facts:write"} <= scopes
    assert not [scope for scope in scopes if "admin" in scope]


def test_rotating_a_key_does_not_hand_over_scopes_the_caller_lacks(admin: httpx.Client, as_key: Clients) -> None:
    # The answer to a rotation is a working key, so it is a grant like any other.
    limited = as_key(issue(admin, kind="admin", project_id=None, scopes=["admin"])["key"])
    mighty = issue(admin, scopes=["notes:read", "notes:write"])
    refused(limited.post(f"/v1/admin/keys/{mighty['key_id']}/rotate", json={}), 403, "scope_escalation")
    assert as_key(mighty["key"]).get("/v1/whoami").status_code == 200


@pytest.mark.parametrize(
    ("fields", "codes"),
    [
        ({"scopes": ["notes:read", "notes:fly"]}, {"unknown_scope"}),
        ({"scopes": ["ADMIN"]}, {"unknown_scope"}),
        ({"scopes": ["admin"]}, {"invalid_scope"}),
        ({"scopes": ["notes:read", "admin"]}, {"invalid_scope"}),
        ({"agent_id": None}, {"invalid_request"}),
        ({"agent_id": "has space"}, {"invalid_request"}),
        ({"kind": "platform"}, {"invalid_request"}),
        ({"project_id": "absent"}, {"project_not_found"}),
        ({"expires_at": "2020-01-01T00:00:00Z"}, {"invalid_request"}),
        ({"expires_at": "2999-01-01T00:00:00"}, {"invalid_request"}),
        ({"rate_limits": {"read": -1}}, {"invalid_request"}),
        ({"rate_limits": {"fly": 1}}, {"invalid_request"}),
    ],
)
def test_an_invalid_key_is_not_issued(admin: httpx.Client, fields: dict[str, Any], codes: set[str]) -> None:
    before = len(walk(admin, "/v1/admin/keys", "keys", 200))
    answer = admin.post("/v1/admin/keys", json={"agent_id": "wren", "project_id": "default", **fields})
    refused(answer, 400, *codes)
    assert len(walk(admin, "/v1/admin/keys", "keys", 200)) == before


def test_a_key_with_the_farthest_expiry_can_be_listed_rotated_and_revoked(admin: httpx.Client) -> None:
    # Read in UTC this moment lies in the year 10000.
    answer = admin.post("/v1/admin/keys", json={"agent_id": "wren", "expires_at": "9999-12-31T23:59:59-23:59"})
    assert answer.status_code in {201, 400}, answer.text
    if answer.status_code == 201:
        key_id = answer.json()["key_id"]
        assert admin.post(f"/v1/admin/keys/{key_id}/rotate").status_code == 200
        assert admin.delete(f"/v1/admin/keys/{key_id}").status_code == 204
    assert admin.get("/v1/admin/keys").status_code == 200


# Expiry, revocation, rotation


def test_a_key_is_refused_once_it_has_expired(admin: httpx.Client, as_key: Clients) -> None:
    moment = datetime.now(UTC) + timedelta(seconds=2)
    key = as_key(issue(admin, expires_at=moment.isoformat())["key"])
    assert key.get("/v1/whoami").status_code == 200
    refused(until(lambda: key.get("/v1/whoami"), 401), 401, "key_expired")
    assert datetime.now(UTC) >= moment - timedelta(seconds=0.1)
    refused(key.get(f"/v1/jobs/{uuid4()}"), 401, "key_expired")


def test_a_revoked_key_is_refused_at_the_next_request(admin: httpx.Client, as_key: Clients) -> None:
    issued = issue(admin)
    key = as_key(issued["key"])
    assert key.get("/v1/whoami").status_code == 200
    assert admin.delete(f"/v1/admin/keys/{issued['key_id']}").status_code == 204
    refused(key.get("/v1/whoami"), 401, "key_revoked")
    refused(key.get(f"/v1/jobs/{uuid4()}"), 401, "key_revoked")
    refused(key.post("/v1/gardens", json={"slug": "late"}), 401, "key_revoked")


def test_revoking_twice_is_no_error_and_keeps_the_first_moment(admin: httpx.Client) -> None:
    issued = issue(admin)

    def revoked_at() -> str | None:
        listed = {row["key_id"]: row for row in walk(admin, "/v1/admin/keys", "keys", 200)}
        return listed[issued["key_id"]]["revoked_at"]

    assert revoked_at() is None
    assert admin.delete(f"/v1/admin/keys/{issued['key_id']}").status_code == 204
    first = revoked_at()
    assert first is not None
    assert admin.delete(f"/v1/admin/keys/{issued['key_id']}").status_code == 204
    assert revoked_at() == first


def test_a_revoked_key_cannot_be_rotated(admin: httpx.Client) -> None:
    issued = issue(admin)
    admin.delete(f"/v1/admin/keys/{issued['key_id']}")
    refused(admin.post(f"/v1/admin/keys/{issued['key_id']}/rotate", json={}), 409, "key_revoked")


@pytest.mark.parametrize("arguments", [{}, {"json": {}}, {"json": {"grace_seconds": 0}}])
def test_a_rotated_keys_old_secret_is_refused_at_once(
    admin: httpx.Client, as_key: Clients, arguments: dict[str, Any]
) -> None:
    old = issue(admin, scopes=["notes:read"])
    rotated = admin.post(f"/v1/admin/keys/{old['key_id']}/rotate", **arguments)
    assert rotated.status_code == 200
    new = rotated.json()
    assert new["key"] != old["key"]
    assert {**new, "key": None} == {**old, "key": None}
    refused(as_key(old["key"]).get("/v1/whoami"), 401, "key_unknown")
    me = as_key(new["key"]).get("/v1/whoami")
    assert (me.status_code, me.json()["key_id"], me.json()["scopes"]) == (200, old["key_id"], ["notes:read"])


def test_within_the_grace_both_secrets_work_and_then_only_the_new_one(admin: httpx.Client, as_key: Clients) -> None:
    issued = issue(admin)
    answer = admin.post(f"/v1/admin/keys/{issued['key_id']}/rotate", json={"grace_seconds": 2})
    old, new = as_key(issued["key"]), as_key(answer.json()["key"])
    assert old.get("/v1/whoami").status_code == 200
    assert new.get("/v1/whoami").status_code == 200
    refused(until(lambda: old.get("/v1/whoami"), 401), 401, "key_unknown")
    assert new.get("/v1/whoami").status_code == 200


def test_a_second_rotation_ends_the_grace_of_the_first_secret(admin: httpx.Client, as_key: Clients) -> None:
    first = issue(admin)
    rotate = f"/v1/admin/keys/{first['key_id']}/rotate"
    second = admin.post(rotate, json={"grace_seconds": 600}).json()
    third = admin.post(rotate, json={"grace_seconds": 600}).json()
    statuses = [as_key(key["key"]).get("/v1/whoami").status_code for key in (first, second, third)]
    assert statuses == [401, 200, 200]


def test_revoking_ends_the_grace_too(admin: httpx.Client, as_key: Clients) -> None:
    old = issue(admin)
    new = admin.post(f"/v1/admin/keys/{old['key_id']}/rotate", json={"grace_seconds": 600}).json()
    admin.delete(f"/v1/admin/keys/{old['key_id']}")
    assert [as_key(key["key"]).get("/v1/whoami").status_code for key in (old, new)] == [401, 401]


@pytest.mark.parametrize("grace", [-1, 7 * 86400 + 1])
def test_a_grace_beyond_its_bounds_rotates_nothing(admin: httpx.Client, as_key: Clients, grace: int) -> None:
    issued = issue(admin)
    answer = admin.post(f"/v1/admin/keys/{issued['key_id']}/rotate", json={"grace_seconds": grace})
    refused(answer, 400, "invalid_request")
    assert as_key(issued["key"]).get("/v1/whoami").status_code == 200


def test_an_administrator_may_rotate_its_own_key(admin: httpx.Client, as_key: Clients) -> None:
    mine = admin.get("/v1/whoami").json()["key_id"]
    new = admin.post(f"/v1/admin/keys/{mine}/rotate").json()["key"]
    refused(admin.get("/v1/admin/keys"), 401, "key_unknown")
    assert as_key(new).get("/v1/admin/keys").status_code == 200


# X-Project-Id


@pytest.mark.parametrize("kind", ["agent", "admin"])
def test_a_key_that_spans_projects_has_to_name_one(admin: httpx.Client, as_key: Clients, kind: str) -> None:
    key = issue(admin, kind=kind, project_id=None)["key"]
    refused(as_key(key).get("/v1/gardens"), 400, "project_required")
    refused(as_key(key).post("/v1/gardens", json={"slug": "nowhere"}), 400, "project_required")
    for project in ("default", "other"):
        assert as_key(key, project).get("/v1/gardens").status_code == 200
        assert as_key(key, project).get("/v1/whoami").json()["project_id"] == project


def test_without_a_named_project_a_spanning_key_still_learns_who_it_is(admin: httpx.Client) -> None:
    me = admin.get("/v1/whoami")
    assert (me.status_code, me.json()["project_id"]) == (200, None)


@pytest.mark.parametrize("kind", ["agent", "admin"])
def test_an_unknown_project_is_not_found(admin: httpx.Client, as_key: Clients, kind: str) -> None:
    key = issue(admin, kind=kind, project_id=None)["key"]
    refused(as_key(key, "absent").get("/v1/gardens"), 404, "project_not_found")
    refused(as_key(key, "absent").get(f"/v1/jobs/{uuid4()}"), 404, "project_not_found")


def test_another_tenants_project_is_not_found(admin: httpx.Client, stranger: httpx.Client, as_key: Clients) -> None:
    stranger.post("/v1/admin/projects", json={"project_id": "only-theirs"})
    key = issue(admin, project_id=None)["key"]
    refused(as_key(key, "only-theirs").get("/v1/gardens"), 404, "project_not_found")


@pytest.mark.parametrize("project", ["other", "absent"])
@pytest.mark.parametrize("kind", ["agent", "admin"])
def test_a_bound_key_may_not_name_another_project(
    admin: httpx.Client, as_key: Clients, kind: str, project: str
) -> None:
    key = issue(admin, kind=kind, project_id="default")["key"]
    refused(as_key(key, project).get("/v1/gardens"), 403, "project_forbidden")
    refused(as_key(key, project).get("/v1/whoami"), 403, "project_forbidden")
    assert as_key(key, "default").get("/v1/gardens").status_code == 200
    assert as_key(key).get("/v1/gardens").status_code == 200
