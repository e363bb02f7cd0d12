"""Reads at a past time, and what legal holds hide from them."""

from collections.abc import Set
from uuid import UUID

from app.access import Principal
from app.audit import events as audit
from app.db.database import Database
from app.errors import Forbidden
from app.facts import queries
from app.facts.names import normalize_entity_name
from app.facts.schemas import TombstoneNotice
from app.read_context import ReadContext, look_back, parse_as_of

__all__ = ["EVERYTHING", "HELD", "check_held", "check_held_notes", "hold_notices", "look_back", "parse_as_of"]

HELD = 2
EVERYTHING = "*"


async def check_held(db: Database, context: ReadContext, *, about: list[UUID], **read: list[UUID]) -> None:
    """Record a read of objects or relationships under legal hold in the audit log, if there are any.

    `about` has their ids, and those of the ends of relationships. Raise Forbidden as `hold_notices` does.
    """
    if not about:
        return
    place = {"tenant": context.who.tenant_id, "ids": [str(item) for item in about]}
    found = await db.query(context.who, queries.HELD_ENTITIES, place)
    entities: set[tuple[UUID, str | None]] = {(row["entity_id"], None) for row in found}
    await hold_notices(db, context.who, entities=entities, denied=context.hold_denied, **read)


async def check_held_notes(db: Database, context: ReadContext, *, note_ids: list[UUID]) -> None:
    """Record a read of notes under legal hold in the audit log, if there are any; raise Forbidden as `hold_notices`."""
    await hold_notices(db, context.who, denied=context.hold_denied, note_ids=note_ids)


async def hold_notices(
    db: Database,
    who: Principal,
    *,
    entities: Set[tuple[UUID, str | None]] = frozenset(),
    denied: frozenset[str],
    **read: list[UUID],
) -> list[TombstoneNotice]:
    """Return the legal holds on what was read, after recording the read in the audit log.

    They are those on `entities` (each in one scope, or any), on what `fact_ids` name and on what `note_ids` name. Raise
    Forbidden when this deployment keeps one of them from administrators.
    """
    if not entities and not any(read.values()):
        return []
    async with db.tenant(who) as session:
        place = {
            "tenant": who.tenant_id,
            "project": who.project_id,
            "entities": [str(entity_id) for entity_id, _ in entities],
            "scopes": [scope for _, scope in entities],
            "facts": [str(fact_id) for fact_id in read.get("fact_ids", [])],
            "notes": [str(note_id) for note_id in read.get("note_ids", [])],
        }
        rows = await session.query(queries.HOLDS, place)
        forbidden = [
            row["entity"]
            for row in rows
            if EVERYTHING in denied or normalize_entity_name(row["entity"] or "") in denied
        ]
        # A hold of another project, on an object of every project, may be one of the denied.
        if forbidden or (denied and not rows):
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
            **{name: [str(item) for item in ids] for name, ids in read.items() if ids},
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
