"""What a domain gives its handlers, and what has to run and to be closed for it."""

from collections.abc import Awaitable, Callable, Coroutine
from typing import Any

import msgspec

from app.config import Settings
from app.db.database import Database


class ServiceContext(msgspec.Struct, frozen=True, kw_only=True):
    """What a domain builds its dependencies from."""

    db: Database
    settings: Settings


class Provided(msgspec.Struct, frozen=True, kw_only=True):
    """What one domain provides."""

    values: dict[str, Any] = msgspec.field(default_factory=dict)
    """By the names handlers ask for them."""
    check: Callable[[], Awaitable[None]] | None = None
    """Raises StartupError when the service must not start."""
    background: tuple[Callable[[], Coroutine[Any, Any, None]], ...] = ()
    """Run as long as the service does."""
    close: tuple[Callable[[], Awaitable[None]], ...] = ()
    """Awaited in order when the service stops, before the database is closed."""
