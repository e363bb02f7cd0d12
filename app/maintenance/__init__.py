"""Maintenance: retention, diagnostics and lint of a project, and repairs, on request or scheduled."""

from app.domains import Domain

domain = Domain(
    routers=("app.maintenance.routes", "app.maintenance.lint.routes"),
    tables=("app.maintenance.tables",),
    jobs=("app.maintenance.tasks",),
    dependencies=("app.maintenance.dependencies",),
)
