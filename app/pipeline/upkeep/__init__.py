"""Upkeep: what is old and goes, how a project is, and what is repaired, by hand or by itself."""
