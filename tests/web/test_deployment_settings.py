"""Settings of a deployment take effect in the running service."""

import base64
import time
from collections.abc import Callable, Iterator
from typing import Any

import httpx
import msgspec
import psycopg
import pytest

from app.config import Settings, read_settings
from app.errors import ConfigError
from tests.conftest import Tenancy, TestDatabase
from tests.service import RunningService, start_service

SETTINGS = {
    "CURSOR_TTL_SECONDS": "20",
    "CARD_MAX_AGE_SECONDS": "3600",
    "RATE_LIMIT_EXPAND": "2",
    "RETENTION_DELETED_DAYS": "60",
    "RETENTION_HISTORY_DAYS": "400",
    "RETENTION_FINISHED_JOBS_DAYS": "3",
    "RETENTION_FAILED_JOBS_DAYS": "5",
    "RETENTION_RECORDS_DAYS": "7",
}


@pytest.fixture(scope="module")
def service(database: TestDatabase) -> Iterator[RunningService]:
    with start_service(database.url("app"), **SETTINGS) as running:
        yield running


@pytest.fixture(scope="module")
def keys(tenancy: Tenancy) -> dict[str, str]:
    tenancy.tenant("acme")
    return {"agent": tenancy.key("acme"), "admin": tenancy.key("acme", kind="admin")}


@pytest.fixture
def agent(keys: dict[str, str], as_key: Callable[..., httpx.Client]) -> httpx.Client:
    return as_key(keys["agent"])


@pytest.fixture
def admin(keys: dict[str, str], as_key: Callable[..., httpx.Client]) -> httpx.Client:
    return as_key(keys["admin"], "default")


@pytest.fixture(scope="module")
def superuser(database: TestDatabase) -> Iterator[psycopg.Connection[Any]]:
    with psycopg.connect(database.superuser, autocommit=True) as connection:
        yield connection


def test_cursors_expire_after_the_time_that_is_set(agent: httpx.Client) -> None:
    for number in range(2):
        agent.post("/v1/notes", json={"content": f"note {number}"}).raise_for_status()
    before = int(time.time())
    cursor = agent.get("/v1/notes", params={"limit": 1}).json()["next_cursor"]
    expires, _ = msgspec.msgpack.decode(base64.urlsafe_b64decode(cursor + "=" * (-len(cursor) % 4))[16:])
    assert before + 20 <= expires <= int(time.time()) + 20


def test_cards_are_stale_at_the_age_that_is_set(agent: httpx.Client, superuser: psycopg.Connection[Any]) -> None:
    agent.post("/v1/facts", json={"subject": "Ada", "predicate": "likes", "object": {"value": "tea"}})
    asked = {"entity": "Ada", "force_refresh": "true"}
    (card,) = agent.get("/v1/cards", params=asked).json()["cards"]
    superuser.execute(
        "UPDATE graph_facts SET valid_from = now() - interval '1 day', updated_at = now() - interval '1 day'"
    )
    for seconds, stale in ((3000, False), (4000, True)):
        superuser.execute("UPDATE memory_cards SET built_at = now() - make_interval(secs => %s)", (seconds,))
        assert agent.get(f"/v1/cards/{card['card_id']}").json()["card_stale"] is stale
        recalled = agent.post("/v1/recall", json={"query": "tea", "entity": "Ada"}).json()
        assert recalled["memory_card"]["card_stale"] is stale


def test_expansions_are_limited_to_the_rate_that_is_set(agent: httpx.Client) -> None:
    root = agent.post("/v1/graph/objects", json={"type": "Thing", "properties": {}}).json()["object"]["id"]
    statuses = [agent.post("/v1/graph/expand", json={"roots": [root]}).status_code for _ in range(3)]
    assert statuses == [200, 200, 429]


def test_rows_are_purged_after_the_days_that_are_set(
    agent: httpx.Client, admin: httpx.Client, superuser: psycopg.Connection[Any]
) -> None:
    notes = [agent.post("/v1/notes", json={"content": f"deleted {n}"}).json()["note"]["note_id"] for n in range(2)]
    for note, days in zip(notes, (59, 61), strict=True):
        superuser.execute(
            "UPDATE memory_notes SET deleted_at = now() - make_interval(days => %s) WHERE note_id = %s", (days, note)
        )
    for status, days in (("completed", 2), ("completed", 4), ("dead", 4), ("dead", 6)):
        superuser.execute(
            "INSERT INTO jobs (tenant_id, project_id, job_id, kind, payload, created_by, status, available_at, "
            "created_at, finished_at) VALUES ('acme', 'default', gen_random_uuid(), 'old', jsonb_build_object('d', "
            "%(days)s), 'test', %(status)s, now(), now(), now() - make_interval(days => %(days)s))",
            {"days": days, "status": status},
        )
    expired = admin.get("/v1/diagnostics").json()["parts"]["storage"]["expired"]
    swept = admin.post("/v1/repair/retention-sweep")
    assert swept.status_code == 200, swept.text
    assert expired == 1
    left = superuser.execute("SELECT note_id::text FROM memory_notes WHERE deleted_at IS NOT NULL").fetchall()
    assert left == [(notes[0],)]
    kept = superuser.execute("SELECT status, (payload ->> 'd')::int FROM jobs WHERE kind = 'old'").fetchall()
    assert sorted(kept) == [("completed", 2), ("dead", 4)]


def test_a_session_is_not_stopped_by_the_default_rate_of_expansions() -> None:
    assert Settings().rate_limit_expand >= 600


@pytest.mark.parametrize(
    ("variable", "value"),
    [
        ("CURSOR_TTL_SECONDS", "9"),
        ("CURSOR_TTL_SECONDS", "86401"),
        ("CARD_MAX_AGE_SECONDS", "59"),
        ("EMBED_MIN_CONFIDENCE", "1.1"),
        ("EMBEDDING_QPS", "-1"),
        # Notes can be recovered for 30 days.
        ("RETENTION_DELETED_DAYS", "29"),
        ("RETENTION_HISTORY_DAYS", "0"),
        ("RETENTION_RECORDS_DAYS", "4000"),
    ],
)
def test_a_setting_out_of_its_bounds_is_refused(variable: str, value: str) -> None:
    with pytest.raises(ConfigError, match=variable):
        read_settings({variable: value})
