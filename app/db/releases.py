"""Which release a database belongs to, and whether this one can work with it.

Every release has a compatibility level. Processes of two releases of one level can work on one database, whichever of
them migrated it: so old processes stay in service while new ones start. A revision that the previous release cannot
work with sets `compatibility_level` in its module to one more than before; COMPATIBILITY_LEVEL follows it.

`installed_releases` has a line for each set of functions that was installed, newest last. A process finds its own
functions there: in the last line, and the database is its own; in an earlier one, and a newer release was installed
since; in none, and this release was never installed.
"""

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Any

import psycopg

from app import __version__
from app.db.migrations import known_revisions

COMPATIBILITY_LEVEL = 1

# Revisions of the last pre-releases; the schema of the last of them is the baseline.
PRE_RELEASES = tuple(f"{number:04d}" for number in range(1, 13))

PRESENT = """
    SELECT to_regclass('public.alembic_version') IS NOT NULL AS migrated,
           to_regclass('public.installed_releases') IS NOT NULL AS recorded"""
REVISION = "SELECT version_num FROM alembic_version"
RELEASES = "SELECT compatibility_level, functions_hash FROM installed_releases ORDER BY installation"

LAST = "SELECT functions_hash, catalogue_hash FROM installed_releases ORDER BY installation DESC LIMIT 1"
CONFIRM = """
    UPDATE installed_releases SET functions_hash = %(functions)s, catalogue_hash = %(catalogue)s
    WHERE installation = (SELECT max(installation) FROM installed_releases) AND functions_hash IN ('', %(functions)s)"""
ADD = """
    INSERT INTO installed_releases
        (installation, release, compatibility_level, functions_hash, catalogue_hash, installed_at)
    SELECT coalesce(max(installation), 0) + 1, %(release)s, %(level)s, %(functions)s, %(catalogue)s, now()
    FROM installed_releases"""

Row = dict[str, Any]
Fetch = Callable[[str], Awaitable[Sequence[Row]]]


@dataclass(frozen=True, kw_only=True)
class DatabaseState:
    """How a database compares with this release."""

    revision: str | None
    newer: bool = False
    """A newer release of the same level was installed."""
    problem: str | None = None
    """Why this release cannot work with it, in one sentence."""


async def read_state(fetch: Fetch, *, functions_hash: str) -> DatabaseState:
    """Compare the database with this release; `fetch` runs one query and returns rows by column name."""
    (present,) = await fetch(PRESENT)
    if not present["migrated"]:
        return judge(None, [], functions_hash=functions_hash)
    revisions = await fetch(REVISION)
    releases: Sequence[Row] = await fetch(RELEASES) if present["recorded"] else []
    return judge(
        revisions[0]["version_num"] if revisions else None,
        [(row["compatibility_level"], row["functions_hash"]) for row in releases],
        functions_hash=functions_hash,
    )


def judge(revision: str | None, releases: Sequence[tuple[int, str]], *, functions_hash: str) -> DatabaseState:
    """Return whether this release can work with a database at `revision` in which `releases` were installed."""
    revisions = known_revisions()
    if revision is None:
        return DatabaseState(revision=None, problem="The schema is not there; run palimpsest migrate.")
    if revision != revisions[-1] and revision in (*revisions, *PRE_RELEASES):
        return DatabaseState(
            revision=revision,
            problem=f"The database is at migration {revision}, this version needs {revisions[-1]}; "
            "run palimpsest migrate.",
        )
    level, installed = releases[-1] if releases else (None, None)
    if revision in revisions and functions_hash == installed:
        return DatabaseState(revision=revision)
    if revision in revisions and functions_hash not in (known for _, known in releases):
        return DatabaseState(
            revision=revision,
            problem="The functions in the database are not those of this version; run palimpsest migrate.",
        )
    if level != COMPATIBILITY_LEVEL:
        return DatabaseState(
            revision=revision,
            problem=f"The database belongs to another release, at migration {revision} with compatibility level "
            f"{level}, and this version has level {COMPATIBILITY_LEVEL}; start the release that migrated it.",
        )
    return DatabaseState(revision=revision, newer=True)


def is_newer(conninfo: str, *, functions_hash: str) -> bool:
    """Return whether a newer release of the same level migrated the database."""
    with psycopg.connect(conninfo) as connection:
        present = connection.execute(PRESENT).fetchone()
        if present != (True, True):
            return False
        revision = connection.execute(REVISION).fetchone()
        releases = connection.execute(RELEASES).fetchall()
    return judge(revision[0] if revision else None, releases, functions_hash=functions_hash).newer


def find_installation(connection: psycopg.Connection[Any]) -> tuple[str, str] | None:
    """Return the hashes of the last installation, of its files and of what the catalogue showed, or None."""
    row = connection.execute(LAST).fetchone()
    return None if row is None else (row[0], row[1])


def record_functions(connection: psycopg.Connection[Any], *, functions_hash: str, catalogue_hash: str) -> None:
    """Record that this release's functions are installed."""
    values = {
        "release": __version__,
        "level": COMPATIBILITY_LEVEL,
        "functions": functions_hash,
        "catalogue": catalogue_hash,
    }
    if connection.execute(CONFIRM, values).rowcount == 0:
        connection.execute(ADD, values)


def record_level(connection: psycopg.Connection[Any], level: int) -> None:
    """Record, in the transaction of a breaking migration, that older releases can no longer use the database."""
    connection.execute(ADD, {"release": __version__, "level": level, "functions": "", "catalogue": ""})
