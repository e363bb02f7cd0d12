"""Documents: long texts, files and web pages, split into chunks that are stored as notes."""

from app.domains import Domain

domain = Domain(
    routers=("app.documents.routes",),
    tables=("app.documents.tables",),
    jobs=("app.documents.tasks",),
    dependencies=("app.documents.dependencies",),
)
