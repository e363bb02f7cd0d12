"""Looking back: who may, how far, and what it takes to read what a legal hold hides."""

from datetime import UTC, datetime
from typing import Any
from uuid import UUID

import psycopg

from app.access import Principal
from app.audit import recording as audit
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
    """The time to look back to, from a query string."""
    return parse_moment(text, "as_of", code="as_of_invalid_timestamp")


async def look_back(db: Database, who: Principal, query: str, params: dict[str, Any]) -> list[Row]:
    """One read; a time before the project's floor is told as that."""
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
    """The holds that hide what is about to be shown (entities, each in a scope or any); nothing is shown before the
    reading is on record."""
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
                "as_of: this deployment does not let administrators look back at an entity under legal hold that is "
                "among the answers; narrow the query.",
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
