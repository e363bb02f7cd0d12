"""The words facts are said in: predicates of a project, of a tenant, and of the whole installation."""
