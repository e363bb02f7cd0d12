"""Writes of notes: every new note and every change appends to the history and queues what depends on it."""

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any
from uuid import UUID

import msgspec

from app.access import Principal, new_id, require_project
from app.db.database import Row, Session
from app.db.scope import Scope
from app.errors import Conflict, NotFound
from app.notes import queries
from app.notes.schemas import STORED_FIELDS, NoteMention, NoteRead
from app.read_context import shared_from

# Fields whose previous value the history keeps, besides the content.
VERSIONED_FIELDS = frozenset({"type", "tags", "author", "occurred_at", "pinned"})

# How many ids an error or an event of the audit log names at most.
MAX_LISTED = 100


async def store_notes(session: Session, who: Scope, rows: list[Row]) -> list[tuple[Row, bool]]:
    """Return the note of each row, in order, and whether it is new or an existing duplicate."""
    notes: dict[tuple[Any, ...], Row] = {}
    inserted: list[Row] = []
    # A duplicate that blocked an insert may be deleted before it is read; the insert is then tried again.
    while missing := [row for row in rows if _identity(row) not in notes]:
        fresh = {str(row["note_id"]): row for row in await queries.insert_notes(session, rows=missing)}
        new = [row for row in missing if row["note_id"] in fresh]
        inserted += new
        notes |= {_identity(row): fresh[row["note_id"]] for row in new}
        others = [row for row in missing if _identity(row) not in notes]
        if others:
            project_id = others[0]["project_id"]
            duplicates = await queries.find_same(session, tenant_id=who.tenant_id, project_id=project_id, rows=others)
            notes |= {_identity(row): row for row in duplicates}
    if inserted:
        events = [history_event(who, row, "created", None, new=row["content"]) for row in inserted]
        await queries.insert_history(session, rows=events)
        await _queue_embeddings(session, who, inserted)
    ids = {row["note_id"] for row in inserted}
    return [(notes[_identity(row)], row["note_id"] in ids) for row in rows]


def _identity(row: Row) -> tuple[Any, ...]:
    return tuple(row[name] for name in queries.IDENTITY)


def history_event(
    who: Scope,
    note: Row,
    event: str,
    reason: str | None,
    *,
    old: str | None = None,
    new: str | None = None,
    proposal: dict[str, Any] | None = None,
    before: dict[str, Any] | None = None,
    at: datetime | None = None,
) -> Row:
    """Return the history row of one event of a note, now or at the given time."""
    return {
        "tenant_id": who.tenant_id,
        "history_id": new_id(),
        "project_id": note["project_id"],
        "note_id": note["note_id"],
        "agent_id": note["agent_id"],
        "scope": note["scope"],
        "garden_id": note["garden_id"],
        "user_id": note["user_id"],
        "event": event,
        "version": note.get("version", 1),
        "changed_by": who.agent_id,
        "reason": reason,
        "old_content": old,
        "new_content": new,
        "proposal": proposal,
        "before": before,
        "created_at": at or datetime.now(UTC),
    }


def present_note(row: Row) -> NoteRead:
    """Return the wire form of a note's row."""
    return NoteRead(**note_fields(row))


def note_fields(row: Row) -> dict[str, Any]:
    """Return the fields of NoteRead from a row that has them as columns."""
    fields: dict[str, Any] = {name: row[name] for name in STORED_FIELDS}
    fields |= shared_from(row)
    fields["note_id"] = UUID(str(row["note_id"]))
    for name in ("garden_id", "derived_from"):
        fields[name] = None if row[name] is None else UUID(str(row[name]))
    fields["user_id"] = row["user_id"] or None
    if "mentions" in row:
        fields["mentions"] = msgspec.convert(row["mentions"], list[NoteMention])
    return fields


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
    """Update a locked note, append the event to its history and return the new row."""
    version = note["version"] + 1
    # One time for both, so that the note as of its own updated_at is this version.
    now = datetime.now(UTC)
    row = await queries.update_note(
        session,
        tenant_id=who.tenant_id,
        note=note,
        **changes,
        version=version,
        updated_at=now,
    )
    entry = history_event(
        who,
        {**note, "version": version},
        event,
        reason,
        old=note["content"],
        new=None if event == "deleted" else row["content"],
        proposal=proposal,
        before={name: msgspec.to_builtins(note[name]) for name in changes if name in VERSIONED_FIELDS} or None,
        at=now,
    )
    await queries.insert_history(session, rows=[entry])
    if changes.keys() & (queries.INDEXED_FIELDS | {"deleted_at"}):
        await _queue_embeddings(session, who, [note])
    return row


class DeletedNotes(msgspec.Struct, frozen=True, kw_only=True):
    """What a deletion took: the named notes, those derived from them, and the facts that rested on them alone."""

    notes: list[str]
    derived: list[str]
    facts: list[str]

    def counts(self) -> dict[str, int]:
        """Return how many there are of each, for the audit log."""
        return {"notes": len(self.notes), "derived": len(self.derived), "facts": len(self.facts)}


async def delete_notes(
    session: Session,
    who: Scope,
    *,
    note_ids: list[str],
    reason: str,
    key_id: str,
    proposal: dict[str, Any] | None = None,
) -> DeletedNotes:
    """Delete those of the notes that are live, with what depends on them; all can be recovered for 30 days."""
    if not note_ids:
        return DeletedNotes(notes=[], derived=[], facts=[])
    row = await queries.delete_notes(
        session,
        note_ids=note_ids,
        changed_by=who.agent_id,
        reason=reason,
        proposal=None if proposal is None else msgspec.json.encode(proposal).decode(),
        key=key_id,
    )
    return DeletedNotes(
        notes=[str(note) for note in row["deleted"]],
        derived=[str(note) for note in row["derived"]],
        facts=[str(fact) for fact in row["facts"]],
    )


async def list_dependent_notes(session: Session, who: Scope, *, note_ids: list[str]) -> list[str]:
    """Return the notes that deleting these would delete: those that are live, and the live notes derived from them."""
    found = await queries.list_family(session, tenant_id=who.tenant_id, note_ids=note_ids)
    return sorted({str(row["note_id"]) for row in found})


async def recover_dependents(session: Session, who: Scope, *, note_id: str, key_id: str) -> DeletedNotes:
    """Recover what was deleted and retracted with a note that is live again; return it together with the note."""
    row = await queries.recover_dependents(session, note=note_id, changed_by=who.agent_id, key=key_id)
    return DeletedNotes(
        notes=[note_id],
        derived=[str(note) for note in row["derived"]],
        facts=[str(fact) for fact in row["facts"]],
    )


async def require_unpinned(session: Session, who: Scope, *, note_ids: list[str]) -> None:
    """Raise Conflict when one of the notes, or one derived from them, is pinned."""
    found = await queries.list_family(session, tenant_id=who.tenant_id, note_ids=note_ids, pinned=True)
    pinned = sorted({str(row["note_id"]) for row in found})
    if pinned:
        raise Conflict(
            "A note that would be deleted is pinned; unpin it first, or send force=true.",
            code="note_pinned",
            details={"pinned": pinned[:MAX_LISTED], "count": len(pinned)},
        )


async def _queue_embeddings(session: Session, who: Scope, notes: Sequence[Row]) -> None:
    ids = [str(note["note_id"]) for note in notes]
    await queries.queue_embeddings(session, tenant_id=who.tenant_id, project_id=notes[0]["project_id"], note_ids=ids)


async def extract_notes(session: Session, who: Principal, notes: Sequence[Row]) -> dict[str, UUID]:
    """Queue the extraction of notes where their project enables it; return the job of each by note id."""
    if not notes:
        return {}
    ids = [str(note["note_id"]) for note in notes]
    jobs = await queries.queue_extractions(
        session, tenant_id=who.tenant_id, project_id=require_project(who), note_ids=ids, key_id=who.key_id
    )
    if jobs:
        session.wake_workers()
    return {note_id: UUID(job_id) for note_id, job_id in jobs.items()}


async def extract_chunks(session: Session, who: Scope, *, project_id: str, note_ids: list[str], key_id: str) -> None:
    """Queue the extraction of chunks of a document where their project enables it."""
    if note_ids and await queries.queue_extractions(
        session, tenant_id=who.tenant_id, project_id=project_id, note_ids=note_ids, key_id=key_id, chunks=True
    ):
        session.wake_workers()


async def mark_extraction(session: Session, who: Principal, *, note_id: UUID, status: str) -> Row:
    """Set the extraction status of a note, which is no new version of it, and return its row."""
    return await queries.set_extraction_status(session, tenant_id=who.tenant_id, note_id=str(note_id), status=status)


def owner_key(who: Principal, *, scope: str, garden_id: str | None) -> str:
    """Return whose duplicate checks a row belongs to: its agent when private, its garden and its user."""
    # All that apply, as owner_key.sql has it: a private note in a garden is no duplicate of one outside of it.
    user = who.owner_user and f"user:{who.owner_user}"
    return " ".join(filter(None, (who.agent_id if scope == "agent_private" else "", garden_id, user)))


def note_not_found() -> NotFound:
    """Return the error for a note that is unknown, hidden, deleted or of another tenant."""
    return NotFound("There is no such note.", code="note_not_found")
