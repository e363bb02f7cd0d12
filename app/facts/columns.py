"""Columns that several tables of facts have in common."""

from typing import Any

from sqlalchemy import Column, DateTime, Text, Uuid

# Compared byte by byte, so that a prefix is a range whatever the server's language is.
NAME = Text(collation="C")


def id_column(name: str, *, nullable: bool = False) -> Column[Any]:
    """Return a column with a UUID."""
    return Column(name, Uuid(as_uuid=False), nullable=nullable)


def time_column(name: str, *, nullable: bool = False) -> Column[Any]:
    """Return a column with a time and its zone."""
    return Column(name, DateTime(timezone=True), nullable=nullable)
