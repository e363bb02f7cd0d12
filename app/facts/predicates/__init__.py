"""Predicates: the relations that facts use, of a project, of a tenant, or of the whole installation."""
