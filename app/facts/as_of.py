"""Reads at a past time: the retention floor, and what legal holds hide."""

from datetime import UTC, datetime
from typing import Any
from uuid import UUID

import psycopg

from app.access import Principal
from app.audit import events as audit
from app.db.database import Database, Row
from app.errors import BadRequest, Forbidden
from app.facts import queries
from app.facts.names import normalize_entity_name
from app.facts.schemas import TombstoneNotice
from app.inputs import parse_moment

BELOW_FLOOR = "PA001"
HELD = 2
EVERYTHING = "*"


def parse_as_of(text: str | None) -> datetime | None:
    """Return `as_of` of a query string as a time."""
    return parse_moment(text, "as_of", code="as_of_invalid_timestamp")


async def look_back(db: Database, who: Principal, query: str, params: dict[str, Any]) -> list[Row]:
    """Run one read; raise BadRequest when its `as_of` is before the project's retention floor."""
    try:
        return await db.query(who, query, params)
    except psycopg.Error as problem:
        if problem.sqlstate != BELOW_FLOOR:
            raise
        floor = datetime.fromisoformat(problem.diag.message_detail or "").astimezone(UTC).isoformat()
        raise BadRequest(
            f"as_of: this project keeps history from {floor} on; ask for that time or a later one.",
            code="as_of_before_retention_floor",
            details={"floor": floor},
        ) from problem


async def hold_notices(
    db: Database, who: Principal, *, entities: set[tuple[UUID, str | None]], denied: frozenset[str], **read: list[UUID]
) -> list[TombstoneNotice]:
    """Return the legal holds on entities (each in one scope, or any) after recording the read in the audit log.

    Raise Forbidden when this deployment keeps one of them from administrators.
    """
    if not entities:
        return []
    async with db.tenant(who) as session:
        place = {
            "tenant": who.tenant_id,
            "project": who.project_id,
            "entities": [str(entity_id) for entity_id, _ in entities],
            "scopes": [scope for _, scope in entities],
            "facts": [str(fact_id) for fact_id in read.get("fact_ids", [])],
        }
        rows = await session.query(queries.HOLDS, place)
        forbidden = [
            row["entity"]
            for row in rows
            if EVERYTHING in denied or normalize_entity_name(row["entity"] or "") in denied
        ]
        if forbidden or (not rows and EVERYTHING in denied):
            raise Forbidden(
                "as_of: an entity under legal hold is among the results, and this deployment does not let "
                "administrators read its past; narrow the query.",
                code="as_of_legal_hold_forbidden",
            )
        await audit.record(
            session,
            "fact_read",
            key_id=who.key_id,
            tombstone_ids=[str(row["tombstone_id"]) for row in rows],
            **{name: [str(item) for item in ids] for name, ids in read.items()},
        )
    return [
        TombstoneNotice(
            entity_uri=row["entity"] or "",
            tombstone_id=row["tombstone_id"],
            legal_hold=True,
            tombstone_created_at=row["created_at"],
        )
        for row in rows
    ]
