"""Forgetting many notes at once: those that match a filter, with a preview and a confirmation."""

from typing import Any
from uuid import UUID

import msgspec

from app.access import Principal
from app.audit import events as audit
from app.confirmations import Confirmation
from app.db.database import Database, Row, Session
from app.db.retries import retried
from app.errors import BadRequest
from app.inputs import as_utc
from app.notes import queries
from app.notes.schemas import NoteFilter, NotesForget, NotesForgotten
from app.notes.storage import MAX_LISTED, delete_notes, present_note
from app.paging import CursorSigner
from app.tenancy import gardens
from app.tenancy.schemas import SYNONYMS

MAX_NOTES = 10_000
SAMPLE = 10


async def forget_notes(
    db: Database, who: Principal, *, data: NotesForget, signer: CursorSigner, owner: str | None = None
) -> NotesForgotten:
    """Delete the notes that match a filter, as one note is deleted; with `dry_run` only say what that would delete.

    `owner` limits it to the notes of one user, or with '' to those common to all users.

    Pinned notes stay unless `force`. Raise Conflict for more than 25 notes without a token that confirms them.
    """
    filters = _conditions(data.filter)
    if owner is not None:
        filters["user_id"] = owner
    confirmation = Confirmation(signer, who, "forget_notes", token=data.confirm_token, force=data.force, **filters)

    async def write() -> NotesForgotten:
        async with db.tenant(who) as session:
            await session.execute(queries.NO_TIMEOUT)
            if data.filter.garden_id is not None:
                await gardens.require_writable(session, who, garden_id=data.filter.garden_id, existing=True)
            selected = await _select(session, who, filters, force=data.force, lock=not data.dry_run)
            if data.dry_run:
                return await _preview(session, who, selected, confirmation)
            confirmation.require(selected.family)
            gone = await delete_notes(session, who, note_ids=selected.notes, reason=data.reason, key_id=who.key_id)
            counts = {**gone.counts(), "pinned": selected.pinned}
            await audit.record(
                session,
                "note_write",
                key_id=who.key_id,
                action="forget",
                note_ids=gone.notes[:MAX_LISTED],
                **counts,
            )
            return NotesForgotten(
                dry_run=False, note_ids=[UUID(note) for note in gone.notes], sample=[], confirm_token=None, **counts
            )

    return await retried(write)


async def list_in_garden(session: Session, who: Principal, *, garden_id: UUID) -> list[str]:
    """Lock the live notes of a garden and return their ids, or raise BadRequest for too many."""
    rows = await queries.list_matching(
        session, who, filters={"garden_id": str(garden_id)}, limit=MAX_NOTES + 1, lock=True
    )
    _check_count(rows, "garden_id")
    return [str(row["note_id"]) for row in rows]


class _Selected(msgspec.Struct, frozen=True, kw_only=True):
    """The notes that match and may be deleted, their derived notes, and how many were left out as pinned."""

    rows: list[Row]
    notes: list[str]
    family: list[str]
    pinned: int


async def _select(session: Session, who: Principal, filters: dict[str, Any], *, force: bool, lock: bool) -> _Selected:
    rows = await queries.list_matching(session, who, filters=filters, limit=MAX_NOTES + 1, lock=lock)
    _check_count(rows, "filter")
    ids = [str(row["note_id"]) for row in rows]
    found = await queries.list_family(session, tenant_id=who.tenant_id, note_ids=ids)
    kept = {str(row["source"]) for row in found if row["pinned"] and not force}
    return _Selected(
        rows=[row for row in rows if str(row["note_id"]) not in kept],
        notes=[note for note in ids if note not in kept],
        family=sorted({str(row["note_id"]) for row in found if str(row["source"]) not in kept}),
        pinned=len(kept),
    )


def _check_count(rows: list[Row], field: str) -> None:
    if len(rows) > MAX_NOTES:
        raise BadRequest(
            f"{field}: more than {MAX_NOTES:,} notes match; delete some first, by a filter with since and until.",
            code="too_many_notes",
        )


async def _preview(session: Session, who: Principal, selected: _Selected, confirmation: Confirmation) -> NotesForgotten:
    facts = await queries.count_unsupported(session, tenant_id=who.tenant_id, note_ids=selected.family)
    return NotesForgotten(
        dry_run=True,
        notes=len(selected.notes),
        derived=len(selected.family) - len(selected.notes),
        facts=facts,
        pinned=selected.pinned,
        note_ids=[],
        sample=[present_note(row) for row in selected.rows[: -SAMPLE - 1 : -1]],
        confirm_token=confirmation.issue(selected.family),
    )


def _conditions(given: NoteFilter) -> dict[str, Any]:
    """Return the filter as the columns and times that queries take, or raise BadRequest for an empty one."""
    filters: dict[str, Any] = {
        "type": given.type,
        "tag": given.tag,
        "author": given.author,
        "agent_id": given.agent_id,
        "scope": None if given.scope is None else SYNONYMS.get(given.scope, given.scope),
        "garden_id": None if given.garden_id is None else str(given.garden_id),
        "thread_id": given.thread_id,
        "since": None if given.since is None else as_utc(given.since, "filter.since"),
        "until": None if given.until is None else as_utc(given.until, "filter.until"),
    }
    if all(value is None for value in filters.values()):
        raise BadRequest("filter: give at least one condition.", code="filter_required")
    return filters
