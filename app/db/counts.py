"""Counts of lists, which never read more than a bounded number of rows."""

from typing import Any

from sqlalchemy import Select, func, select

MAX_COUNTED = 10_000
# One more than is counted shows that there are more.
COUNT_LIMIT = MAX_COUNTED + 1


def count_query(query: str) -> str:
    """Return the query that counts the rows of a query, which has to end with LIMIT %(limit)s."""
    return f"SELECT count(*) AS counted FROM ({query}) counted_rows"  # noqa: S608 - statements of ours, never input


def count_statement(statement: Select[Any]) -> Select[Any]:
    """Return the statement that counts the rows of a statement with a LIMIT."""
    return select(func.count().label("counted")).select_from(statement.subquery())
