"""Requests and responses of redaction patterns."""

from datetime import datetime
from typing import Annotated
from uuid import UUID

from msgspec import UNSET, Meta, UnsetType

from app.paging import Total
from app.tenancy.schemas import Create, Read

Pattern = Annotated[str, Meta(min_length=1, max_length=200)]


class RedactionCreate(Create, frozen=True, kw_only=True):
    pattern: Pattern
    """A regular expression of PostgreSQL without back-references; case-insensitive."""


class RedactionRead(Read, frozen=True, kw_only=True):
    redaction_id: UUID
    pattern: str
    created_by: str
    created_at: datetime


class RedactionCreated(Read, frozen=True, kw_only=True):
    redaction: RedactionRead
    created: bool


class RedactionList(Read, frozen=True, kw_only=True):
    redactions: list[RedactionRead]
    built_in: list[str]
    """The patterns that apply to every tenant."""
    next_cursor: str | None
    total: Total | UnsetType = UNSET
