"""Branches: lanes in which objects evolve. Each project has a `main`, and so have objects of no project."""
