"""Tenants, projects, API keys and gardens: who may speak, and in whose name."""

from app.domains import Domain

domain = Domain(
    routers=("app.tenancy.routes",),
    tables=("app.tenancy.tables",),
)
