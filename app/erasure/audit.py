"""The audit log: read by page, and verified line by line."""

import hashlib
from datetime import UTC, datetime
from typing import Any

import msgspec

from app.access import Principal
from app.db.database import Database, Row
from app.db.scope import CROSS_PROJECT, Scope
from app.erasure import queries
from app.erasure.schemas import EventList, EventRead
from app.paging import Page
from app.tenancy.tenants import acting_scope

VERIFIED_AT_ONCE = 5000
EMPTY = b""


async def list_events(
    db: Database, who: Principal, *, tenant_id: str | None, filters: dict[str, Any], page: Page
) -> EventList:
    """Sealed events in the order of the chain; a key bound to a project sees those of its project."""
    scope = acting_scope(who, tenant_id)
    asked = {name: value for name, value in filters.items() if value is not None and name != "after_sequence"}
    start = page.after[0] if page.after else (filters.get("after_sequence") or 0)
    params = {**asked, "tenant": scope.tenant_id, "sequence": start, "limit": page.limit + 1}
    found = await db.query(scope, queries.select_events(set(asked)), params)
    rows, next_cursor = page.cut(found, key=lambda row: [row["sequence"]])
    return EventList(events=[EventRead(**row) for row in rows], next_cursor=next_cursor)


class Verdict(msgspec.Struct, frozen=True, kw_only=True):
    """What a look through a tenant's chain found."""

    tenant_id: str
    sequence: int
    hash: str
    unsealed: int
    problems: list[str]


def hash_line(row: Row, tenant_id: str, previous: bytes) -> bytes:
    """The hash of one line, computed from its own words."""
    moment: datetime = row["created_at"].astimezone(UTC)
    parts = (
        previous.hex(), str(row["sequence"]), tenant_id, row["event_id"], row["project_id"], row["event_type"],
        row["key_id"], row["agent_id"], moment.strftime("%Y-%m-%dT%H:%M:%S.%fZ"), row["details"],
    )  # fmt: skip
    return hashlib.sha256("\n".join(parts).encode()).digest()


async def verify(db: Database, *, tenant_id: str, head: tuple[int, str] | None = None) -> Verdict:
    """Goes through the whole chain: a line that was altered, removed or put in is named.

    `head` is a number and a hash that somebody kept: the chain must still contain it.
    """
    scope = Scope(tenant_id=tenant_id, reach=CROSS_PROJECT)
    (end,) = await db.query(scope, queries.HEAD, {"tenant": tenant_id})
    problems: list[str] = []
    previous, expected = EMPTY, 1
    kept = None if head is None else "missing"
    while len(problems) < 20:
        params = {"tenant": tenant_id, "sequence": expected - 1, "limit": VERIFIED_AT_ONCE}
        rows = await db.query(scope, queries.CHAIN, params)
        for row in rows:
            if row["sequence"] != expected:
                problems.append(f"line {expected} is missing" + _until(expected, row["sequence"] - 1))
            elif bytes(row["previous_hash"]) != previous:
                problems.append(f"line {expected} does not follow the one before it")
            if hash_line(row, tenant_id, bytes(row["previous_hash"])) != bytes(row["hash"]):
                problems.append(f"line {row['sequence']} was altered")
            previous, expected = bytes(row["hash"]), row["sequence"] + 1
            if head is not None and row["sequence"] == head[0]:
                kept = None if previous.hex() == head[1] else "other"
        if len(rows) < VERIFIED_AT_ONCE:
            break
    # Lines may have been sealed while this was reading; what was there before must be there now.
    last, wanted = expected - 1, end["sequence"] or 0
    if last < wanted:
        problems.append(f"line {last + 1} is missing" + _until(last + 1, wanted))
    elif last == wanted and wanted and bytes(end["hash"]) != previous:
        problems.append(f"line {last} is not the one the chain ended with")
    if kept is not None and head is not None:
        problems.append(
            f"line {head[0]} is not the one that was kept" if kept == "other" else f"line {head[0]} is gone"
        )
    return Verdict(tenant_id=tenant_id, sequence=last, hash=previous.hex(), unsealed=end["unsealed"], problems=problems)


def _until(first: int, last: int) -> str:
    return f" (to {last})" if last > first else ""
