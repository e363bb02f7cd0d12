"""Branches: lanes in which objects evolve. Each project has a `main`, and so have the tenant's objects of no project."""
