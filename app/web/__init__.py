"""The HTTP edge: authentication, guards, error envelope, cursors, idempotency, rate limits, health."""

from app.domains import Domain

domain = Domain(
    tables=("app.web.tables",),
)
