"""Lint: what in a project's memory is stale, orphaned, broken or contradictory, as far as the caller can see it."""
