"""The MetaData of the tables of all domains, for Alembic and the catalogue check."""

from sqlalchemy import Column, MetaData, Text, text

metadata = MetaData(
    naming_convention={
        "pk": "%(table_name)s_pkey",
        "fk": "%(table_name)s_%(column_0_N_name)s_fkey",
        "uq": "%(table_name)s_%(column_0_N_name)s_key",
        "ck": "%(table_name)s_%(constraint_name)s_check",
        "ix": "%(table_name)s_%(column_0_N_name)s_idx",
    }
)


def user_column() -> Column[str]:
    """Return the column of tables whose rows belong to an end user, or to all of them."""
    return Column(
        "user_id",
        Text,
        nullable=False,
        server_default=text("''"),
        comment="the end user it belongs to; empty: all users",
    )
