"""The job queue: enqueue in the writer's transaction, lease fairly between tenants, finish every job exactly once."""

from app.domains import Domain

domain = Domain(
    routers=("app.jobs.routes",),
    tables=("app.jobs.tables",),
)
