"""Tenants, projects, API keys and gardens: who may call the service, and on whose behalf."""

from app.domains import Domain

domain = Domain(
    routers=("app.tenancy.routes",),
    tables=("app.tenancy.tables",),
)
