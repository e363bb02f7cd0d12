"""Upkeep: what is old and goes, how a project is, and what is repaired, by hand or by itself."""

from app.domains import Domain

domain = Domain(
    routers=("app.maintenance.routes",),
    jobs=("app.maintenance.tasks",),
)
