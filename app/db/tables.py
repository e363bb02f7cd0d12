"""Tables of the installation itself."""

from sqlalchemy import Column, DateTime, Integer, PrimaryKeyConstraint, Table, Text

from app.db.metadata import metadata

installed_releases = Table(
    "installed_releases",
    metadata,
    Column("installation", Integer, nullable=False, autoincrement=False),
    Column("release", Text, nullable=False),
    Column("compatibility_level", Integer, nullable=False),
    Column("functions_hash", Text, nullable=False, comment="of the files; empty until they are installed"),
    Column("catalogue_hash", Text, nullable=False, comment="of the functions as the catalogue shows them"),
    Column("installed_at", DateTime(timezone=True), nullable=False),
    PrimaryKeyConstraint("installation"),
    info={"grants": "SELECT"},
)
