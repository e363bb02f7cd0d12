"""Jobs over HTTP: follow, list, cancel, retry, within one's own reach."""

import asyncio
from collections.abc import Callable
from typing import Any
from uuid import uuid4

import httpx
import psycopg
import pytest

from app.cli.administration import with_database
from app.db.scope import Scope
from app.jobs.queue import NewJob, enqueue
from tests.conftest import Tenancy, TestDatabase

Clients = Callable[..., httpx.Client]


@pytest.fixture(scope="module", autouse=True)
def tenants(tenancy: Tenancy) -> None:
    tenancy.tenant("acme", "default", "other")
    tenancy.tenant("rival")


def put(
    database: TestDatabase, tenant: str = "acme", project: str | None = "default", agent: str = "robin", **fields: Any
) -> str:
    who = Scope(tenant_id=tenant, project_id=project, agent_id=agent, reach="" if project else "cross_project")

    async def work(db: Any) -> str:
        async with db.tenant(who) as session:
            return await enqueue(session, who, job=NewJob(**{"kind": "work", **fields}))

    return with_database(database.settings(), work)


def change(database: TestDatabase, job_id: str, **values: Any) -> None:
    assignments = ", ".join(f"{name} = %({name})s" for name in values)
    with psycopg.connect(database.superuser, autocommit=True) as connection:
        connection.execute(
            f"UPDATE jobs SET {assignments} WHERE job_id = %(job_id)s".encode(), {**values, "job_id": job_id}
        )


def test_a_job_is_followed_by_its_id(database: TestDatabase, tenancy: Tenancy, as_key: Clients) -> None:
    job_id = put(database, payload={"secret": "marker-7261"})
    answer = as_key(tenancy.key("acme")).get(f"/v1/jobs/{job_id}")
    assert answer.status_code == 200
    assert answer.json()["status"] == "pending"
    assert "marker-7261" not in answer.text


def test_jobs_of_another_project_or_tenant_are_not_found(
    database: TestDatabase, tenancy: Tenancy, as_key: Clients
) -> None:
    job_id = put(database)
    bodies = []
    for key in (tenancy.key("rival"), tenancy.key("acme", project_id="other"), tenancy.key("rival", kind="admin")):
        answer = as_key(key).get(f"/v1/jobs/{job_id}")
        assert answer.status_code == 404
        bodies.append({**answer.json()["error"], "request_id": ""})
        assert as_key(key).post(f"/v1/jobs/{job_id}/cancel").status_code == 404
    unknown = as_key(tenancy.key("acme")).get(f"/v1/jobs/{uuid4()}")
    assert unknown.status_code == 404
    assert bodies == [{**unknown.json()["error"], "request_id": ""}] * 3


def test_a_key_without_a_fitting_scope_is_refused(database: TestDatabase, tenancy: Tenancy, as_key: Clients) -> None:
    job_id = put(database)
    answer = as_key(tenancy.key("acme", scopes=["history:as_of"])).get(f"/v1/jobs/{job_id}")
    assert answer.status_code == 403
    assert answer.json()["error"]["code"] == "missing_scope"
    reader = as_key(tenancy.key("acme", scopes=["notes:read"]))
    assert reader.get(f"/v1/jobs/{job_id}").status_code == 200
    assert reader.post(f"/v1/jobs/{job_id}/cancel").status_code == 403


def test_a_spanning_agent_key_has_to_name_a_project_and_an_admin_key_not(
    database: TestDatabase, tenancy: Tenancy, as_key: Clients
) -> None:
    job_id = put(database)
    spanning = tenancy.key("acme", project_id=None)
    assert as_key(spanning).get(f"/v1/jobs/{job_id}").json()["error"]["code"] == "project_required"
    assert as_key(spanning, "default").get(f"/v1/jobs/{job_id}").status_code == 200
    assert as_key(spanning, "other").get(f"/v1/jobs/{job_id}").status_code == 404
    assert as_key(tenancy.key("acme", kind="admin")).get(f"/v1/jobs/{job_id}").status_code == 200


def test_a_revoked_key_is_refused_on_the_hot_path_too(
    database: TestDatabase, tenancy: Tenancy, as_key: Clients
) -> None:
    job_id = put(database)
    issued = tenancy.issue("acme")
    client, admin = as_key(issued["key"]), as_key(tenancy.key("acme", kind="admin"))
    assert client.get(f"/v1/jobs/{job_id}").status_code == 200
    assert admin.delete(f"/v1/admin/keys/{issued['key_id']}").status_code == 204
    assert client.get(f"/v1/jobs/{job_id}").json()["error"]["code"] == "key_revoked"


def test_the_list_pages_newest_first_and_filters(database: TestDatabase, tenancy: Tenancy, as_key: Clients) -> None:
    tenancy.tenant("lister")
    made = [put(database, "lister", kind=f"kind_{number % 2}") for number in range(7)]
    client = as_key(tenancy.key("lister"))
    seen: list[str] = []
    cursor: str | None = None
    while True:
        page = client.get("/v1/jobs", params={"limit": 3} | ({"cursor": cursor} if cursor else {})).json()
        seen += [job["job_id"] for job in page["jobs"]]
        cursor = page["next_cursor"]
        if cursor is None:
            break
    assert seen == made[::-1]
    some = client.get("/v1/jobs", params={"kind": "kind_1"}).json()["jobs"]
    assert {job["kind"] for job in some} == {"kind_1"}
    assert len(some) == 3
    assert client.get("/v1/jobs", params={"status": "dead"}).json() == {"jobs": [], "next_cursor": None}
    assert client.get("/v1/jobs", params={"kind": "never_heard_of"}).json() == {"jobs": [], "next_cursor": None}


def test_pending_and_running_jobs_can_be_cancelled_and_ended_ones_not(
    database: TestDatabase, tenancy: Tenancy, as_key: Clients
) -> None:
    client = as_key(tenancy.key("acme"))
    pending, running, ended = put(database), put(database), put(database)
    change(database, running, status="leased", lease_owner="w", attempts=1)
    change(database, ended, status="completed")
    assert client.post(f"/v1/jobs/{pending}/cancel").json()["job"]["status"] == "cancelled"
    assert client.post(f"/v1/jobs/{running}/cancel").json()["job"]["status"] == "cancelled"
    refused = client.post(f"/v1/jobs/{ended}/cancel")
    assert (refused.status_code, refused.json()["error"]["code"]) == (409, "job_not_cancellable")
    assert client.post(f"/v1/jobs/{pending}/cancel").status_code == 409


def test_ended_jobs_can_be_retried_with_fresh_attempts(
    database: TestDatabase, tenancy: Tenancy, as_key: Clients
) -> None:
    client = as_key(tenancy.key("acme"))
    job_id = put(database, dedupe_key="once")
    assert client.post(f"/v1/jobs/{job_id}/retry").json()["error"]["code"] == "job_not_retryable"
    change(database, job_id, status="dead", attempts=5, last_error="ValueError: marker-5512")
    answer = client.post(f"/v1/jobs/{job_id}/retry")
    assert (answer.status_code, answer.json()["job"]["status"], answer.json()["job"]["attempts"]) == (200, "pending", 0)
    change(database, job_id, status="dead")
    put(database, dedupe_key="once")
    assert client.post(f"/v1/jobs/{job_id}/retry").json()["error"]["code"] == "job_already_open"


def test_only_its_creator_or_an_admin_changes_a_job(database: TestDatabase, tenancy: Tenancy, as_key: Clients) -> None:
    job_id = put(database, agent="robin")
    stranger = as_key(tenancy.key("acme", agent_id="mallory"))
    assert stranger.post(f"/v1/jobs/{job_id}/cancel").json()["error"]["code"] == "not_your_job"
    admin = as_key(tenancy.key("acme", kind="admin", project_id="default"))
    assert admin.post(f"/v1/jobs/{job_id}/cancel").status_code == 200


def test_only_its_creator_and_admins_see_the_error_message(
    database: TestDatabase, tenancy: Tenancy, as_key: Clients
) -> None:
    job_id = put(database)
    change(database, job_id, status="dead", last_error="ValueError: the words marker-9981")
    assert as_key(tenancy.key("acme")).get(f"/v1/jobs/{job_id}").json()["last_error"] == "ValueError"
    admin = as_key(tenancy.key("acme", kind="admin"))
    assert admin.get(f"/v1/jobs/{job_id}").json()["last_error"] == "ValueError: the words marker-9981"


def test_a_tenant_wide_job_is_for_administrators(database: TestDatabase, tenancy: Tenancy, as_key: Clients) -> None:
    job_id = put(database, project=None)
    assert as_key(tenancy.key("acme")).get(f"/v1/jobs/{job_id}").status_code == 404
    assert as_key(tenancy.key("acme", kind="admin", project_id="default")).get(f"/v1/jobs/{job_id}").status_code == 404
    assert as_key(tenancy.key("acme", kind="admin")).get(f"/v1/jobs/{job_id}").status_code == 200


def test_many_readers_at_once_get_their_own_answers(database: TestDatabase, tenancy: Tenancy, service: Any) -> None:
    jobs = {tenant: put(database, tenant) for tenant in ("acme", "rival")}
    keys = {tenant: tenancy.key(tenant) for tenant in jobs}

    async def run() -> list[tuple[str, str, int]]:
        async with httpx.AsyncClient(base_url=service.url, timeout=600) as client:

            async def ask(who: str, whose: str) -> tuple[str, str, int]:
                headers = {"Authorization": f"Bearer {keys[who]}"}
                return who, whose, (await client.get(f"/v1/jobs/{jobs[whose]}", headers=headers)).status_code

            pairs = [(who, whose) for who in jobs for whose in jobs] * 100
            return await asyncio.gather(*(ask(*pair) for pair in pairs))

    for who, whose, status in asyncio.run(run()):
        assert status == (200 if who == whose else 404)
