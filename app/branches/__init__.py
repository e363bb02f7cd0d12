"""Branches: separate lines of versions of objects. Each project has a `main`; so have objects of no project."""

from app.domains import Domain

domain = Domain(
    tables=("app.branches.tables",),
)
