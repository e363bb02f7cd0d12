"""What the pipeline does to notes: derives, replaces and forgets them, and puts every proposal on record."""

from datetime import UTC, datetime
from typing import Any

import msgspec

from app.db.database import Row, Session
from app.notes import queries
from app.notes.content import normalize_content
from app.notes.storing import change_note, note_event, store_notes
from app.web.auth import Principal, new_id

# Who changed a note, in its history.
PIPELINE = "pipeline"


class Source(msgspec.Struct, frozen=True, kw_only=True):
    """The note that is being extracted: whose its derivatives are, and who said them when."""

    tenant_id: str
    project_id: str
    note_id: str
    agent_id: str
    scope: str
    garden_id: str | None
    owner_key: str
    tags: list[str]
    author: str | None
    occurred_at: datetime
    version: int


class Derived(msgspec.Struct, frozen=True, kw_only=True):
    """A statement that shall become a note."""

    content: str
    type: str
    confidence: float
    model: str
    proposal: dict[str, Any]


async def derive_notes(
    session: Session, who: Principal, source: Source, drafts: list[Derived]
) -> list[tuple[str, bool]]:
    """The note of each statement, and whether it is new; one that says the same is there already for the others."""
    rows = [_row(source, draft) for draft in drafts]
    said = {row["note_id"]: draft.proposal for row, draft in zip(rows, drafts, strict=True)}
    stored = await store_notes(session, _acting(who), rows, proposals=said)
    return [(str(note["note_id"]), created) for note, created in stored]


def _row(source: Source, draft: Derived) -> Row:
    content = normalize_content(draft.content)
    now = datetime.now(UTC)
    return {
        "tenant_id": source.tenant_id,
        "note_id": new_id(),
        "project_id": source.project_id,
        "agent_id": source.agent_id,
        "scope": source.scope,
        "garden_id": source.garden_id,
        "owner_key": source.owner_key,
        "type": draft.type,
        "content": content.stored,
        "content_hash": content.hash,
        "tags": source.tags,
        "author": source.author,
        "occurred_at": source.occurred_at,
        # Outside of the thread: there it would stand between what was said.
        "thread_id": None,
        "position": None,
        "pinned": False,
        "derived_from": source.note_id,
        "confidence": draft.confidence,
        "extraction_model": draft.model,
        "created_at": now,
        "updated_at": now,
    }


async def lock_source(session: Session, source: Source) -> bool:
    """Holds the note that is extracted until the end; false when it is no longer what was read."""
    note = await queries.lock_note(session, tenant_id=source.tenant_id, note_id=source.note_id)
    return note is not None and note["deleted_at"] is None and note["version"] == source.version


async def finish_extraction(session: Session, source: Source, *, status: str) -> None:
    """Says how the extraction of a note ended."""
    await queries.set_extraction_status(session, tenant_id=source.tenant_id, note_id=source.note_id, status=status)


async def record_proposals(
    session: Session, who: Principal, source: Source, proposals: list[tuple[str, dict[str, Any]]]
) -> None:
    """Puts on record what was proposed and changed nothing, each with its reason, in the history of its source."""
    note = msgspec.structs.asdict(source)
    rows = [note_event(_acting(who), note, "none", reason, proposal=proposal) for reason, proposal in proposals]
    if rows:
        await queries.insert_history(session, rows=rows)


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
    return note, None


def _acting(who: Principal) -> Principal:
    """History tells a change by the pipeline from one by the agent itself."""
    return msgspec.structs.replace(who, agent_id=PIPELINE) if who.key_id == PIPELINE else who
