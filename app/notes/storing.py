"""How notes are written: each new one and each change with its line of history, what follows from it queued with it."""

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any
from uuid import UUID

import msgspec

from app.access import Principal, new_id, require_project
from app.db.database import Row, Session
from app.errors import NotFound
from app.notes import queries
from app.notes.schemas import NoteRead

# What history keeps of a change, beside the words.
RESTORED = frozenset({"type", "tags", "author", "occurred_at", "pinned"})


async def store_notes(session: Session, who: Principal, rows: list[Row]) -> list[tuple[Row, bool]]:
    """Each row's note, and whether it is new; in the order given."""
    known: dict[tuple[Any, ...], Row] = {}
    made: list[Row] = []
    # What stood in the way may be deleted before we look at it; then there is room for ours.
    while missing := [row for row in rows if _identity(row) not in known]:
        fresh = {str(row["note_id"]): row for row in await queries.insert_notes(session, rows=missing)}
        new = [row for row in missing if row["note_id"] in fresh]
        made += new
        known |= {_identity(row): fresh[row["note_id"]] for row in new}
        others = [row for row in missing if _identity(row) not in known]
        if others:
            place = {"tenant_id": who.tenant_id, "project_id": require_project(who)}
            known |= {_identity(row): row for row in await queries.find_same(session, **place, rows=others)}
    if made:
        events = [note_event(who, row, "created", None, new=row["content"]) for row in made]
        await queries.insert_history(session, rows=events)
        await _queue(session, who, made)
    ids = {row["note_id"] for row in made}
    return [(known[_identity(row)], row["note_id"] in ids) for row in rows]


def _identity(row: Row) -> tuple[Any, ...]:
    return tuple(row[name] for name in queries.IDENTITY)


def note_event(
    who: Principal,
    note: Row,
    event: str,
    reason: str | None,
    *,
    old: str | None = None,
    new: str | None = None,
    proposal: dict[str, Any] | None = None,
    before: dict[str, Any] | None = None,
) -> Row:
    """One line of a note's history."""
    return {
        "tenant_id": who.tenant_id,
        "history_id": new_id(),
        "project_id": note["project_id"],
        "note_id": note["note_id"],
        "agent_id": note["agent_id"],
        "scope": note["scope"],
        "garden_id": note["garden_id"],
        "event": event,
        "version": note.get("version", 1),
        "changed_by": who.agent_id,
        "reason": reason,
        "old_content": old,
        "new_content": new,
        "proposal": proposal,
        "before": before,
        "created_at": datetime.now(UTC),
    }


def present_note(row: Row) -> NoteRead:
    """A note as it goes out."""
    shown: dict[str, Any] = {name: row[name] for name in queries.SHOWN}
    shown["note_id"] = UUID(str(row["note_id"]))
    for name in ("garden_id", "derived_from"):
        shown[name] = None if row[name] is None else UUID(str(row[name]))
    return NoteRead(**shown)


async def change_note(
    session: Session,
    who: Principal,
    note: Row,
    event: str,
    reason: str,
    changes: dict[str, Any],
    *,
    proposal: dict[str, Any] | None = None,
) -> Row:
    """Changes a locked note, with its line of history."""
    version = note["version"] + 1
    row = await queries.update_note(
        session,
        tenant_id=who.tenant_id,
        note=note,
        **changes,
        version=version,
        updated_at=datetime.now(UTC),
    )
    after = {**note, "version": version}
    line = note_event(
        who,
        after,
        event,
        reason,
        old=note["content"],
        new=None if event == "deleted" else row["content"],
        proposal=proposal,
        before={name: msgspec.to_builtins(note[name]) for name in changes if name in RESTORED} or None,
    )
    await queries.insert_history(session, rows=[line])
    if changes.keys() & (queries.SEARCHED | {"deleted_at"}):
        await _queue(session, who, [note])
    return row


async def _queue(session: Session, who: Principal, notes: Sequence[Row]) -> None:
    ids = [str(note["note_id"]) for note in notes]
    await queries.queue_notes(session, tenant_id=who.tenant_id, project_id=notes[0]["project_id"], note_ids=ids)


async def extract_notes(session: Session, who: Principal, notes: Sequence[Row]) -> dict[str, UUID]:
    """Has notes extracted, where their project wants it; answers the job of each."""
    if not notes:
        return {}
    ids = [str(note["note_id"]) for note in notes]
    place = {"tenant_id": who.tenant_id, "project_id": require_project(who)}
    jobs = await queries.queue_extractions(session, **place, note_ids=ids, key_id=who.key_id)
    if jobs:
        session.wake_workers()
    return {note_id: UUID(job_id) for note_id, job_id in jobs.items()}


async def mark_extraction(session: Session, who: Principal, *, note_id: UUID, status: str) -> Row:
    """Says where the extraction of a note stands; no change of the note itself."""
    return await queries.set_extraction_status(session, tenant_id=who.tenant_id, note_id=str(note_id), status=status)


def note_not_found() -> NotFound:
    """The one answer for a note that is unknown, hidden, deleted or of another tenant."""
    return NotFound("There is no such note.", code="note_not_found")
