"""The document_ingest job: fetch, extract the text, split it into chunks and store them as notes.

Slow or failing steps run between transactions. Fetched content is kept and written chunks are not written again, so
an attempt continues where the one before stopped. Vectors are not made here: every stored note is queued for them.
"""

import asyncio
from contextlib import suppress
from typing import Any

from msgspec.structs import replace

from app.db.database import Row
from app.documents import queries
from app.documents.chunk_notes import BATCH, ChunkWriter, DocumentGone
from app.documents.chunks import join_lines, split_document
from app.documents.fetcher import Fetcher, FetchFailed, FetchRules, charset_of, kind_of
from app.documents.parser import Parser, Unreadable
from app.documents.parser_process import ParsedText
from app.documents.service import JOB_KIND
from app.jobs.registry import Job, JobContext, LeaseLost, PermanentFailure, Registry
from app.notes.content import Content, normalize_content
from app.tenancy.settings import PipelineSettings, find_settings

MAX_CHUNKS = 100_000
MAX_ERROR = 1000


class IngestTask:
    """The handler of document_ingest."""

    def __init__(self, fetcher: Fetcher, parser: Parser) -> None:
        self._fetcher = fetcher
        self._parser = parser

    async def __call__(self, job: Job) -> None:
        document_id: str | None = job.payload.get("document_id")
        if document_id is None:
            raise PermanentFailure("document_gone: the document of this job no longer exists.")
        if garden_id := job.payload.get("garden_id"):
            job.scope = replace(job.scope, gardens=(garden_id,))
        try:
            await self._ingest(job, document_id)
        except DocumentGone:
            job.result = {"document_id": document_id, "outcome": "gone"}
            async with job.finishing():
                return
        except (LeaseLost, asyncio.CancelledError):
            raise
        except Exception as problem:
            final = isinstance(problem, PermanentFailure) or job.attempt >= job.max_attempts
            kept = {"raw_content": queries.SENT_CONTENT} if final else {}
            status, error = "failed" if final else "queued", _public_error(problem)
            # When this cannot be written either, the status of the job tells the same.
            with suppress(DocumentGone):
                await _advance(job, document_id, status=status, error=error, **kept)
            raise

    async def _ingest(self, job: Job, document_id: str) -> None:
        settings = await find_settings(job.db, job.scope)
        document = await _advance(job, document_id, status="extracting", error=None)
        parsed = await self._parse(job, document, settings)
        document |= {"title": document["title"] or parsed.title}
        await _advance(job, document_id, status="chunking", title=document["title"])
        chunks = await asyncio.to_thread(_split, parsed.text, settings)
        extracted = settings.document_extract_chunks if settings.enabled else 0
        writer = ChunkWriter(job, document, chunks, extracted=extracted)
        await writer.begin()
        while len(writer.missing) > BATCH:
            await writer.write_batch()
        await _advance(job, document_id, status="indexing")
        await writer.finish()

    async def _parse(self, job: Job, document: Row, settings: PipelineSettings) -> ParsedText:
        """Return the text of the document; a page is fetched first and kept for later attempts."""
        document_id, limit = str(document["document_id"]), settings.document_max_content_bytes
        async with job.db.tenant(job.scope) as session:
            raw = await queries.read_content(session, tenant_id=job.scope.tenant_id, document_id=document_id)
        kind, content_type = document["source_type"], document["content_type"]
        if raw is None:
            if kind != "url" or document["source_url"] is None:
                raise PermanentFailure("document_gone: the content of the document no longer exists.")
            page = await self._fetcher.fetch(document["source_url"], limit=limit)
            raw, content_type = page.content, page.content_type
            kept = {"raw_content": raw, "content_type": content_type, "content_bytes": len(raw)}
            await _advance(job, document_id, **kept)
        if kind == "url":
            kind = kind_of(content_type or "", raw)
        return await self._parser.parse(kind, raw, charset=charset_of(content_type), limit=limit)


async def _advance(job: Job, document_id: str, **values: Any) -> Row:
    """Update the document in a transaction of its own and return it as it was, or raise DocumentGone."""
    key = {"tenant_id": job.scope.tenant_id, "document_id": document_id}
    async with job.holding() as session:
        document = await queries.lock_document(session, **key)
        if document is None:
            raise DocumentGone
        await queries.update_document(session, **key, **values)
        return document


def _public_error(problem: Exception) -> str:
    """Return the error that callers may see: our own messages, and only the type of any other exception."""
    if isinstance(problem, PermanentFailure | FetchFailed):
        return str(problem)[:MAX_ERROR]
    return f"internal_error: reading it failed ({type(problem).__qualname__})."


def _split(text: str, settings: PipelineSettings) -> list[Content]:
    """Return the chunks of a text, whose headings, list items and paragraphs stay lines."""
    size, overlap = settings.document_chunk_size, settings.document_chunk_overlap
    chunks: list[Content] = []
    for chunk in split_document(join_lines(text), size=size, overlap=overlap):
        if len(chunks) == MAX_CHUNKS:
            raise Unreadable("document_too_large", f"It has more than {MAX_CHUNKS} chunks of document_chunk_size.")
        chunks.append(replace(normalize_content(chunk), stored=chunk))
    return chunks


def register_jobs(registry: Registry, context: JobContext) -> None:
    """Register the ingestion of documents."""
    settings = context.settings
    fetcher = Fetcher(FetchRules.from_settings(settings), seconds=settings.document_fetch_seconds)
    registry.register(JOB_KIND, IngestTask(fetcher, Parser(children=settings.document_readers)))
