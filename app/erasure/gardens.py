"""Deleting a garden, with or without what is in it."""

from typing import Any, Literal
from uuid import UUID

from app.access import Principal
from app.confirmations import Confirmation
from app.db.database import Database, Session
from app.db.retries import retried
from app.documents import service as documents
from app.erasure import queries
from app.facts import retractions
from app.notes import forgetting
from app.notes import storage as notes
from app.tenancy import gardens

Contents = Literal["keep", "delete"]


async def delete_garden(
    db: Database,
    who: Principal,
    *,
    garden_id: UUID,
    contents: Contents,
    reason: str,
    force: bool,
    confirmation: Confirmation,
) -> None:
    """Delete a garden; its contents stay, visible to its creator, or are deleted and retracted with it.

    Raise NotFound, Forbidden unless the caller is one of its admins, or Conflict as for deleting notes.
    """

    async def write() -> None:
        async with db.tenant(who) as session:
            await gardens.require_deletable(session, who, garden_id=garden_id)
            counts: dict[str, int] = {}
            if contents == "delete":
                counts = await _delete_contents(session, who, garden_id, reason, confirmation, force=force)
            await gardens.delete_garden(session, who, garden_id=garden_id, contents=contents, **counts)

    await retried(write)


async def _delete_contents(
    session: Session, who: Principal, garden_id: UUID, reason: str, confirmation: Confirmation, *, force: bool
) -> dict[str, Any]:
    await session.execute(queries.NO_TIMEOUT)
    found = await forgetting.list_in_garden(session, who, garden_id=garden_id)
    facts = await retractions.list_in_garden(session, who, garden_id=garden_id)
    if not force:
        await notes.require_unpinned(session, who, note_ids=found)
    confirmation.require([*await notes.list_dependent_notes(session, who, note_ids=found), *facts])
    # Before the notes: recovering one of them must not restore a fact of the deleted garden.
    await retractions.retract_named(session, who, fact_ids=facts, reason=reason)
    gone = await notes.delete_notes(session, who, note_ids=found, reason=reason, key_id=who.key_id)
    deleted = await documents.delete_in_garden(session, who, garden_id=garden_id)
    return {**gone.counts(), "facts": len(facts) + len(gone.facts), "documents": deleted}
