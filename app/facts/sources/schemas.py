"""Sources on the wire."""

from datetime import datetime
from typing import Annotated
from uuid import UUID

import msgspec
from msgspec import UNSET, Meta, UnsetType

from app.paging import Total
from app.retrieval.trust import Authority, Identity, TrustMode
from app.tenancy.schemas import AgentId, Create, Read

SourceName = Annotated[str, Meta(min_length=1, max_length=500)]


class SourcePut(Create, frozen=True, kw_only=True):
    """A source as facts name it in `source`, with its identity and authority."""

    source: SourceName
    identity: Identity = "syntactic"
    """How it proves who it is."""
    authority: Authority = "other"
    """By what right it speaks."""
    agents: Annotated[list[AgentId], Meta(max_length=100)] = msgspec.field(default_factory=list)
    """Who may speak for it; others who name it are judged as unknown. Empty: everybody may."""
    blocklisted: bool = False


class SourceRead(Read, frozen=True, kw_only=True):
    source_id: UUID
    source: str
    identity: Identity
    authority: Authority
    agents: list[str]
    blocklisted: bool
    trust: float
    """t() of it now."""
    trust_mode: TrustMode
    created_at: datetime
    updated_at: datetime


class SourceWritten(Read, frozen=True, kw_only=True):
    source: SourceRead
    created: bool
    job_id: UUID
    """The job that gives facts already written the new trust."""


class SourceList(Read, frozen=True, kw_only=True):
    sources: list[SourceRead]
    next_cursor: str | None
    total: Total | UnsetType = UNSET
