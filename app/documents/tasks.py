"""The job that reads a document into notes: fetch, extract, cut into chunks, write them, each step on record.

Whatever takes long or may fail happens between transactions. What was fetched is kept, and a chunk that is written
is not written again, so an attempt goes on where the one before was stopped. Vectors are not made here: recall stands
above notes, so chunks are queued for it in the transaction that writes them, as every note is.
"""

import asyncio
from collections.abc import Sequence
from contextlib import suppress
from datetime import UTC, datetime
from typing import Any

from msgspec.structs import replace

from app.access import new_id
from app.db.database import Row, Session
from app.documents import queries
from app.documents.chunking import count_chunks, split_text
from app.documents.dependencies import fetch_rules
from app.documents.fetching import Fetcher, FetchFailed, charset_of, kind_of
from app.documents.parsing import Parser, Unreadable
from app.documents.reading import Extract
from app.documents.service import KIND
from app.errors import Conflict
from app.jobs.registry import Job, JobContext, LeaseLost, PermanentFailure, Registry
from app.notes import queries as note_queries
from app.notes.content import Content, normalize_content
from app.tenancy.settings import PipelineSettings, find_settings

BATCH = 32
MAX_CHUNKS = 100_000
MAX_TAGS = 50
TAG_LENGTH = 64
MAX_ERROR = 1000
REREAD = "the document was read again"


class Gone(Exception):
    """The document was deleted or hidden meanwhile: there is nothing left to do."""


class Ingestion:
    """The handler of document_ingest."""

    def __init__(self, fetcher: Fetcher, parser: Parser) -> None:
        self._fetcher = fetcher
        self._parser = parser

    async def __call__(self, job: Job) -> None:
        document_id: str | None = job.payload.get("document_id")
        if document_id is None:
            raise PermanentFailure("document_gone: what this job was about is no longer there.")
        if garden_id := job.payload.get("garden_id"):
            job.scope = replace(job.scope, gardens=(garden_id,))
        try:
            await self._ingest(job, document_id)
        except Gone:
            job.result = {"document_id": document_id, "outcome": "gone"}
            async with job.finishing():
                return
        except (LeaseLost, asyncio.CancelledError):
            raise
        except Exception as problem:
            final = isinstance(problem, PermanentFailure) or job.attempt >= job.max_attempts
            kept = {"raw_content": queries.SENT_CONTENT} if final else {}
            # If this cannot be written either, how the job ended tells the same.
            with suppress(Gone):
                await _advance(job, document_id, status="failed" if final else "queued", error=_told(problem), **kept)
            raise

    async def _ingest(self, job: Job, document_id: str) -> None:
        settings = await find_settings(job.db, job.scope)
        document = await _advance(job, document_id, status="extracting", error=None)
        found = await self._extract(job, document, settings)
        title = document["title"] or found.title
        document |= {"title": title}
        await _advance(job, document_id, status="chunking", title=title)
        chunks = await asyncio.to_thread(_cut, found.text, settings)
        writing = Writing(job, document, chunks)
        await writing.begin()
        while len(writing.missing) > BATCH:
            await writing.write_batch()
        await _advance(job, document_id, status="indexing")
        await writing.finish()

    async def _extract(self, job: Job, document: Row, settings: PipelineSettings) -> Extract:
        """What the document says; it is fetched first, once, when it is a page."""
        document_id, limit = str(document["document_id"]), settings.document_max_content_bytes
        async with job.db.tenant(job.scope) as session:
            raw = await queries.read_content(session, tenant_id=job.scope.tenant_id, document_id=document_id)
        kind, content_type = document["source_type"], document["content_type"]
        if raw is None:
            if kind != "url" or document["source_url"] is None:
                raise PermanentFailure("document_gone: its content is no longer there.")
            page = await self._fetcher.fetch(document["source_url"], limit=limit)
            raw, content_type = page.content, page.content_type
            kept = {"raw_content": raw, "content_type": content_type, "content_bytes": len(raw)}
            await _advance(job, document_id, **kept)
        if kind == "url":
            kind = kind_of(content_type or "", raw)
        return await self._parser.parse(kind, raw, charset=charset_of(content_type), limit=limit)


async def _advance(job: Job, document_id: str, **values: Any) -> Row:
    """Puts on record how far it is, in a transaction of its own; answers the document as it was."""
    place = {"tenant_id": job.scope.tenant_id, "document_id": document_id}
    async with job.holding() as session:
        document = await queries.lock_document(session, **place)
        if document is None:
            raise Gone
        await queries.update_document(session, **place, **values)
        return document


def _told(problem: Exception) -> str:
    """What a reader may know of a failure: our own words, of anything else only its kind."""
    if isinstance(problem, PermanentFailure | FetchFailed):
        return str(problem)[:MAX_ERROR]
    return f"internal_error: reading it failed ({type(problem).__qualname__})."


def _cut(text: str, settings: PipelineSettings) -> list[Content]:
    """The chunks of a text as they are stored: windows over what is left when white space is collapsed."""
    stored = normalize_content(text).stored
    size, overlap = settings.document_chunk_size, settings.document_chunk_overlap
    if count_chunks(len(stored), size=size, overlap=overlap) > MAX_CHUNKS:
        raise Unreadable("document_too_large", f"It has more than {MAX_CHUNKS} chunks of document_chunk_size.")
    return [normalize_content(chunk) for chunk in split_text(stored, size=size, overlap=overlap)]


class Writing:
    """The chunks of one document on their way into notes, in short transactions."""

    def __init__(self, job: Job, document: Row, chunks: Sequence[Content]) -> None:
        self._job = job
        self._document = document
        self._chunks = chunks
        self._place = {"tenant_id": job.scope.tenant_id, "document_id": str(document["document_id"])}
        self._owned = 0
        self._shared = 0
        self._notes: dict[str, str] = {}
        """The note of each content, by its hash."""
        self.missing: list[int] = []
        """Chunks that are not written yet."""

    async def begin(self) -> None:
        """Finds out what an attempt before has written; what no longer fits is forgotten."""
        async with self._job.holding() as session:
            await self._lock(session)
            links = await queries.list_links(session, **self._place)
            stale = {str(link["note_id"]) for link in links if not self._fits(link)}
            if stale:
                await self._forget(session, sorted(stale))
            valid = [link for link in links if str(link["note_id"]) not in stale]
            for link in valid:
                self._notes.setdefault(link["content_hash"], str(link["note_id"]))
            self._owned = sum(link["owned"] for link in valid)
            self._shared = len(valid) - self._owned
            written = {link["chunk_index"] for link in valid}
            self.missing = [index for index in range(len(self._chunks)) if index not in written]
            await self._record(session, status="embedding", chunks_total=len(self._chunks))

    def _fits(self, link: Row) -> bool:
        index: int = link["chunk_index"]
        return index < len(self._chunks) and self._chunks[index].hash == link["content_hash"]

    async def write_batch(self) -> None:
        """Writes the next few chunks."""
        async with self._job.holding() as session:
            await self._write(session)
            await self._record(session)

    async def finish(self) -> None:
        """Writes the last ones, and ends document and job with them."""
        document_id = self._place["document_id"]
        async with self._job.finishing() as session:
            await self._write(session)
            now = datetime.now(UTC)
            await self._record(session, status="done", error=None, raw_content=None, completed_at=now)
            self._job.result = {
                "document_id": document_id,
                "outcome": "done",
                "chunks": len(self._chunks),
                "notes_created": self._owned,
                "notes_deduplicated": self._shared,
            }

    async def _lock(self, session: Session) -> None:
        if await queries.lock_document(session, **self._place) is None:
            raise Gone

    async def _record(self, session: Session, **values: Any) -> None:
        counts = {
            "chunks_done": self._owned + self._shared,
            "notes_created": self._owned,
            "notes_deduplicated": self._shared,
        }
        await queries.update_document(session, **self._place, **counts, **values)

    async def _forget(self, session: Session, notes: list[str]) -> None:
        arguments = {
            "tenant": self._place["tenant_id"],
            "document": self._place["document_id"],
            "notes": notes,
            "agent": self._job.scope.agent_id,
            "reason": REREAD,
            "now": datetime.now(UTC),
        }
        forgotten = await session.rows(queries.FORGET_SOME, arguments)
        await self._queue(session, [str(row["note_id"]) for row in forgotten])

    async def _queue(self, session: Session, note_ids: list[str]) -> None:
        if note_ids:
            place = {"tenant_id": self._place["tenant_id"], "project_id": self._document["project_id"]}
            await note_queries.queue_notes(session, **place, note_ids=note_ids)

    async def _write(self, session: Session) -> None:
        """Writes the next chunks as notes, with their history and their place in the document."""
        await self._lock(session)
        batch, self.missing = self.missing[:BATCH], self.missing[BATCH:]
        fresh: dict[str, int] = {}
        for index in batch:
            if self._chunks[index].hash not in self._notes:
                fresh.setdefault(self._chunks[index].hash, index)
        rows = [self._note(index) for index in fresh.values()]
        made = {str(row["note_id"]) for row in await self._insert(session, rows)}
        for row in rows:
            self._notes[row["content_hash"]] = str(row["note_id"])
        if others := [row for row in rows if row["note_id"] not in made]:
            await self._adopt(session, others)
        links = [self._link(index, made if fresh.get(self._chunks[index].hash) == index else ()) for index in batch]
        if links:
            await queries.put_links(session, rows=links)
        self._owned += len(made)
        self._shared += len(batch) - len(made)

    async def _insert(self, session: Session, rows: list[Row]) -> list[Row]:
        if not rows:
            return []
        made = await note_queries.insert_notes(session, rows=rows)
        ids = {str(row["note_id"]) for row in made}
        events = [self._event(row) for row in rows if row["note_id"] in ids]
        if events:
            await note_queries.insert_history(session, rows=events)
            await self._queue(session, sorted(ids))
        return made

    async def _adopt(self, session: Session, rows: list[Row]) -> None:
        """Somebody wrote the very same note into the document's thread: it serves, and is not the document's."""
        place = {"tenant_id": self._place["tenant_id"], "project_id": self._document["project_id"]}
        found = await note_queries.find_same(session, **place, rows=rows)
        known = {tuple(row[name] for name in note_queries.IDENTITY): str(row["note_id"]) for row in found}
        for row in rows:
            note_id = known.get(tuple(row[name] for name in note_queries.IDENTITY))
            if note_id is None:
                raise Conflict("A note that was in the way has gone; try again.", code="note_duplicate")
            self._notes[row["content_hash"]] = note_id

    def _note(self, index: int) -> Row:
        document, now = self._document, datetime.now(UTC)
        title: str | None = document["title"]
        tags = [title[:TAG_LENGTH].strip()] if title else []
        return {
            "tenant_id": self._place["tenant_id"],
            "note_id": new_id(),
            **{name: document[name] for name in ("project_id", "agent_id", "scope", "garden_id", "owner_key")},
            "type": "document_chunk",
            "content": self._chunks[index].stored,
            "content_hash": self._chunks[index].hash,
            "tags": list(dict.fromkeys([*tags, *document["tags"]]))[:MAX_TAGS],
            "author": document["author"],
            "occurred_at": document["occurred_at"],
            "thread_id": f"document:{document['document_id']}",
            "position": index,
            "pinned": False,
            "created_at": now,
            "updated_at": now,
        }

    def _event(self, note: Row) -> Row:
        names = ("tenant_id", "project_id", "note_id", "agent_id", "scope", "garden_id", "created_at")
        return {
            **{name: note[name] for name in names},
            "history_id": new_id(),
            "event": "created",
            "version": 1,
            "changed_by": self._job.scope.agent_id,
            "reason": None,
            "old_content": None,
            "new_content": note["content"],
        }

    def _link(self, index: int, made: Any) -> Row:
        note_id = self._notes[self._chunks[index].hash]
        document = self._document
        return {
            **self._place,
            "chunk_index": index,
            "note_id": note_id,
            **{name: document[name] for name in ("project_id", "agent_id", "scope", "garden_id")},
            "owned": note_id in made,
        }


def register_jobs(registry: Registry, context: JobContext) -> None:
    """Register the reading of documents."""
    settings = context.settings
    fetcher = Fetcher(fetch_rules(settings), seconds=settings.document_fetch_seconds)
    registry.register(KIND, Ingestion(fetcher, Parser()))
