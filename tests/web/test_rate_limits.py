"""Rate limits: never above the limit in any minute, over all replicas, without a counter written on every request."""

import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor

import httpx
import psycopg
import pytest

from tests.conftest import Tenancy, TestDatabase
from tests.long import LONG
from tests.service import RunningService, start_service

Clients = Callable[..., httpx.Client]


@pytest.fixture(scope="module", autouse=True)
def tenants(tenancy: Tenancy) -> None:
    tenancy.tenant("acme")


@pytest.fixture(scope="module")
def replica(database: TestDatabase) -> Iterator[RunningService]:
    with start_service(database.url("app")) as running:
        yield running


def test_the_limit_is_reached_and_then_refused_with_a_time_to_wait(tenancy: Tenancy, as_key: Clients) -> None:
    client = as_key(tenancy.key("acme", rate_limits={"read": 25}))
    answers = [client.get("/v1/whoami") for _ in range(40)]
    assert [answer.status_code for answer in answers] == [200] * 25 + [429] * 15
    refused = answers[-1]
    assert refused.json()["error"]["code"] == "rate_limited"
    assert refused.json()["error"]["details"] == {"work": "read", "limit_per_minute": 25}
    assert 1 <= int(refused.headers["retry-after"]) <= 62


def test_kinds_of_work_and_keys_have_budgets_of_their_own(tenancy: Tenancy, as_key: Clients) -> None:
    client = as_key(tenancy.key("acme", rate_limits={"read": 1, "write": 2}))
    assert [client.get("/v1/whoami").status_code for _ in range(2)] == [200, 429]
    made = [client.post("/v1/gardens", json={"slug": f"rate-{number}"}).status_code for number in range(3)]
    assert made == [201, 201, 429]
    assert as_key(tenancy.key("acme", rate_limits={"read": 1})).get("/v1/whoami").status_code == 200


def test_the_hot_path_is_limited_too(tenancy: Tenancy, as_key: Clients) -> None:
    client = as_key(tenancy.key("acme", rate_limits={"read": 3}))
    path = "/v1/jobs/018f0000-0000-7000-8000-000000000000"
    assert [client.get(path).status_code for _ in range(5)] == [404, 404, 404, 429, 429]


def test_zero_means_no_limit(tenancy: Tenancy, as_key: Clients) -> None:
    client = as_key(tenancy.key("acme", rate_limits={"read": 0}))
    assert {client.get("/v1/whoami").status_code for _ in range(50)} == {200}


def test_two_replicas_together_never_pass_the_limit(
    tenancy: Tenancy, service: RunningService, replica: RunningService
) -> None:
    key = tenancy.key("acme", rate_limits={"read": 100})

    def flood(url: str) -> int:
        with httpx.Client(base_url=url, headers={"Authorization": f"Bearer {key}"}, timeout=60) as client:
            return sum(client.get("/v1/whoami").status_code == 200 for _ in range(120))

    with ThreadPoolExecutor(4) as pool:
        passed = sum(pool.map(flood, [service.url, replica.url] * 2))
    assert passed <= 100
    assert passed >= 80, "blocks held by one replica may go unused, but not many"


SECONDS_LATER = """
    UPDATE rate_windows SET slots = ARRAY(
        SELECT slot - %s / 2 FROM unnest(slots) WITH ORDINALITY u (slot, place) ORDER BY place
    ) WHERE key_id = %s"""


def test_no_minute_sees_more_than_the_limit_when_time_passes_in_the_database(
    database: TestDatabase, tenancy: Tenancy, as_key: Clients
) -> None:
    """The short form of the test below: stored slots are moved into the past instead of waiting for a minute."""
    issued = tenancy.issue("acme", rate_limits={"read": 30})
    client = as_key(issued["key"])
    passed: list[float] = []
    skipped = 0

    def ask(seconds: float, *, enough: int = 31) -> None:
        end = time.monotonic() + seconds
        while time.monotonic() < end and len(passed) < enough:
            if client.get("/v1/whoami").status_code == 200:
                passed.append(time.monotonic() + skipped)
            time.sleep(0.02)

    with psycopg.connect(database.superuser, autocommit=True) as connection:
        ask(30, enough=30)
        # Longer than a refusal is remembered in memory: what is refused now is refused by the database.
        ask(2.5)
        assert len(passed) == 30
        # Every request so far lies 50 to 60 seconds back at most, and nothing is free yet.
        skipped = 50 - 2 * int((time.monotonic() - passed[0]) // 2)
        connection.execute(SECONDS_LATER.encode(), (skipped, issued["key_id"]))
        ask(2.5)
        assert len(passed) == 30
        skipped += 20
        connection.execute(SECONDS_LATER.encode(), (20, issued["key_id"]))
        ask(30, enough=31)
    assert len(passed) > 30, "after a minute there is budget again"
    for start in passed:
        assert sum(start <= moment < start + 60 for moment in passed) <= 30


@pytest.mark.slow
@pytest.mark.skipif(not LONG, reason="takes more than a minute: make test-long")
def test_no_minute_wherever_it_starts_sees_more_than_the_limit(tenancy: Tenancy, as_key: Clients) -> None:
    client = as_key(tenancy.key("acme", rate_limits={"read": 30}))
    passed: list[float] = []
    end = time.monotonic() + 70
    while time.monotonic() < end:
        if client.get("/v1/whoami").status_code == 200:
            passed.append(time.monotonic())
        time.sleep(0.12)
    assert len(passed) > 30, "after a minute there is budget again"
    for start in passed:
        assert sum(start <= moment < start + 60 for moment in passed) <= 30


def test_requests_are_counted_in_memory_not_in_the_row(
    database: TestDatabase, tenancy: Tenancy, as_key: Clients
) -> None:
    issued = tenancy.issue("acme", rate_limits={"read": 10_000})
    client = as_key(issued["key"])
    started = time.monotonic()
    assert {client.get("/v1/whoami").status_code for _ in range(200)} == {200}
    slots = (time.monotonic() - started) // 2 + 2
    with psycopg.connect(database.superuser) as connection:
        found = connection.execute(
            "SELECT (SELECT sum(c) FROM unnest(counts) c), cardinality(slots) FROM rate_windows WHERE key_id = %s",
            (issued["key_id"],),
        ).fetchone()
    assert found is not None
    assert found[0] >= 200
    assert found[1] <= slots, "one reservation for each slot of two seconds, not one for each request"


def test_an_administrator_cannot_lift_the_limits(tenancy: Tenancy, as_key: Clients) -> None:
    admin = as_key(tenancy.key("acme", kind="admin"))
    body = {"agent_id": "x", "project_id": "default"}
    for limits in ({"read": 0}, {"write": 10**8}):
        refused = admin.post("/v1/admin/keys", json={**body, "rate_limits": limits})
        assert (refused.status_code, refused.json()["error"]["code"]) == (403, "rate_limit_too_high")
    assert admin.post("/v1/admin/keys", json={**body, "rate_limits": {"read": 5}}).status_code == 201


def test_many_replicas_with_little_to_do_leave_the_budget_to_the_others(
    database: TestDatabase, tenancy: Tenancy
) -> None:
    import asyncio

    from app.config import Settings
    from app.main import open_database
    from app.web.auth import Authenticator, parse_credentials
    from app.web.rate_limits import RateLimiter

    key = tenancy.key("acme", rate_limits={"read": 6000})

    async def run() -> None:
        db = open_database(database.settings())
        await db.open()
        who = await Authenticator(db, None).authenticate(parse_credentials(f"Bearer {key}", None))
        for _ in range(40):
            await RateLimiter(db, Settings()).take(who, "read")
        await db.close()

    asyncio.run(run())
