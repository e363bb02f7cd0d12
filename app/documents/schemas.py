"""Wire types of documents, which never include their content."""

from datetime import datetime
from typing import Annotated, Literal
from uuid import UUID

import msgspec
from msgspec import UNSET, Meta, UnsetType

from app.notes.schemas import NoteRead, ShortText, Tags
from app.paging import Total
from app.tenancy.schemas import Create, Moment, Read, UserId, Visibility, VisibilityIn

SourceType = Literal["text", "markdown", "html", "pdf", "url"]
DocumentStatus = Literal["queued", "extracting", "chunking", "embedding", "indexing", "done", "failed"]
Title = Annotated[str, Meta(min_length=1, max_length=500)]
Link = Annotated[str, Meta(min_length=1, max_length=2048)]


class DocumentCreate(Create, frozen=True, kw_only=True):
    """A document to create: a long text, a file or a web page."""

    source_type: SourceType | None = None
    """How it is read; absent: url when there is a url, else text."""
    content: str | None = None
    """The text itself, for text, markdown and html."""
    text: str | None = None
    """Another word for content."""
    content_base64: str | None = None
    """The bytes of a file, for pdf; also of a text in whatever charset."""
    url: Link | None = None
    """The page to fetch, http or https, for url."""
    source_url: Link | None = None
    """Another word for url; beside content: where it comes from, kept and not fetched."""
    title: Title | None = None
    """What it is called; absent: what the page or file says of itself."""
    tags: Tags = msgspec.field(default_factory=list)
    scope: VisibilityIn = "project_shared"
    garden_id: UUID | None = None
    user_id: UserId | None = None
    """The end user whose memory it is; absent: X-User-Id, or common to all users."""
    author: ShortText | None = None
    """Who wrote it."""
    occurred_at: Moment | None = None
    """When it was written; now, when absent."""


class DocumentRead(Read, frozen=True, kw_only=True):
    document_id: UUID
    source_type: SourceType
    source_url: str | None
    title: str | None
    tags: list[str]
    scope: Visibility
    garden_id: UUID | None
    agent_id: str
    user_id: str | None
    """The end user whose memory it is; null is common to all users."""
    author: str | None
    occurred_at: datetime
    content_type: str | None
    content_bytes: int | None
    status: DocumentStatus
    """queued, then each step while it happens, then done or failed."""
    error: str | None
    """Why it failed, or why the last attempt did: a stable code, a colon, and words."""
    chunks_total: int | None
    """How many chunks it has, once that is known."""
    chunks_done: int
    notes_created: int
    notes_deduplicated: int
    """Chunks that say the same as another one of this document, and share its note."""
    job_id: UUID | None
    created_at: datetime
    updated_at: datetime
    completed_at: datetime | None


class DocumentCreated(Read, frozen=True, kw_only=True):
    document: DocumentRead
    deduplicated: bool
    job_id: UUID | None


class DocumentRetried(Read, frozen=True, kw_only=True):
    document: DocumentRead
    job_id: UUID


class DocumentList(Read, frozen=True, kw_only=True):
    documents: list[DocumentRead]
    next_cursor: str | None
    total: Total | UnsetType = UNSET


class ChunkRead(NoteRead, frozen=True, kw_only=True):
    """A note that is a chunk of a document."""

    chunk_index: int


class ChunkList(Read, frozen=True, kw_only=True):
    notes: list[ChunkRead]
    next_cursor: str | None
    total: Total | UnsetType = UNSET
