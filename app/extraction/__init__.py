"""Extraction: models read notes in the background and propose statements, which are checked, written or reviewed."""

from app.domains import Domain

domain = Domain(
    routers=("app.extraction.routes",),
    tables=("app.extraction.tables",),
    jobs=("app.extraction.tasks",),
)
