"""Dependencies that domains provide to their handlers, with background tasks and cleanup."""

from collections.abc import Awaitable, Callable, Coroutine
from typing import Any

import msgspec

from app.config import Settings
from app.db.database import Database


class ServiceContext(msgspec.Struct, frozen=True, kw_only=True):
    """The dependencies from which domains build their own."""

    db: Database
    settings: Settings


class Provided(msgspec.Struct, frozen=True, kw_only=True):
    """The dependencies of one domain."""

    values: dict[str, Any] = msgspec.field(default_factory=dict)
    """Values by the parameter names of handlers."""
    check: Callable[[], Awaitable[None]] | None = None
    """Raises StartupError when the service must not start."""
    background: tuple[Callable[[], Coroutine[Any, Any, None]], ...] = ()
    """Tasks that run as long as the service does."""
    close: tuple[Callable[[], Awaitable[None]], ...] = ()
    """Awaited in this order when the service stops, before the database is closed."""
