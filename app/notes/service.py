"""Use cases of notes: create, read, change, delete, recover; every change is recorded in the history."""

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

import msgspec

from app.access import Principal, as_user, new_id, require_own, require_project
from app.audit import events as audit
from app.batches import check_size, convert_item, item_error, stop_if_atomic
from app.db.counts import COUNT_LIMIT, count_query
from app.db.database import Database, Row, Session
from app.db.retries import retried
from app.errors import AppError, BadRequest, Conflict, TooLarge
from app.inputs import as_utc
from app.jobs import service as jobs
from app.notes import queries
from app.notes.content import normalize_content
from app.notes.schemas import (
    HistoryList,
    HistoryRead,
    NoteBatch,
    NoteBatchDone,
    NoteCreate,
    NoteList,
    NotePatch,
    NoteRead,
    NoteRecover,
    NoteResult,
    NoteWritten,
)
from app.notes.storage import (
    change_note,
    delete_notes,
    extract_notes,
    mark_extraction,
    note_not_found,
    owner_key,
    present_note,
    recover_dependents,
    require_unpinned,
    store_notes,
)
from app.outcomes import Outcome
from app.paging import Page
from app.read_context import CheckHeldNotes, ReadContext, look_back
from app.tenancy import gardens
from app.tenancy.schemas import SYNONYMS

MAX_CONTENT_BYTES = 64 * 1024
RECOVERABLE_FOR = timedelta(days=30)
EXTRACTION_JOBS = ("extract", "graph_link")


async def create_note(session: Session, who: Principal, *, data: NoteCreate) -> Outcome[NoteWritten]:
    """Store a note, or return the live note that has the same content."""
    row = _new_row(who, data)
    await _check_gardens(session, who, [row])
    ((note, created),) = await store_notes(session, who, [row])
    queued = await extract_notes(session, who, [row] if created else [])
    job_id = queued.get(str(note["note_id"]))
    return Outcome(NoteWritten(note=present_note(note), deduplicated=not created, job_id=job_id), created=created)


async def wait_for_extraction(db: Database, who: Principal, *, made: NoteWritten, seconds: float) -> NoteWritten:
    """Return the note as it is once its extraction and linking have ended, or after `seconds`."""
    if made.job_id is None:
        return made
    await jobs.wait_until_done(db, who, kinds=EXTRACTION_JOBS, dedupe_key=str(made.note.note_id), seconds=seconds)
    found = await read_notes(db, who, ids=[str(made.note.note_id)])
    # A note that was deleted in the meantime was created all the same.
    return msgspec.structs.replace(made, note=found[0]) if found else made


async def create_notes(session: Session, who: Principal, *, data: NoteBatch) -> Outcome[NoteBatchDone]:
    """Store up to 1,000 notes, all or none, or each on its own with a result for each."""
    check_size(data.notes, "notes")
    rows: dict[int, Row] = {}
    errors: dict[int, AppError] = {}
    for index, item in enumerate(data.notes):
        try:
            rows[index] = _new_row(who, convert_item(item, NoteCreate))
        except AppError as problem:
            errors[index] = problem
    stop_if_atomic("notes", atomic=data.atomic, errors=errors)
    for index in list(rows):
        try:
            await _check_gardens(session, who, [rows[index]])
        except AppError as problem:
            errors[index] = problem
            del rows[index]
    stop_if_atomic("notes", atomic=data.atomic, errors=errors)
    stored = dict(zip(rows, await store_notes(session, who, list(rows.values())), strict=True))
    queued = await extract_notes(session, who, [note for note, created in stored.values() if created])
    results = [_result(index, stored, errors, queued) for index in range(len(data.notes))]
    return Outcome(NoteBatchDone(results=results), created=False)


def _result(
    index: int, stored: dict[int, tuple[Row, bool]], errors: dict[int, AppError], queued: dict[str, UUID]
) -> NoteResult:
    if index in errors:
        return NoteResult(index=index, error=item_error(errors[index]))
    note, created = stored[index]
    outcome = "created" if created else "deduplicated"
    return NoteResult(index=index, outcome=outcome, note=present_note(note), job_id=queued.get(str(note["note_id"])))


def _new_row(caller: Principal, data: NoteCreate) -> Row:
    who = as_user(caller, data.user_id)
    if data.position is not None and data.thread_id is None:
        raise BadRequest("position: needs thread_id, because it is a position in a thread.")
    scope = SYNONYMS.get(data.scope, data.scope)
    now = datetime.now(UTC)
    garden_id = None if data.garden_id is None else str(data.garden_id)
    return {
        "tenant_id": who.tenant_id,
        "note_id": new_id(),
        "project_id": require_project(who),
        "agent_id": who.agent_id,
        "scope": scope,
        "garden_id": garden_id,
        "user_id": who.owner_user,
        "owner_key": owner_key(who, scope=scope, garden_id=garden_id),
        "type": data.type,
        **_checked_content(data.content),
        "tags": list(dict.fromkeys(data.tags)),
        "author": data.author,
        "occurred_at": now if data.occurred_at is None else as_utc(data.occurred_at, "occurred_at"),
        "thread_id": data.thread_id,
        "position": data.position,
        "pinned": data.pinned,
        "created_at": now,
        "updated_at": now,
    }


def _checked_content(text: str) -> dict[str, str]:
    content = normalize_content(text)
    if not content.stored:
        raise BadRequest("content: must not be empty or only white space.")
    if len(content.stored.encode()) > MAX_CONTENT_BYTES:
        raise TooLarge("content: over 64 KiB; split it, or store it as a document.", code="content_too_large")
    return {"content": content.stored, "content_hash": content.hash}


async def _check_gardens(session: Session, who: Principal, rows: Sequence[Row]) -> None:
    for row in rows:
        if row["garden_id"] is not None:
            await gardens.require_writable(session, who, garden_id=UUID(row["garden_id"]), scope=row["scope"])


async def get_note(db: Database, context: ReadContext, *, note_id: UUID, check_held: CheckHeldNotes) -> NoteRead:
    """Return a note that the caller can see, live or as it was at the context's time, or raise NotFound.

    Raise Forbidden where `check_held` does.
    """
    who = context.who
    if context.as_of is None:
        rows = await db.fetch(who, queries.select_note(tenant_id=who.tenant_id, note_id=str(note_id)))
    else:
        rows = await _read_past(db, context, limit=1, note_id=str(note_id))
        await check_held(db, context, note_ids=_held_notes(rows))
    if not rows:
        raise note_not_found()
    return present_note(rows[0])


def _held_notes(rows: list[Row]) -> list[UUID]:
    return [UUID(str(row["note_id"])) for row in rows if row["suppression"] > 0]


async def _read_past(db: Database, context: ReadContext, *, limit: int, count: bool = False, **given: Any) -> list[Row]:
    params = {**context.parameters(), **given, "limit": limit}
    query = queries.select_notes_as_of(set(given))
    return await look_back(db, context.who, count_query(query) if count else query, params)


async def read_notes(db: Database, who: Principal, *, ids: list[str]) -> list[NoteRead]:
    """Return those of the notes that are live and that the caller can see."""
    if not ids:
        return []
    rows = await db.fetch(who, queries.select_named(tenant_id=who.tenant_id, note_ids=ids))
    return [present_note(row) for row in rows]


async def list_notes(
    db: Database, context: ReadContext, *, filters: dict[str, Any], page: Page, check_held: CheckHeldNotes
) -> NoteList:
    """Return a page of notes, newest first: live ones, or with `as_of` those of that time.

    Raise Forbidden for a garden the caller is no member of, and where `check_held` does.
    """
    who = context.who
    if filters.get("garden_id") is not None:
        async with db.tenant(who) as session:
            await gardens.require_readable(session, who, garden_id=UUID(filters["garden_id"]))
    if context.as_of is None:
        after = None if page.after is None else (datetime.fromisoformat(page.after[0]), page.after[1])
        found = await db.fetch(who, queries.select_notes(who, filters=filters, after=after, limit=page.limit + 1))
        every = queries.select_notes(who, filters=filters, after=None, limit=COUNT_LIMIT)
        total = await page.count_rows(db, who, every)
    else:
        given = {name: value for name, value in filters.items() if value is not None}
        after = {} if page.after is None else {"after": page.after[0], "after_id": page.after[1]}
        found = await _read_past(db, context, limit=page.limit + 1, **given, **after)
        total = await page.count(lambda: _read_past(db, context, limit=COUNT_LIMIT, count=True, **given))
    rows, next_cursor = page.cut(found, key=lambda row: [row["created_at"].isoformat(), str(row["note_id"])])
    if context.as_of is not None:
        await check_held(db, context, note_ids=_held_notes(rows))
    return NoteList(
        notes=[present_note(row) for row in rows],
        next_cursor=next_cursor,
        total=total,
    )


async def patch_note(db: Database, who: Principal, *, note_id: UUID, data: NotePatch) -> NoteWritten:
    """Change a note and return it; equal values leave version and history as they are."""
    changes: dict[str, Any] = {
        name: value
        for name, value in msgspec.structs.asdict(data).items()
        if value is not msgspec.UNSET and name not in ("reason", "if_version")
    }
    if "content" in changes:
        changes |= _checked_content(changes["content"])
    if "occurred_at" in changes:
        changes["occurred_at"] = as_utc(changes["occurred_at"], "occurred_at")
    if "tags" in changes:
        changes["tags"] = list(dict.fromkeys(changes["tags"]))
    if not changes:
        raise BadRequest("Send at least one field to change besides the reason.")
    async with db.tenant(who) as session:
        note = await _lock(session, who, note_id, if_version=data.if_version, deleted=False)
        changes = {name: value for name, value in changes.items() if note[name] != value}
        if not changes:
            return NoteWritten(note=present_note(note), deduplicated=False)
        row = await change_note(session, who, note, "updated", data.reason, changes)
        return await _extract_again(session, who, row, wanted="content" in changes)


async def delete_note(
    db: Database, who: Principal, *, note_id: UUID, reason: str, if_version: int | None, force: bool = False
) -> None:
    """Delete a note with the notes derived from it and the facts that rest on it alone, recoverable for 30 days.

    Raise Conflict for a pinned note unless `force`.
    """

    async def write() -> None:
        async with db.tenant(who) as session:
            await _lock(session, who, note_id, if_version=if_version, deleted=False)
            if not force:
                await require_unpinned(session, who, note_ids=[str(note_id)])
            gone = await delete_notes(session, who, note_ids=[str(note_id)], reason=reason, key_id=who.key_id)
            await audit.record(
                session, "note_write", key_id=who.key_id, action="delete", note_ids=gone.notes, **gone.counts()
            )

    await retried(write)


async def recover_note(db: Database, who: Principal, *, note_id: UUID, data: NoteRecover) -> NoteWritten:
    """Recover a deleted note with what was deleted and retracted with it, and return it."""

    async def write() -> NoteWritten:
        async with db.tenant(who) as session:
            note = await _lock(session, who, note_id, if_version=data.if_version, deleted=True)
            if note["deleted_at"] < datetime.now(UTC) - RECOVERABLE_FOR:
                raise Conflict(
                    "The note was deleted more than 30 days ago and cannot be recovered.", code="recovery_expired"
                )
            changes = {"deleted_at": None, "deleted_with": None}
            row = await change_note(session, who, note, "recovered", data.reason, changes)
            back = await recover_dependents(session, who, note_id=str(note_id), key_id=who.key_id)
            await audit.record(
                session, "note_write", key_id=who.key_id, action="recover", note_ids=back.notes, **back.counts()
            )
            return await _extract_again(session, who, row, wanted=row["extraction_status"] != "completed")

    return await retried(write)


async def _extract_again(session: Session, who: Principal, note: Row, *, wanted: bool) -> NoteWritten:
    """Queue the extraction of a note that was changed or recovered, where it is wanted; return the note."""
    queued = await extract_notes(session, who, [note] if wanted else [])
    if queued:
        note = await mark_extraction(session, who, note_id=note["note_id"], status="pending")
    return NoteWritten(note=present_note(note), deduplicated=False, job_id=next(iter(queued.values()), None))


async def _lock(session: Session, who: Principal, note_id: UUID, *, if_version: int | None, deleted: bool) -> Row:
    note = await queries.lock_note(session, tenant_id=who.tenant_id, note_id=str(note_id))
    if note is None or (note["deleted_at"] is not None and not deleted):
        raise note_not_found()
    require_own(who, note["user_id"], "The note")
    if note["garden_id"] is not None:
        await gardens.require_writable(session, who, garden_id=UUID(str(note["garden_id"])), existing=True)
    if deleted and note["deleted_at"] is None:
        raise Conflict("This note is not deleted.", code="not_deleted")
    if if_version is not None and if_version != note["version"]:
        raise Conflict(
            f"if_version: the note is at version {note['version']}.",
            code="version_conflict",
            details={"version": note["version"]},
        )
    return note


async def list_history(db: Database, who: Principal, *, note_id: UUID, page: Page) -> HistoryList:
    """Return a page of a note's history, oldest first, also of a deleted note."""
    after = None if page.after is None else page.after[0]
    place = {"tenant_id": who.tenant_id, "note_id": str(note_id)}
    found = await db.fetch(who, queries.select_history(**place, after=after, limit=page.limit + 1))
    if not found and page.after is None:
        raise note_not_found()
    rows, next_cursor = page.cut(found, key=lambda row: [str(row["history_id"])])
    events = [HistoryRead(**{name: row[name] for name in HistoryRead.__struct_fields__}) for row in rows]
    total = await page.count_rows(db, who, queries.select_history(**place, after=None, limit=COUNT_LIMIT))
    return HistoryList(events=events, next_cursor=next_cursor, total=total)
