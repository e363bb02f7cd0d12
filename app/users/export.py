"""The export of everything of a user, as lines of JSON that are read page by page while they are sent."""

from collections.abc import AsyncGenerator, Awaitable, Callable
from typing import Any

import msgspec

from app.access import Principal, as_user
from app.db.database import Database
from app.documents import service as documents
from app.facts import reads
from app.facts.entities import service as entities
from app.notes import service as notes
from app.paging import CursorSigner, Page
from app.read_context import CheckHeldNotes, ReadContext

PAGE = 200

ReadPage = Callable[[Page], Awaitable[tuple[list[Any], str | None]]]


async def export_user(
    db: Database, caller: Principal, *, user: str, signer: CursorSigner, check_held: CheckHeldNotes
) -> AsyncGenerator[bytes]:
    """Yield a line for each row of the user that the caller can see, and at last one with the counts."""
    who = as_user(caller, user)
    context = ReadContext.of(who)

    async def read_entities(page: Page) -> tuple[list[Any], str | None]:
        filters: dict[str, str | None] = {"name": None, "prefix": None, "kind": None}
        found = await entities.list_entities(db, context, filters=filters, page=page)
        return found.entities, found.next_cursor

    async def read_documents(page: Page) -> tuple[list[Any], str | None]:
        found = await documents.list_documents(db, who, filters={}, page=page)
        return found.documents, found.next_cursor

    async def read_notes(page: Page) -> tuple[list[Any], str | None]:
        found = await notes.list_notes(db, context, filters={}, page=page, check_held=check_held)
        return found.notes, found.next_cursor

    async def read_facts(page: Page) -> tuple[list[Any], str | None]:
        filters = reads.FactFilters(own=True, include_inactive=True)
        found = await reads.list_facts(db, context, filters=filters, page=page)
        return found.facts, found.next_cursor

    counts: dict[str, int] = {}
    # Each with the scope that reads it.
    parts: dict[str, tuple[str, ReadPage]] = {
        "entity": ("facts:read", read_entities),
        "document": ("notes:read", read_documents),
        "note": ("notes:read", read_notes),
        "fact": ("facts:read", read_facts),
    }
    for kind, (scope, read) in parts.items():
        if scope not in who.scopes:
            continue
        counts[kind] = 0
        async for row in _rows(who, signer, kind, read):
            line = {"kind": kind, **msgspec.to_builtins(row)}
            if kind == "note":
                line["history"] = await _history(db, who, row, signer)
            counts[kind] += 1
            yield msgspec.json.encode(line) + b"\n"
    yield msgspec.json.encode({"kind": "end", "user_id": who.user_id, "counts": counts}) + b"\n"


async def _rows(who: Principal, signer: CursorSigner, kind: str, read: ReadPage) -> AsyncGenerator[Any]:
    """Yield the rows of one kind that are the user's own."""
    cursor: str | None = None
    while True:
        # Each page has a cursor of its own, so that an export may take longer than one is valid.
        rows, cursor = await read(Page(signer, who, f"export {kind}", limit=PAGE, cursor=cursor))
        for row in rows:
            if row.user_id == who.user_id:
                yield row
        if cursor is None:
            return


async def _history(db: Database, who: Principal, note: Any, signer: CursorSigner) -> list[Any]:
    if note.version == 1:
        return []
    page = Page(signer, who, "export history", limit=PAGE, cursor=None)
    found = await notes.list_history(db, who, note_id=note.note_id, page=page)
    return msgspec.to_builtins(found.events)
