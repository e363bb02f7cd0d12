"""Documents: long texts, pages and files, read into notes one chunk at a time."""

from app.domains import Domain

domain = Domain(
    routers=("app.documents.routes",),
    tables=("app.documents.tables",),
    jobs=("app.documents.tasks",),
    dependencies=("app.documents.dependencies",),
)
