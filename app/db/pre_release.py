"""Databases of the last pre-release: recognised by their tables and carried on from the baseline."""

from typing import Any

import psycopg
from alembic.script import ScriptDirectory

from app.db.functions import SCRATCH_PATH, search_path
from app.db.migrations import alembic_config
from app.db.releases import PRE_RELEASES
from app.errors import StartupError

BASELINE = "0001_baseline"
NAMED_DIFFERENCES = 5

# What makes up the tables of a schema, a line each; parts of embeddings and the indexes of its models are left out,
# since they depend on which models were added.
SHAPE = r"""
    SELECT format('column %s.%s', c.relname, a.attname),
           concat_ws(' ', row_number() OVER (PARTITION BY c.oid ORDER BY a.attnum),
                     format_type(a.atttypid, a.atttypmod), a.attnotnull, pg_get_expr(d.adbin, d.adrelid),
                     a.attgenerated, a.attstorage, a.attcollation)
    FROM pg_class c
    JOIN pg_attribute a ON a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped
    LEFT JOIN pg_attrdef d ON d.adrelid = c.oid AND d.adnum = a.attnum
    WHERE c.relnamespace = {schema} AND c.relkind IN ('r', 'p', 'c') AND c.relname !~ '^embeddings_\d'
    UNION ALL
    SELECT format('constraint %s on %s', k.conname, c.relname), pg_get_constraintdef(k.oid)
    FROM pg_constraint k JOIN pg_class c ON c.oid = k.conrelid
    WHERE c.relnamespace = {schema} AND k.contype <> 'n' AND c.relname !~ '^embeddings_\d'
    UNION ALL
    SELECT format('index %s on %s', c.relname, t.relname),
           regexp_replace(pg_get_indexdef(c.oid), ' ON (ONLY )?(public|pg_temp)\.', ' ON ')
    FROM pg_index i JOIN pg_class c ON c.oid = i.indexrelid JOIN pg_class t ON t.oid = i.indrelid
    WHERE c.relnamespace = {schema} AND c.relname !~ '^embeddings_\d'"""


def adopt_pre_release(connection: psycopg.Connection[Any], revision: str | None) -> str | None:
    """Stamp a database of the last pre-release as the baseline when its tables match; return its revision now."""
    if revision not in PRE_RELEASES:
        return revision
    if revision != PRE_RELEASES[-1]:
        raise StartupError(
            f"The database is at migration {revision} of a pre-release, which this version cannot upgrade; run "
            f"palimpsest migrate of the last pre-release first (up to {PRE_RELEASES[-1]}), or use an empty database.",
            code="pre_release",
        )
    differences = find_differences(connection)
    if differences:
        more = len(differences) - NAMED_DIFFERENCES
        named = ", ".join(differences[:NAMED_DIFFERENCES]) + (f" and {more} more" if more > 0 else "")
        raise StartupError(
            f"The database is at migration {revision} of a pre-release, but its tables differ from that ({named}); "
            "undo these changes and run palimpsest migrate again, or use an empty database.",
            code="pre_release",
        )
    connection.execute("UPDATE alembic_version SET version_num = %s", (BASELINE,))
    return BASELINE


def find_differences(connection: psycopg.Connection[Any]) -> list[str]:
    """Name what differs between the tables in schema public and the baseline; additional tables don't count."""
    with search_path(connection, "public"):
        found = _read(connection, "'public'::regnamespace")
    baseline = ScriptDirectory.from_config(alembic_config()).get_revision(BASELINE)
    assert baseline is not None

    def run(statement: str) -> None:
        connection.execute(statement.encode())

    with connection.transaction(force_rollback=True), search_path(connection, SCRATCH_PATH):
        baseline.module.create(run)
        wanted = _read(connection, "pg_my_temp_schema()")
    tables = {_table(name) for name in wanted}
    extra = {name for name in found.keys() - wanted.keys() if _table(name) in tables and not name.startswith("index ")}
    return sorted({name for name, shape in wanted.items() if found.get(name) != shape} | extra)


def _read(connection: psycopg.Connection[Any], schema: str) -> dict[str, str]:
    return dict(connection.execute(SHAPE.replace("{schema}", schema).encode()).fetchall())


def _table(name: str) -> str:
    kind, _, rest = name.partition(" ")
    return rest.partition(".")[0] if kind == "column" else rest.rpartition(" ")[2]
