"""Which release a database belongs to, and whether this one can work with it.

Every release has a compatibility level. Processes of two releases of one level can work on one database, whichever of
them migrated it: so old processes stay in service while new ones start. A revision that the previous release cannot
work with sets `compatibility_level` in its module to one more than before; COMPATIBILITY_LEVEL follows it.

`installed_releases` has a line for each set of functions that was installed, newest last. A process finds its own
functions there: in the last line, and the database is its own; in an earlier one, and a newer release was installed
since; in none, and this release was never installed.
"""

import re
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import psycopg

from app import __version__
from app.db.migrations import known_revisions

COMPATIBILITY_LEVEL = 2

# Revisions of the last pre-releases; the schema of the last of them is the baseline.
PRE_RELEASES = tuple(f"{number:04d}" for number in range(1, 13))

PRESENT = """
    SELECT to_regclass('public.alembic_version') IS NOT NULL AS migrated,
           to_regclass('public.installed_releases') IS NOT NULL AS recorded"""
REVISION = "SELECT version_num FROM alembic_version"
RELEASES = "SELECT compatibility_level, functions_hash, release FROM installed_releases ORDER BY installation"

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


# Codes of the problems of a database.
NOT_MIGRATED = "not_migrated"
NEWER_DATABASE = "newer_database"


class Installation(NamedTuple):
    """A set of functions that was installed."""

    level: int | None
    functions_hash: str | None
    release: str | None = None


@dataclass(frozen=True, kw_only=True)
class DatabaseState:
    """How a database compares with this release."""

    revision: str | None
    newer: bool = False
    """A newer release of the same level was installed."""
    problem: str | None = None
    """Why this release cannot work with it, in one sentence."""
    code: str = NOT_MIGRATED
    """The code of the problem."""


async def read_state(fetch: Fetch, *, functions_hash: str) -> DatabaseState:
    """Compare the database with this release; `fetch` runs one query and returns rows by column name."""
    (present,) = await fetch(PRESENT)
    if not present["migrated"]:
        return judge(None, [], functions_hash=functions_hash)
    revisions = await fetch(REVISION)
    releases: Sequence[Row] = await fetch(RELEASES) if present["recorded"] else []
    return judge(
        revisions[0]["version_num"] if revisions else None,
        [(row["compatibility_level"], row["functions_hash"], row["release"]) for row in releases],
        functions_hash=functions_hash,
    )


def judge(
    revision: str | None,
    releases: Sequence[tuple[Any, ...]],
    *,
    functions_hash: str,
) -> DatabaseState:
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
    installed = [Installation(*row) for row in releases]
    last = installed[-1] if installed else Installation(None, None)
    if revision in revisions and functions_hash == last.functions_hash:
        return DatabaseState(revision=revision)
    if revision in revisions and functions_hash not in (known.functions_hash for known in installed):
        return _never_installed(revision, last)
    if last.level != COMPATIBILITY_LEVEL:
        return _older_code(revision, last)
    return DatabaseState(revision=revision, newer=True)


def _never_installed(revision: str, last: Installation) -> DatabaseState:
    """Return the state of a database that has the tables of this release, but functions of another one."""
    if last.release is not None and _order(last.release) > _order(__version__):
        return _older_code(revision, last)
    problem = "The functions in the database are not those of this version; run palimpsest migrate."
    if last.release == __version__:
        problem = (
            f"The functions in the database were installed by other code of release {__version__}; run palimpsest "
            "migrate if this code is the newer one, else start the other."
        )
    return DatabaseState(revision=revision, problem=problem)


def _older_code(revision: str, last: Installation) -> DatabaseState:
    migrated_by = f"release {last.release}" if last.release else "another release"
    return DatabaseState(
        revision=revision,
        problem=f"This code, release {__version__}, is older than the database: {migrated_by} left it at migration "
        f"{revision} with compatibility level {last.level}, and this version has level {COMPATIBILITY_LEVEL}; start "
        "the release that migrated it, or a newer one.",
        code=NEWER_DATABASE,
    )


def _order(release: str) -> tuple[int, ...]:
    """Return the numbers of a release, by which releases are compared."""
    return tuple(int(part) for part in re.findall(r"\d+", release)[:3])


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
