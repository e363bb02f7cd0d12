"""Recall: facts and notes that fit a query, ranked, packed into a token budget, with a trace of what was returned."""

from app.domains import Domain

domain = Domain(
    routers=("app.recall.routes",),
    tables=("app.recall.tables",),
    jobs=("app.recall.tasks",),
    dependencies=("app.recall.dependencies",),
)
