"""The pipeline: what models make of notes in the background, proposed, judged, written and reviewed."""

from app.domains import Domain

domain = Domain(
    routers=("app.extraction.routes",),
    tables=("app.extraction.tables",),
    jobs=("app.extraction.tasks",),
)
