"""Erasure: tombstones that hide an entity, legal holds, and the job that destroys what is hidden."""

from app.domains import Domain

domain = Domain(
    routers=("app.erasure.routes",),
    tables=("app.erasure.tables",),
    jobs=("app.erasure.tasks",),
    dependencies=("app.erasure.dependencies",),
)
