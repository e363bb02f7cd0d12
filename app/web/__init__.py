"""The web layer: authentication, guards, error envelope, idempotency, rate limits, health and reference."""

from app.domains import Domain

domain = Domain(
    tables=("app.web.tables",),
)
