"""Which SQL functions a test run executes: with PALIMPSEST_LONG=1 the summary lists those that nothing executed.

Functions in plain SQL are left out: the planner inlines them, and PostgreSQL counts no call.
"""

import os
from typing import Any

import psycopg
import pytest

from app.db.functions import all_functions

ENABLED = os.environ.get("PALIMPSEST_LONG") == "1"
executed: set[str] = set()


def count_calls(superuser: str) -> None:
    """Let the server count how often each function is executed."""
    if ENABLED:
        with psycopg.connect(superuser, autocommit=True) as connection:
            connection.execute("ALTER SYSTEM SET track_functions = 'all'")
            connection.execute("SELECT pg_reload_conf()")


def collect_calls(superuser: str) -> None:
    """Remember which functions were executed in a database, before it is dropped."""
    if ENABLED:
        with psycopg.connect(superuser) as connection:
            executed.update(name for (name,) in connection.execute("SELECT funcname FROM pg_stat_user_functions"))


def pytest_sessionfinish(session: pytest.Session) -> None:
    """Hand what a worker collected to the process that reports."""
    if hasattr(session.config, "workeroutput"):
        session.config.workeroutput["executed"] = sorted(executed)  # type: ignore[attr-defined]


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any) -> None:
    """Take what a worker collected."""
    executed.update(getattr(node, "workeroutput", {}).get("executed", ()))


def pytest_terminal_summary(terminalreporter: Any) -> None:
    """List the functions that nothing executed."""
    if ENABLED and executed:
        counted = {name for name, text in all_functions().items() if "LANGUAGE plpgsql" in text}
        missed = sorted(counted - executed)
        terminalreporter.section("SQL functions")
        terminalreporter.line(f"{len(counted) - len(missed)} of {len(counted)} were executed; never: {missed}")
