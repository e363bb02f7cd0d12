"""Users and threads on the wire."""

from datetime import datetime
from typing import Any, Literal
from uuid import UUID

from app.facts.schemas import FactRead
from app.notes.schemas import NoteRead
from app.tenancy.schemas import Read


class UserRead(Read, frozen=True, kw_only=True):
    """An end user, with how much of each kind is theirs, counted up to 10,000."""

    user_id: str
    notes: int
    facts: int
    entities: int
    documents: int
    threads: int
    last_activity: datetime | None
    """When something of theirs was last written."""


class UserList(Read, frozen=True, kw_only=True):
    users: list[UserRead]
    next_cursor: str | None


class UserProfile(Read, frozen=True, kw_only=True):
    user: UserRead
    facts: list[FactRead]
    """What is believed of and by the user now, the newest 100."""
    profile: str
    """The same as lines of text, safe to put into a prompt."""


class UserErased(Read, frozen=True, kw_only=True):
    erasure_id: UUID
    job_id: UUID | None
    """The job that erases; null for a key bound to a project, which asks for the receipt instead."""


class UserReceipt(Read, frozen=True, kw_only=True):
    """The signed proof of what the erasure of a user destroyed."""

    receipt: dict[str, Any]
    signed: str
    """The receipt as the very text that was signed."""
    signature: str
    public_key: str
    algorithm: Literal["Ed25519"]


class ThreadRead(Read, frozen=True, kw_only=True):
    """A conversation or document: the notes that share a thread_id and a user."""

    thread_id: str
    user_id: str | None
    notes: int
    first_at: datetime
    last_at: datetime
    """When something was last said in it."""


class ThreadList(Read, frozen=True, kw_only=True):
    threads: list[ThreadRead]
    next_cursor: str | None


class Turns(Read, frozen=True, kw_only=True):
    """The notes of a thread in order."""

    notes: list[NoteRead]
    next_cursor: str | None
