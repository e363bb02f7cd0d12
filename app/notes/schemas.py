"""Wire types of notes."""

from datetime import datetime
from typing import Annotated, Any, Literal
from uuid import UUID

import msgspec
from msgspec import UNSET, Meta, UnsetType

from app.batches import ItemError
from app.confirmations import MAX_TOKEN_LENGTH
from app.paging import Total
from app.tenancy.schemas import Create, Moment, Read, UserId, Visibility, VisibilityIn

NoteType = Literal[
    "fact", "preference", "decision", "procedural", "semantic", "constraint", "profile", "plan", "document_chunk"
]
Tag = Annotated[str, Meta(min_length=1, max_length=64)]
Tags = Annotated[list[Tag], Meta(max_length=50)]
ShortText = Annotated[str, Meta(min_length=1, max_length=200)]
Reason = Annotated[str, Meta(min_length=1, max_length=500)]
Version = Annotated[int, Meta(ge=1, le=2**31 - 1)]


class NoteCreate(Create, frozen=True, kw_only=True):
    """A note to store."""

    content: str
    """At most 64 KiB; white space is collapsed."""
    type: NoteType = "semantic"
    tags: Tags = msgspec.field(default_factory=list)
    scope: VisibilityIn = "project_shared"
    garden_id: UUID | None = None
    user_id: UserId | None = None
    """The end user whose memory it is; absent: X-User-Id, or common to all users."""
    author: ShortText | None = None
    """Who said it."""
    occurred_at: Moment | None = None
    """When it was said; now, when absent."""
    thread_id: ShortText | None = None
    """The conversation or document it belongs to."""
    position: Annotated[int, Meta(ge=0, le=2**31 - 1)] | None = None
    """Its place in the thread. A note with a place is the same only as another at that place."""
    pinned: bool = False


class NotePatch(Create, frozen=True, kw_only=True):
    """A change of a note; fields that are left out stay as they are."""

    reason: Reason
    if_version: Version | None = None
    content: str | UnsetType = UNSET
    type: NoteType | UnsetType = UNSET
    tags: Tags | UnsetType = UNSET
    author: ShortText | UnsetType | None = UNSET
    occurred_at: Moment | UnsetType = UNSET
    pinned: bool | UnsetType = UNSET


class NoteRecover(Create, frozen=True, kw_only=True):
    reason: Reason
    if_version: Version | None = None


class NoteMention(Read, frozen=True, kw_only=True):
    """An entity that a note mentions."""

    entity_id: UUID
    text: str | None
    """The name as the note spelled it when that was recorded; null when its text did not have the name."""
    confidence: float
    """1: a caller said so, or the text has one of its names exactly. .9: it has one in another spelling. .7: only a
    model says so."""


class NoteRead(Read, frozen=True, kw_only=True):
    note_id: UUID
    content: str
    type: NoteType
    tags: list[str]
    scope: Visibility
    garden_id: UUID | None
    agent_id: str
    user_id: str | None
    """The end user whose memory it is; null is common to all users."""
    author: str | None
    occurred_at: datetime
    thread_id: str | None
    position: int | None
    pinned: bool
    extraction_status: Literal["none", "pending", "completed", "failed"]
    version: int
    derived_from: UUID | None
    """The note it was extracted from by a model."""
    confidence: float | None
    """How sure the model was that extracted it."""
    extraction_model: str | None
    created_at: datetime
    updated_at: datetime
    project_id: str | UnsetType = UNSET
    """Only on a note of another project that shares it."""
    mentions: list[NoteMention] | UnsetType = UNSET
    """Entities of the facts you can see that cite it, at most 100. Only when one note is read."""


# The fields of a note that are columns of its row.
STORED_FIELDS = tuple(name for name in NoteRead.__struct_fields__ if name not in ("project_id", "mentions"))


class NoteWritten(Read, frozen=True, kw_only=True):
    note: NoteRead
    deduplicated: bool
    job_id: UUID | None = None
    """The extraction of it, where the project has its notes extracted."""


class NoteList(Read, frozen=True, kw_only=True):
    notes: list[NoteRead]
    next_cursor: str | None
    total: Total | UnsetType = UNSET


class NoteBatch(Create, frozen=True, kw_only=True):
    notes: Annotated[list[dict[str, Any]], Meta(min_length=1)]
    """Up to 1,000, each as the body of POST /v1/notes."""
    atomic: bool = True
    """Any error, and nothing is written; false: each on its own, with a result for each."""


class NoteResult(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    index: int
    outcome: Literal["created", "deduplicated"] | None = None
    note: NoteRead | None = None
    job_id: UUID | None = None
    error: ItemError | None = None


class NoteBatchDone(Read, frozen=True, kw_only=True):
    results: list[NoteResult]


class NoteFilter(Create, frozen=True, kw_only=True):
    """Which notes are meant: those that meet every condition given."""

    type: NoteType | None = None
    tag: Tag | None = None
    """One of its tags."""
    author: ShortText | None = None
    """Who said it."""
    agent_id: Annotated[str, Meta(max_length=128)] | None = None
    """The agent that stored it."""
    scope: VisibilityIn | None = None
    garden_id: UUID | None = None
    thread_id: ShortText | None = None
    since: Moment | None = None
    """Said at this time or later."""
    until: Moment | None = None
    """Said before this time."""


class NotesForget(Create, frozen=True, kw_only=True):
    """A deletion of many notes."""

    filter: NoteFilter
    """At least one condition."""
    reason: Reason
    dry_run: bool = False
    """Only say what would be deleted, and return the token that confirms it."""
    confirm_token: Annotated[str, Meta(max_length=MAX_TOKEN_LENGTH)] | None = None
    """Of a dry run with the same filter; needed for more than 25 notes."""
    force: bool = False
    """Delete pinned notes too."""


class NotesForgotten(Read, frozen=True, kw_only=True):
    dry_run: bool
    notes: int
    """How many notes match and are deleted."""
    derived: int
    """How many notes derived from them are deleted with them."""
    facts: int
    """How many facts rest on them alone and are retracted; a dry run counts those you can see."""
    pinned: int
    """How many were left out because they, or notes derived from them, are pinned."""
    note_ids: list[UUID]
    """The deleted notes, each of which can be recovered; empty in a dry run."""
    sample: list[NoteRead]
    """In a dry run, the newest ten."""
    confirm_token: str | None
    """In a dry run of more than 25 notes: what the deletion has to send, within five minutes."""


class HistoryRead(Read, frozen=True, kw_only=True):
    event: Literal["created", "updated", "deleted", "recovered", "merged", "none", "split"]
    version: int
    changed_by: str
    reason: str | None
    old_content: str | None
    new_content: str | None
    proposal: dict[str, Any] | None
    """What the pipeline proposed, and what became of it."""
    before: dict[str, Any] | None
    """Those of its other fields that changed, as they were."""
    created_at: datetime


class HistoryList(Read, frozen=True, kw_only=True):
    events: list[HistoryRead]
    next_cursor: str | None
    total: Total | UnsetType = UNSET
