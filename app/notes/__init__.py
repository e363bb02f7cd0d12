"""Notes: what was said, as it was said, with the history of every change."""

from app.domains import Domain

domain = Domain(
    routers=("app.notes.routes",),
    tables=("app.notes.tables",),
)
