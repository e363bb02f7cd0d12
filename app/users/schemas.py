"""Users and threads on the wire."""

from datetime import datetime
from typing import Annotated, Any, Literal
from uuid import UUID

import msgspec
from msgspec import UNSET, Meta, UnsetType

from app.facts.schemas import FactRead
from app.notes.schemas import NoteRead, ShortText
from app.paging import Total
from app.recall.schemas import MAX_QUERY
from app.tenancy.schemas import Create, Read, UserId


class UserRead(Read, frozen=True, kw_only=True):
    """An end user, with how much of each kind is theirs, counted up to 10,000."""

    user_id: str
    """Your product's id of the end user."""
    notes: int
    """Live ones."""
    facts: int
    """Those that are not retracted."""
    entities: int
    """Names that this user alone knows."""
    documents: int
    """Live ones."""
    threads: int
    """Conversations and documents."""
    last_activity: datetime | None
    """When something of theirs was last written."""


class UserList(Read, frozen=True, kw_only=True):
    users: list[UserRead]
    """In the order of their ids."""
    next_cursor: str | None
    total: Total | UnsetType = UNSET


class UserProfile(Read, frozen=True, kw_only=True):
    user: UserRead
    """How much is stored."""
    facts: list[FactRead]
    """What is believed of and by the user now, the newest 100."""
    profile: str
    """The same as lines of text, safe to put into a prompt."""


class UserErased(Read, frozen=True, kw_only=True):
    erasure_id: UUID
    """What the receipt names."""
    job_id: UUID | None
    """The job that erases; null for a key bound to a project, which asks for the receipt instead."""


class UserReceipt(Read, frozen=True, kw_only=True):
    """The signed proof of what the erasure of a user destroyed."""

    receipt: dict[str, Any]
    """What was destroyed, and when."""
    signed: str
    """The receipt as the very text that was signed."""
    signature: str
    public_key: str
    algorithm: Literal["Ed25519"]


class ThreadRead(Read, frozen=True, kw_only=True):
    """A conversation or document: the notes that share a thread_id and a user."""

    thread_id: str
    """Your product's id of the conversation."""
    user_id: str | None
    """Whose thread it is; null is common to all users."""
    notes: int
    """Live ones."""
    first_at: datetime
    """When something was first said in it."""
    last_at: datetime
    """When something was last said in it."""


class ThreadList(Read, frozen=True, kw_only=True):
    threads: list[ThreadRead]
    """In the order of their ids."""
    next_cursor: str | None
    total: Total | UnsetType = UNSET


class Turns(Read, frozen=True, kw_only=True):
    """The notes of a thread in order."""

    notes: list[NoteRead]
    """The turns, in order."""
    next_cursor: str | None
    total: Total | UnsetType = UNSET


class ContextAsk(Create, frozen=True, kw_only=True):
    """What a prompt is to be told."""

    user_id: UserId | None = None
    """The end user who is spoken with; absent: X-User-Id."""
    thread_id: ShortText | None = None
    """The conversation, whose last turns are part of the context."""
    query: Annotated[str, Meta(min_length=1, max_length=MAX_QUERY)] | None = None
    """What to look for; absent: the last turns of the thread."""
    token_budget: Annotated[int, Meta(ge=200, le=200_000)] = 2000
    """How many tokens the context may take."""
    format: Literal["text", "markdown", "messages"] = "text"
    """One block of text, the same as Markdown, or messages of a chat."""


class Message(msgspec.Struct, frozen=True, kw_only=True):
    """A message of a chat."""

    role: Literal["system", "user", "assistant"]
    """assistant where the author of the turn is called so; system only for what is remembered."""
    content: str
    """The text."""


class ContextUsed(Read, frozen=True, kw_only=True):
    """The ids of what the context is made of, each once."""

    turns: list[UUID]
    """Notes of the thread."""
    profile: list[UUID]
    """Facts of the user."""
    facts: list[UUID]
    """Other facts that fit the query."""
    notes: list[UUID]
    """Other notes that fit the query."""


class ContextRead(Read, frozen=True, kw_only=True):
    context: str | UnsetType = UNSET
    """Ready for a prompt; empty where nothing is stored that fits. Not with format `messages`."""
    messages: list[Message] | UnsetType = UNSET
    """With format `messages`: what is remembered as one system message, then the turns."""
    tokens_used: int
    """How many tokens it takes, estimated."""
    used: ContextUsed
    """What it is made of."""
    trace_id: UUID
    """The trace of the recall that is part of it."""
