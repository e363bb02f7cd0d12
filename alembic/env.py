"""Runs migrations as palimpsest_owner, under time-outs and one advisory lock, one transaction a migration.

Whoever runs it, `palimpsest migrate` or plain `alembic upgrade`: a database that arrives at the newest revision, or was
there already, gets the functions of this release.
"""

import re
from typing import Any

from alembic.runtime.migration import MigrationContext
from sqlalchemy import Connection, create_engine

from alembic import context
from app.config import read_settings
from app.db.functions import driver_connection, sync_functions
from app.db.migrations import head_revision, known_revisions, migration_conninfo, prepare_connection
from app.db.pre_release import adopt_pre_release
from app.db.releases import NEWER_DATABASE, record_level
from app.db.schema import load_metadata
from app.errors import StartupError


def _is_declared(item: Any, name: str | None, kind: str, *_: Any) -> bool:
    """Parts of a table split by tenant, and the index of each embedding model, are made when they are needed."""
    return not (kind in ("table", "index") and re.fullmatch(r"embeddings_\d+(_\w+)?", name or ""))


def _check_revision(connection: Connection) -> None:
    """Carry a database of the last pre-release on; refuse one that this version knows nothing about."""
    with connection.begin():
        found = MigrationContext.configure(connection).get_current_revision()
        revision = adopt_pre_release(driver_connection(connection), found)
        if revision is not None and revision not in known_revisions():
            raise StartupError(
                f"This code is older than the database, which is at migration {revision}, which this version does not "
                "know; use the release that migrated it, also to downgrade.",
                code=NEWER_DATABASE,
            )


def _record_level(*, ctx: MigrationContext, step: Any, heads: set[str], **_: Any) -> None:
    """Tell processes of other releases, in the transaction of the migration, that they cannot go on."""
    if getattr(step.up_revision.module, "compatibility_level", 1) > 1 and ctx.connection is not None:
        scripts = [script for head in heads for script in context.script.iterate_revisions(head, "base")]
        level = max((getattr(script.module, "compatibility_level", 1) for script in scripts), default=1)
        record_level(driver_connection(ctx.connection), level)


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
        on_version_apply=_record_level,
    )
    migrating = "destination_rev" in context.get_context().opts
    if migrating:
        _check_revision(connection)
    with context.begin_transaction():
        context.run_migrations()
    connection.commit()
    if migrating:
        with connection.begin():
            if MigrationContext.configure(connection).get_current_revision() == head_revision():
                context.config.attributes["changes"] = sync_functions(driver_connection(connection))


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
