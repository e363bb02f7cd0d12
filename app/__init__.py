"""Palimpsest: long-term memory for agents and the products around them, on plain PostgreSQL."""

__version__ = "0.1.0"
