"""What the pipeline does to notes: derives, replaces and forgets them, and puts every proposal on record."""

from datetime import UTC, datetime
from typing import Any
from uuid import UUID

import msgspec

from app.access import Principal
from app.db.database import Row, Session
from app.notes import queries
from app.notes.content import normalize_content
from app.notes.storing import change_note
from app.tenancy import gardens

# Who changed a note, in its history.
PIPELINE = "pipeline"


class Source(msgspec.Struct, frozen=True, kw_only=True):
    """The note that is being extracted: whose it is, what was read of it, and when it was said."""

    tenant_id: str
    project_id: str
    note_id: str
    agent_id: str
    scope: str
    garden_id: str | None
    owner_key: str
    occurred_at: datetime
    version: int


class Derived(msgspec.Struct, frozen=True, kw_only=True):
    """A statement that shall become a note, and the line of its history."""

    note_id: str
    content: str
    hash: str
    type: str
    confidence: float
    proposal: dict[str, Any]


class Record(msgspec.Struct, frozen=True, kw_only=True):
    """A proposal that changed nothing, for the history of the note it comes from."""

    reason: str
    proposal: dict[str, Any]


class Link(msgspec.Struct, frozen=True, kw_only=True):
    """The job that links what a note relates, in the hands of who makes it."""

    payload: dict[str, Any]
    attempts: int
    owner: str
    lease_seconds: float


class Applied(msgspec.Struct, frozen=True, kw_only=True):
    """What was written; `changed` when the note was no longer what had been read, and nothing was."""

    changed: bool
    created: int
    deduped: int
    link_job: UUID | None
    waits: bool
    """An earlier job of the note does it; else it is ours to do now."""


async def apply_extraction(
    session: Session, source: Source, *, model: str, drafts: list[Derived], records: list[Record], link: Link | None
) -> Applied:
    """Writes what came of reading a note, and that it is done; in one call."""
    row = await queries.apply_extraction(
        session,
        tenant=source.tenant_id,
        project=source.project_id,
        note=source.note_id,
        version=source.version,
        model=model,
        drafts=msgspec.json.encode(drafts).decode(),
        records=msgspec.json.encode(records).decode(),
        link=None if link is None else msgspec.json.encode(link.payload).decode(),
        attempts=0 if link is None else link.attempts,
        owner=None if link is None else link.owner,
        lease=0 if link is None else link.lease_seconds,
    )
    return Applied(**row)


async def lock_notes(session: Session, who: Principal, note_ids: list[str]) -> None:
    """Holds notes in an order that is everybody's, so that nobody waits in a circle."""
    await queries.lock_notes(session, tenant_id=who.tenant_id, note_ids=note_ids)


class Target(msgspec.Struct, frozen=True, kw_only=True):
    """The note that a proposal would change, as it was when that was decided."""

    note_id: str
    version: int


async def replace_note(
    session: Session,
    who: Principal,
    target: Target,
    *,
    content: str,
    reason: str,
    proposal: dict[str, Any],
) -> str | None:
    """Gives a note new words; what it said stays in its history. Answers why not, when it cannot be done."""
    note, refusal = await _lock(session, who, target)
    if note is None:
        return refusal
    said = normalize_content(content)
    if said.hash == note["content_hash"]:
        return "no_change"
    row = {**note, "content_hash": said.hash}
    place = {"tenant_id": who.tenant_id, "project_id": note["project_id"]}
    twins = await queries.find_same(session, **place, rows=[row])
    if any(all(twin[name] == row[name] for name in queries.IDENTITY) for twin in twins):
        return "duplicate_content"
    changes = {"content": said.stored, "content_hash": said.hash}
    await change_note(session, _acting(who), note, "updated", reason, changes, proposal=proposal)
    return None


async def forget_note(
    session: Session, who: Principal, target: Target, *, reason: str, proposal: dict[str, Any]
) -> str | None:
    """Deletes a note, recoverable for 30 days. Answers why not, when it cannot be done."""
    note, refusal = await _lock(session, who, target)
    if note is None:
        return refusal
    changes = {"deleted_at": datetime.now(UTC)}
    await change_note(session, _acting(who), note, "deleted", reason, changes, proposal=proposal)
    return None


async def _lock(session: Session, who: Principal, target: Target) -> tuple[Row | None, str | None]:
    note = await queries.lock_note(session, tenant_id=who.tenant_id, note_id=target.note_id)
    if note is None or note["deleted_at"] is not None:
        return None, "target_gone"
    if note["version"] != target.version:
        return None, "target_changed"
    if note["pinned"]:
        return None, "target_pinned"
    if note["garden_id"] is not None and who.key_id != PIPELINE:
        await gardens.require_writable(session, who, garden_id=UUID(str(note["garden_id"])), scope=note["scope"])
    return note, None


def _acting(who: Principal) -> Principal:
    """History tells a change by the pipeline from one by the agent itself."""
    return msgspec.structs.replace(who, agent_id=PIPELINE) if who.key_id == PIPELINE else who
