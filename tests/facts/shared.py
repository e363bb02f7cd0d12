"""Helpers that write and read facts, gardens, tombstones and jobs."""

import asyncio
import hashlib
import json
import time
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any
from uuid import uuid4

import httpx
import psycopg

from app.jobs.worker import Worker
from app.main import build_registry, open_database
from tests.conftest import TestDatabase

Superuser = psycopg.Connection[dict[str, Any]]


def new(word: str = "thing") -> str:
    """Return an unused name."""
    return f"{word} {uuid4().hex[:12]}"


def note(client: httpx.Client, **fields: Any) -> str:
    answer = client.post("/v1/notes", json={"content": new("a note"), **fields})
    assert answer.status_code == 201, answer.text
    return answer.json()["note"]["note_id"]


def predicate(client: httpx.Client, **fields: Any) -> dict[str, Any]:
    answer = client.post("/v1/predicates", json={"name": new("predicate"), **fields})
    assert answer.status_code == 201, answer.text
    return answer.json()["predicate"]


def entity(client: httpx.Client, canonical: str | None = None, **fields: Any) -> dict[str, Any]:
    answer = client.post("/v1/entities", json={"canonical": canonical or new("entity"), **fields})
    assert answer.status_code == 201, answer.text
    return answer.json()["entity"]


def body(subject: Any, name: str, target: Any, **fields: Any) -> dict[str, Any]:
    """A fact to write; an object that is no dict is a value."""
    return {
        "subject": subject,
        "predicate": name,
        "object": target if isinstance(target, dict) else {"value": target},
        **fields,
    }


def write(client: httpx.Client, subject: Any, name: str, target: Any, **fields: Any) -> dict[str, Any]:
    """The whole answer to a fact that is taken."""
    answer = client.post("/v1/facts", json=body(subject, name, target, **fields))
    assert answer.status_code in (200, 201), answer.text
    assert (answer.json()["outcome"] == "created") == (answer.status_code == 201)
    return answer.json()


def fact(client: httpx.Client, subject: Any, name: str, target: Any, **fields: Any) -> dict[str, Any]:
    return write(client, subject, name, target, **fields)["fact"]


def listed(client: httpx.Client, **params: Any) -> list[dict[str, Any]]:
    answer = client.get("/v1/facts", params={"limit": 200, **params})
    assert answer.status_code == 200, answer.text
    return answer.json()["facts"]


def ids(facts: list[dict[str, Any]]) -> list[str]:
    return [item["fact_id"] for item in facts]


def read(client: httpx.Client, fact_id: str, **params: Any) -> dict[str, Any]:
    answer = client.get(f"/v1/facts/{fact_id}", params=params)
    assert answer.status_code == 200, answer.text
    return answer.json()


def history(client: httpx.Client, fact_id: str) -> dict[str, Any]:
    answer = client.get(f"/v1/facts/{fact_id}/history")
    assert answer.status_code == 200, answer.text
    return answer.json()


def error(answer: httpx.Response) -> tuple[int, str]:
    """Status and code of a refusal, in a well-formed envelope."""
    assert set(answer.json()) == {"error"}, answer.text
    assert set(answer.json()["error"]) == {"code", "message", "request_id", "details"}
    return answer.status_code, answer.json()["error"]["code"]


def spans(facts: list[dict[str, Any]]) -> list[tuple[str, str | None]]:
    """From when to when, the earliest first."""
    return sorted(((item["valid_from"], item["valid_to"]) for item in facts), key=lambda span: span[0])


def year(number: int) -> str:
    return f"{number}-01-01T00:00:00Z"


def now() -> str:
    """Return the current time as a query parameter."""
    return datetime.now(UTC).isoformat()


def garden(client: httpx.Client, scope: str = "project_shared", **members: str) -> str:
    """A new garden with these members by role."""
    answer = client.post("/v1/gardens", json={"slug": f"g{uuid4().hex[:8]}", "scope": scope})
    assert answer.status_code == 201, answer.text
    garden_id = answer.json()["garden"]["garden_id"]
    for agent, role in members.items():
        put = client.put(f"/v1/gardens/{garden_id}/members/{agent}", json={"role": role})
        assert put.status_code in (200, 201), put.text
    return garden_id


def tombstone(admin: httpx.Client, entity: str, **fields: Any) -> str:
    answer = admin.post("/v1/tombstones", json={"entity": entity, "reason": "asked for", **fields})
    assert answer.status_code == 201, answer.text
    return answer.json()["tombstone"]["tombstone_id"]


def retracted_as(client: httpx.Client, fact_id: str) -> list[str]:
    """The kinds of all retractions of a fact."""
    answer = client.get(f"/v1/facts/{fact_id}/history")
    assert answer.status_code == 200, answer.text
    return [item["kind"] for item in answer.json()["retractions"]]


def provenance(client: httpx.Client, fact_id: str, **params: Any) -> dict[str, Any]:
    answer = client.get(f"/v1/facts/{fact_id}/provenance", params=params)
    assert answer.status_code == 200, answer.text
    return answer.json()


def refusal(answer: httpx.Response) -> dict[str, Any]:
    """All that a refusal tells, less what is different every time."""
    return {"status": answer.status_code, **answer.json()["error"], "request_id": None}


def fact_hash(entity: str, relation: str, value: dict[str, Any], *, valid_from: str, **fields: Any) -> str:
    """The hash a fact will have: SHA-256 over its canonical JSON."""
    at = datetime.fromisoformat(valid_from).astimezone(UTC)
    document = {
        "confidence": 1,
        "entity": entity,
        "relation": relation,
        "scope": "project_shared",
        "source": None,
        "ts": at.isoformat(timespec="microseconds").replace("+00:00", "Z"),
        "value": value,
        **fields,
    }
    written = json.dumps(document, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    return hashlib.sha256(written.encode()).hexdigest()


def work_until(database: TestDatabase, done: Callable[[], bool], *, seconds: float = 60) -> None:
    """Run a worker with all handlers until a condition holds."""

    async def work() -> None:
        settings = database.settings(poll_seconds=0.1, lease_seconds=10.0, drain_seconds=5.0)
        db = open_database(settings)
        await db.open()
        worker = Worker(db, build_registry(db, settings), settings)
        running = asyncio.create_task(worker.run())
        try:
            deadline = time.monotonic() + seconds
            while not done():
                assert time.monotonic() < deadline, f"not done after {seconds} s"
                await asyncio.sleep(0.05)
        finally:
            worker.stop()
            await running
            await db.close()

    asyncio.run(work())


def finish_job(database: TestDatabase, superuser: Superuser, job_id: str) -> dict[str, Any]:
    """The job, once a worker has brought it to an end."""

    def job() -> dict[str, Any]:
        row = superuser.execute("SELECT * FROM jobs WHERE job_id = %s", (job_id,)).fetchone()
        assert row is not None
        return row

    work_until(database, lambda: job()["status"] not in ("pending", "leased"))
    return job()
