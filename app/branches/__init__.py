"""Branches: lanes in which objects evolve. Each project has a `main`, and so have objects of no project."""

from app.domains import Domain

domain = Domain(
    tables=("app.branches.tables",),
)
