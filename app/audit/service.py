"""Use cases of the audit log: list events, verify the chain."""

import hashlib
from datetime import UTC, datetime
from typing import Any

import msgspec

from app.access import Principal, acting_scope
from app.audit import queries
from app.audit.schemas import EventList, EventRead
from app.db.counts import COUNT_LIMIT, count_query
from app.db.database import Database, Row
from app.db.scope import CROSS_PROJECT, Scope
from app.paging import Page

VERIFIED_AT_ONCE = 5000
MAX_PROBLEMS = 20


async def list_events(
    db: Database, who: Principal, *, tenant_id: str | None, filters: dict[str, Any], page: Page
) -> EventList:
    """Return sealed events in the order of the chain; a key bound to a project sees those of its project."""
    scope = acting_scope(who, tenant_id)
    given = {name: value for name, value in filters.items() if value is not None and name != "after_sequence"}
    start = filters.get("after_sequence") or 0
    params = {**given, "tenant": scope.tenant_id, "sequence": page.after[0] if page.after else start}
    query = queries.select_events(set(given))
    found = await db.query(scope, query, {**params, "limit": page.limit + 1})
    rows, next_cursor = page.cut(found, key=lambda row: [row["sequence"]])
    every = {**params, "sequence": start, "limit": COUNT_LIMIT}
    total = await page.count(lambda: db.query(scope, count_query(query), every))
    return EventList(events=[EventRead(**row) for row in rows], next_cursor=next_cursor, total=total)


class Verdict(msgspec.Struct, frozen=True, kw_only=True):
    """The result of verifying a tenant's chain."""

    tenant_id: str
    sequence: int
    hash: str
    unsealed: int
    problems: list[str]


def hash_line(row: Row, tenant_id: str, previous: bytes) -> bytes:
    """Return the hash of one event, computed from its content and the hash before it."""
    moment: datetime = row["created_at"].astimezone(UTC)
    parts = (
        previous.hex(), str(row["sequence"]), tenant_id, row["event_id"], row["project_id"], row["event_type"],
        row["key_id"], row["agent_id"], moment.strftime("%Y-%m-%dT%H:%M:%S.%fZ"), row["details"],
    )  # fmt: skip
    return hashlib.sha256("\n".join(parts).encode()).digest()


async def verify(db: Database, *, tenant_id: str, head: tuple[int, str] | None = None) -> Verdict:
    """Read the whole chain and name every line that was altered, removed or inserted.

    `head` is a sequence number and hash from an earlier verification: the chain must still contain them.
    """
    scope = Scope(tenant_id=tenant_id, reach=CROSS_PROJECT)
    (end,) = await db.query(scope, queries.HEAD, {"tenant": tenant_id})
    check = _ChainCheck(tenant_id, head)
    while len(check.problems) < MAX_PROBLEMS:
        params = {"tenant": tenant_id, "sequence": check.last, "limit": VERIFIED_AT_ONCE}
        rows = await db.query(scope, queries.CHAIN, params)
        for row in rows:
            check.add(row)
        if len(rows) < VERIFIED_AT_ONCE:
            break
    check.finish(end)
    return Verdict(
        tenant_id=tenant_id,
        sequence=check.last,
        hash=check.previous.hex(),
        unsealed=end["unsealed"],
        problems=check.problems,
    )


class _ChainCheck:
    """The state of a walk along the chain: the last line, its hash, and what is wrong so far."""

    def __init__(self, tenant_id: str, head: tuple[int, str] | None) -> None:
        self.problems: list[str] = []
        self.last = 0
        self.previous = b""
        self._tenant_id = tenant_id
        self._head = head
        self._head_problem = None if head is None else f"line {head[0]} is gone"

    def add(self, row: Row) -> None:
        """Check the next line."""
        expected = self.last + 1
        if row["sequence"] != expected:
            self.problems.append(_missing(expected, row["sequence"] - 1))
        elif bytes(row["previous_hash"]) != self.previous:
            self.problems.append(f"line {expected} does not follow the one before it")
        if hash_line(row, self._tenant_id, bytes(row["previous_hash"])) != bytes(row["hash"]):
            self.problems.append(f"line {row['sequence']} was altered")
        self.previous, self.last = bytes(row["hash"]), row["sequence"]
        if self._head is not None and row["sequence"] == self._head[0]:
            same = self.previous.hex() == self._head[1]
            self._head_problem = None if same else f"line {self._head[0]} is not the one that was kept"

    def finish(self, end: Row) -> None:
        """Check the end of the chain; lines sealed while it was read may follow `end`."""
        wanted = end["sequence"] or 0
        if self.last < wanted:
            self.problems.append(_missing(self.last + 1, wanted))
        elif self.last == wanted and wanted and bytes(end["hash"]) != self.previous:
            self.problems.append(f"line {self.last} is not the one the chain ended with")
        if self._head_problem is not None:
            self.problems.append(self._head_problem)


def _missing(first: int, last: int) -> str:
    return f"line {first} is missing" + (f" (to {last})" if last > first else "")
