"""Load every domain's tables into the metadata, for migrations and the catalogue check."""

from sqlalchemy import MetaData

from app.db import tables as tables
from app.db.metadata import metadata
from app.domains import modules_of


def load_metadata() -> MetaData:
    """Return the metadata with every table of this version in it."""
    modules_of("tables")
    return metadata
