"""Runs migrations as palimpsest_owner, under time-outs and one advisory lock, one transaction a migration."""

import re
from typing import Any

from sqlalchemy import Connection, create_engine

from alembic import context
from app.config import read_settings
from app.db.migrations import migration_conninfo, prepare_connection
from app.db.schema import load_metadata


def _is_declared(item: Any, name: str | None, kind: str, *_: Any) -> bool:
    """Parts of a table split by tenant, and the index of each embedding model, are made when they are needed."""
    return not (kind in ("table", "index") and re.fullmatch(r"embeddings_\d+(_\w+)?", name or ""))


def run(connection: Connection) -> None:
    """Runs what the command asked for on this connection."""
    prepare_connection(connection)
    context.configure(
        connection=connection,
        target_metadata=load_metadata(),
        transaction_per_migration=True,
        compare_type=True,
        compare_server_default=True,
        include_object=_is_declared,
    )
    with context.begin_transaction():
        context.run_migrations()


given = context.config.attributes.get("connection")
if given is not None:
    run(given)
else:
    import psycopg

    conninfo = migration_conninfo(read_settings())
    engine = create_engine("postgresql+psycopg://", creator=lambda: psycopg.connect(conninfo))
    with engine.connect() as connection:
        run(connection)
    engine.dispose()
