"""Writes of a document's chunks as notes, in short transactions that a retry can continue."""

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

from app.access import new_id
from app.db.database import Row, Session
from app.documents import queries
from app.jobs.registry import Job
from app.notes import storage as notes
from app.notes.content import Content
from app.notes.derived_notes import PIPELINE

BATCH = 32
MAX_TAGS = 50
TAG_LENGTH = 64
REREAD = "the document was read again"
# Columns that notes and links take over from their document.
OWNERSHIP = ("project_id", "agent_id", "scope", "garden_id", "user_id")


class DocumentGone(Exception):
    """The document was deleted or hidden, so there is nothing left to do."""


class ChunkWriter:
    """Writes the chunks of one document that are not written yet."""

    def __init__(self, job: Job, document: Row, chunks: Sequence[Content], *, extracted: int = 0) -> None:
        """`extracted` is how many of the first chunks are extracted."""
        self._job = job
        self._document = document
        self._chunks = chunks
        self._extracted = extracted
        self._key = {"tenant_id": job.scope.tenant_id, "document_id": str(document["document_id"])}
        self._created = 0
        self._deduplicated = 0
        self._note_ids: dict[str, str] = {}
        """The note of each content, by its hash."""
        self.missing: list[int] = []
        """Indexes of the chunks that are not written yet."""

    async def begin(self) -> None:
        """Find what an earlier attempt has written, and delete notes whose content has changed since."""
        async with self._job.holding() as session:
            await self._lock(session)
            links = await queries.list_links(session, **self._key)
            stale = {str(link["note_id"]) for link in links if not self._is_current(link)}
            await self._delete(session, [link for link in links if str(link["note_id"]) in stale])
            current = [link for link in links if str(link["note_id"]) not in stale]
            for link in current:
                self._note_ids.setdefault(link["content_hash"], str(link["note_id"]))
            self._created = sum(link["owned"] for link in current)
            self._deduplicated = len(current) - self._created
            written = {link["chunk_index"] for link in current}
            self.missing = [index for index in range(len(self._chunks)) if index not in written]
            await self._record(session, status="embedding", chunks_total=len(self._chunks))

    def _is_current(self, link: Row) -> bool:
        index: int = link["chunk_index"]
        return index < len(self._chunks) and self._chunks[index].hash == link["content_hash"]

    async def _delete(self, session: Session, links: list[Row]) -> None:
        owned = sorted({str(link["note_id"]) for link in links if link["owned"]})
        await notes.delete_notes(session, self._job.scope, note_ids=owned, reason=REREAD, key_id="service")

    async def write_batch(self) -> None:
        """Write the next chunks in a transaction of their own."""
        async with self._job.holding() as session:
            await self._write(session)
            await self._record(session)

    async def finish(self) -> None:
        """Write the last chunks and complete the document and its job in the same transaction."""
        async with self._job.finishing() as session:
            await self._write(session)
            now = datetime.now(UTC)
            await self._record(session, status="done", error=None, raw_content=None, completed_at=now)
            self._job.result = {
                "document_id": self._key["document_id"],
                "outcome": "done",
                "chunks": len(self._chunks),
                "notes_created": self._created,
                "notes_deduplicated": self._deduplicated,
            }

    async def _lock(self, session: Session) -> None:
        if await queries.lock_document(session, **self._key) is None:
            raise DocumentGone

    async def _record(self, session: Session, **values: Any) -> None:
        counts = {
            "chunks_done": self._created + self._deduplicated,
            "notes_created": self._created,
            "notes_deduplicated": self._deduplicated,
        }
        await queries.update_document(session, **self._key, **counts, **values)

    async def _write(self, session: Session) -> None:
        """Store the next batch of chunks as notes and link them to the document."""
        await self._lock(session)
        batch, self.missing = self.missing[:BATCH], self.missing[BATCH:]
        new: dict[str, int] = {}
        for index in batch:
            if self._chunks[index].hash not in self._note_ids:
                new.setdefault(self._chunks[index].hash, index)
        created: set[int] = set()
        rows = [self._note(index) for index in new.values()]
        # A note that somebody else wrote into the document's thread serves as the chunk, but is not the document's own.
        stored = await notes.store_notes(session, self._job.scope, rows) if rows else []
        for index, (note, is_new) in zip(new.values(), stored, strict=True):
            self._note_ids[self._chunks[index].hash] = str(note["note_id"])
            if is_new:
                created.add(index)
        read = [self._note_ids[self._chunks[index].hash] for index in sorted(created) if index < self._extracted]
        project_id = self._document["project_id"]
        await notes.extract_chunks(session, self._job.scope, project_id=project_id, note_ids=read, key_id=PIPELINE)
        links = [self._link(index, owned=index in created) for index in batch]
        if links:
            await queries.put_links(session, rows=links)
        self._created += len(created)
        self._deduplicated += len(batch) - len(created)

    def _note(self, index: int) -> Row:
        document, now = self._document, datetime.now(UTC)
        title: str | None = document["title"]
        tags = [title[:TAG_LENGTH].strip()] if title else []
        return {
            "tenant_id": self._key["tenant_id"],
            "note_id": new_id(),
            **{name: document[name] for name in (*OWNERSHIP, "owner_key")},
            "type": "document_chunk",
            "content": self._chunks[index].stored,
            "content_hash": self._chunks[index].hash,
            "tags": list(dict.fromkeys([*tags, *document["tags"]]))[:MAX_TAGS],
            "author": document["author"],
            "occurred_at": document["occurred_at"],
            "thread_id": f"document:{document['document_id']}",
            "position": index,
            "pinned": False,
            "extraction_status": "pending" if index < self._extracted else "none",
            "created_at": now,
            "updated_at": now,
        }

    def _link(self, index: int, *, owned: bool) -> Row:
        return {
            **self._key,
            "chunk_index": index,
            "note_id": self._note_ids[self._chunks[index].hash],
            **{name: self._document[name] for name in OWNERSHIP},
            "owned": owned,
        }
