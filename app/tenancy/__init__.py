"""Tenants, projects, API keys and gardens: who may speak, and in whose name."""
