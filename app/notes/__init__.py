"""Notes: what was said, stored first, with the history of every change."""

from app.domains import Domain

domain = Domain(
    routers=("app.notes.routes",),
    tables=("app.notes.tables",),
)
