"""Recall: the graph of facts between entities, laid out for walking."""

from app.domains import Domain

domain = Domain(
    routers=("app.recall.routes",),
    tables=("app.recall.tables",),
    jobs=("app.recall.tasks",),
    dependencies=("app.recall.provision",),
)
