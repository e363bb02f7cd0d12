"""Helpers that issue and revoke tombstones, wait for receipts and read the audit log."""

import time
from typing import Any

import httpx
import psycopg


def issued(admin: httpx.Client, **fields: Any) -> dict[str, Any]:
    """The whole answer to a new tombstone."""
    answer = admin.post("/v1/tombstones", json={"reason": "they asked", **fields})
    assert answer.status_code == 201, answer.text
    return answer.json()


def tombstone(admin: httpx.Client, entity: str, **fields: Any) -> dict[str, Any]:
    """A tombstone that is taken."""
    return issued(admin, entity=entity, **fields)["tombstone"]


def revoke(admin: httpx.Client, made: dict[str, Any]) -> dict[str, Any]:
    answer = admin.post(f"/v1/tombstones/{made['tombstone_id']}/revoke", json={"reason": "a mistake"})
    assert answer.status_code == 200, answer.text
    return answer.json()["tombstone"]


def end_grace(superuser: psycopg.Connection[Any], made: dict[str, Any]) -> None:
    """End the time of grace of an erasure now, so that what a test does before cannot come too late."""
    with superuser.transaction():
        superuser.execute(
            "UPDATE tombstones SET erase_at = clock_timestamp() WHERE tombstone_id = %s", (made["tombstone_id"],)
        )
        superuser.execute(
            "UPDATE jobs SET available_at = clock_timestamp() WHERE kind = 'erase' AND payload ->> 'tombstone_id' = %s",
            (made["tombstone_id"],),
        )


def until_erased(admin: httpx.Client, made: dict[str, Any], *, seconds: float = 90) -> dict[str, Any]:
    """The receipt, once the worker has done its work."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        answer = admin.get(f"/v1/tombstones/{made['tombstone_id']}/receipt")
        if answer.status_code == 200:
            return answer.json()
        assert answer.json()["error"]["code"] == "receipt_not_found"
        time.sleep(0.05)
    raise AssertionError(f"not erased after {seconds} s: {admin.get('/v1/jobs').text}")


def events(admin: httpx.Client, **params: Any) -> list[dict[str, Any]]:
    """All sealed events, page by page."""
    found: list[dict[str, Any]] = []
    cursor = None
    while True:
        answer = admin.get("/v1/admin/audit-log", params={**params, **({"cursor": cursor} if cursor else {})})
        assert answer.status_code == 200, answer.text
        found += answer.json()["events"]
        if (cursor := answer.json()["next_cursor"]) is None:
            return found
