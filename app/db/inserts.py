"""Inserts of many rows: one fixed statement that takes them as JSON.

A VALUES list has a parameter for each value of each row, and SQLAlchemy renders it anew every time: a thousand rows
would stop the event loop for more than a second.
"""

from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any

import msgspec
from sqlalchemy import Table
from sqlalchemy.dialects.postgresql.psycopg import dialect as psycopg_dialect

_dialect = psycopg_dialect()


@cache
def _insert(table: Table, names: tuple[str, ...], computed: tuple[tuple[str, str], ...]) -> str:
    columns = [*names, *(name for name, _ in computed)]
    values = [*(f"r.{name}" for name in names), *(expression for _, expression in computed)]
    types = [f"{name} {table.c[name].type.compile(_dialect)}" for name in names]
    return (
        f"INSERT INTO {table.name} ({', '.join(columns)}) SELECT {', '.join(values)} "  # noqa: S608
        f"FROM jsonb_to_recordset(CAST(:rows AS jsonb)) r({', '.join(types)})"
    )


def insert_rows(table: Table, rows: Sequence[Mapping[str, Any]], *, computed: Mapping[str, str] | None = None) -> str:
    """Return the statement that inserts rows, all with the columns of the first, from the parameter `rows`.

    `computed` are further columns with an SQL expression over the row `r`.
    """
    return _insert(table, tuple(rows[0]), tuple((computed or {}).items()))


def as_parameter(rows: Sequence[Mapping[str, Any]]) -> dict[str, str]:
    """Return rows as the parameter of such a statement."""
    return {"rows": msgspec.json.encode(rows).decode()}
