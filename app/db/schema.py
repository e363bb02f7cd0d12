"""Loads every room's tables into the metadata, for migrations and the catalogue check."""

import importlib

from sqlalchemy import MetaData

from app.db import tables as tables
from app.db.metadata import metadata

# By name: the rooms stand above this package and must not be imported from it directly.
TABLE_MODULES = (
    "app.tenancy.tables",
    "app.web.tables",
    "app.jobs.tables",
    "app.notes.tables",
    "app.notes.documents.tables",
    "app.facts.tables",
    "app.facts.upkeep.tables",
    "app.history.tables",
    "app.recall.tables",
    "app.pipeline.tables",
    "app.branches.tables",
    "app.objects.types.tables",
    "app.objects.tables",
)


def load_metadata() -> MetaData:
    """The metadata with every table of this version in it."""
    for module in TABLE_MODULES:
        importlib.import_module(module)
    return metadata
