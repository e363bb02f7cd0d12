"""Changes that extraction makes to notes: derived notes, updates, deletions, and a record of every proposal."""

from datetime import datetime
from typing import Any
from uuid import UUID

import msgspec

from app.access import Principal
from app.audit import events as audit
from app.db.database import Row, Session
from app.notes import queries
from app.notes.content import normalize_content
from app.notes.storage import change_note, delete_notes
from app.tenancy import gardens

# `changed_by` of what extraction changed, in a note's history.
PIPELINE = "pipeline"


class SourceNote(msgspec.Struct, frozen=True, kw_only=True):
    """The note that is extracted, at the version that was read."""

    tenant_id: str
    project_id: str
    note_id: str
    agent_id: str
    scope: str
    garden_id: str | None
    user_id: str
    owner_key: str
    occurred_at: datetime
    version: int


class DerivedNote(msgspec.Struct, frozen=True, kw_only=True):
    """A statement to be stored as a note, with the proposal for its history."""

    note_id: str
    content: str
    hash: str
    type: str
    confidence: float
    proposal: dict[str, Any]


class ProposalRecord(msgspec.Struct, frozen=True, kw_only=True):
    """A proposal that changed nothing, for the history of its source note."""

    reason: str
    proposal: dict[str, Any]


class LinkJob(msgspec.Struct, frozen=True, kw_only=True):
    """The graph_link job of a note, leased from the start to the worker that creates it."""

    payload: dict[str, Any]
    attempts: int
    owner: str
    lease_seconds: float


class AppliedExtraction(msgspec.Struct, frozen=True, kw_only=True):
    """What an extraction wrote."""

    changed: bool
    """The source note is at another version by now, so nothing was written."""
    created: int
    deduped: int
    link_job: UUID | None
    waits: bool
    """The link job runs after an earlier one of the same note; otherwise the caller holds its lease."""


async def apply_extraction(
    session: Session,
    source: SourceNote,
    *,
    model: str,
    derived: list[DerivedNote],
    records: list[ProposalRecord],
    link: LinkJob | None,
) -> AppliedExtraction:
    """Write derived notes, records and the link job, and mark the source note as completed, in one statement."""
    row = await queries.apply_extraction(
        session,
        tenant=source.tenant_id,
        project=source.project_id,
        note=source.note_id,
        version=source.version,
        model=model,
        derived=msgspec.json.encode(derived).decode(),
        records=msgspec.json.encode(records).decode(),
        link=None if link is None else msgspec.json.encode(link).decode(),
    )
    return AppliedExtraction(**row)


async def lock_notes(session: Session, who: Principal, note_ids: list[str]) -> None:
    """Lock notes in the order of their ids, so that concurrent extractions cannot deadlock."""
    await queries.lock_notes(session, tenant_id=who.tenant_id, note_ids=note_ids)


class TargetNote(msgspec.Struct, frozen=True, kw_only=True):
    """The note that a proposal changes, at the version the decision was made for."""

    note_id: str
    version: int


async def update_target(
    session: Session,
    who: Principal,
    target: TargetNote,
    *,
    content: str,
    reason: str,
    proposal: dict[str, Any],
) -> str | None:
    """Replace a note's content and return None, or return the code of why it cannot be done."""
    note, refusal = await _lock_target(session, who, target)
    if note is None:
        return refusal
    new = normalize_content(content)
    if new.hash == note["content_hash"]:
        return "no_change"
    row = {**note, "content_hash": new.hash}
    duplicates = await queries.find_same(session, tenant_id=who.tenant_id, project_id=note["project_id"], rows=[row])
    if any(all(other[name] == row[name] for name in queries.IDENTITY) for other in duplicates):
        return "duplicate_content"
    changes = {"content": new.stored, "content_hash": new.hash}
    await change_note(session, _author(who), note, "updated", reason, changes, proposal=proposal)
    return None


async def delete_target(
    session: Session, who: Principal, target: TargetNote, *, reason: str, proposal: dict[str, Any]
) -> str | None:
    """Delete a note as any caller does and return None, or return the code of why it cannot be done."""
    note, refusal = await _lock_target(session, who, target)
    if note is None:
        return refusal
    if await queries.list_family(session, tenant_id=who.tenant_id, note_ids=[target.note_id], pinned=True):
        return "target_pinned"
    gone = await delete_notes(
        session, _author(who), note_ids=[target.note_id], reason=reason, key_id=who.key_id, proposal=proposal
    )
    await audit.record(session, "note_write", key_id=who.key_id, action="delete", note_ids=gone.notes, **gone.counts())
    return None


async def _lock_target(session: Session, who: Principal, target: TargetNote) -> tuple[Row | None, str | None]:
    note = await queries.lock_note(session, tenant_id=who.tenant_id, note_id=target.note_id)
    if note is None or note["deleted_at"] is not None:
        return None, "target_gone"
    if note["version"] != target.version:
        return None, "target_changed"
    if note["pinned"]:
        return None, "target_pinned"
    if note["garden_id"] is not None and who.key_id != PIPELINE:
        await gardens.require_writable(session, who, garden_id=UUID(str(note["garden_id"])), existing=True)
    return note, None


def _author(who: Principal) -> Principal:
    """Return the caller whose agent id the history names: `pipeline` for extraction itself."""
    return msgspec.structs.replace(who, agent_id=PIPELINE) if who.key_id == PIPELINE else who
