"""SQL functions of the release: read from their files, installed after every migration, compared with the catalogue.

A function lives once, in `alembic/functions/<domain>/<name>.sql`, and belongs to the release, not to a revision.
The service may call every function, except those in a folder `owner_only`: only functions of the owner call these.
Functions that the schema itself uses (generated columns, index expressions) belong to the revision that creates them:
its module lists them in `SCHEMA_FUNCTIONS`. `sync_functions` installs both and removes what no file has.

Processes of the previous release keep running while a new one is installed. So within one compatibility level
- a function whose arguments or result change gets a new name, and the old file stays for one release;
- a function that is no longer called stays for one release.
Anything else raises the level (see `app/db/releases.py`).
"""

import hashlib
import re
from collections.abc import Generator
from contextlib import contextmanager
from functools import cache
from graphlib import TopologicalSorter
from pathlib import Path
from typing import Any, NamedTuple, cast

import psycopg
from alembic.script import ScriptDirectory
from sqlalchemy import Connection

from app.db.migrations import alembic_config, functions_folder
from app.db.releases import find_installation, record_functions
from app.db.rls import APP_ROLE, OWNER_ROLE
from app.errors import StartupError

# Where texts are tried out: the session's temporary schema, which needs no right to create schemas.
SCRATCH_PATH = "pg_temp, public"
# The folder of functions that the service may not call.
OWNER_ONLY = "owner_only"

# Functions of ours in one schema; `schema_uses`: a column, index or policy depends on it.
CATALOGUE = """
    SELECT p.oid::regprocedure::text AS signature, p.proname AS name, oidvectortypes(p.proargtypes) AS argument_types,
           pg_get_function_arguments(p.oid) || ' -> ' || coalesce(pg_get_function_result(p.oid), '') AS declaration,
           pg_get_functiondef(p.oid) AS definition,
           CASE WHEN EXISTS (SELECT FROM aclexplode(coalesce(p.proacl, acldefault('f', p.proowner))) a
                             WHERE a.grantee = 0) THEN 'public'
                WHEN EXISTS (SELECT FROM aclexplode(p.proacl) a WHERE a.grantee = %(app)s::regrole) THEN 'service'
                ELSE 'owner' END AS callers,
           EXISTS (SELECT FROM pg_depend d WHERE d.refclassid = 'pg_proc'::regclass AND d.refobjid = p.oid
                   AND d.classid <> 'pg_proc'::regclass) AS schema_uses
    FROM pg_proc p
    WHERE p.pronamespace = {schema} AND p.prokind <> 'a' AND p.proowner = %(owner)s::regrole
      AND NOT EXISTS (SELECT FROM pg_depend d
                      WHERE d.classid = 'pg_proc'::regclass AND d.objid = p.oid AND d.deptype = 'e')
    ORDER BY p.proname, 3"""

FOREIGN = """
    SELECT p.oid::regprocedure::text, p.proname::text, oidvectortypes(p.proargtypes), pg_get_userbyid(p.proowner)::text
    FROM pg_proc p WHERE p.pronamespace = 'public'::regnamespace AND p.proowner <> %s::regrole"""

Driver = psycopg.Connection[Any]
Key = tuple[str, str]


class Installed(NamedTuple):
    """One function as the catalogue shows it."""

    signature: str
    name: str
    argument_types: str
    declaration: str
    definition: str
    callers: str
    """`public`, `service` or `owner`: who may call it, beside its owner."""
    schema_uses: bool

    @property
    def key(self) -> Key:
        """What tells overloads apart."""
        return (self.name, self.argument_types)


def _function_paths() -> list[Path]:
    return sorted(functions_folder().rglob("*.sql"), key=lambda path: path.stem)


@cache
def function_files() -> dict[str, str]:
    """The text of each function of this release, by name."""
    paths = _function_paths()
    found = {path.stem: path.read_text() for path in paths}
    if len(found) < len(paths):
        raise StartupError("Two files under alembic/functions have the same name; reinstall Palimpsest.")
    return found


@cache
def owner_functions() -> frozenset[str]:
    """The names of the functions that only functions of the owner may call."""
    return frozenset(path.stem for path in _function_paths() if path.parent.name == OWNER_ONLY)


@cache
def schema_functions() -> dict[str, str]:
    """The text of each function that the schema itself uses, by name, as the newest revision has it."""
    found: dict[str, str] = {}
    revisions = list(ScriptDirectory.from_config(alembic_config()).walk_revisions())
    for revision in reversed(revisions):
        found |= getattr(revision.module, "SCHEMA_FUNCTIONS", {})
    return found


@cache
def all_functions() -> dict[str, str]:
    """Every function this release installs, callees before callers."""
    texts = {**schema_functions(), **function_files()}
    code = {name: re.sub(r"--[^\n]*", "", text) for name, text in texts.items()}
    calls = {name: set(re.findall(r"\b([a-z_0-9]+)\s*\(", text)) & code.keys() - {name} for name, text in code.items()}
    return {name: texts[name] for name in TopologicalSorter(calls).static_order()}


@cache
def functions_hash() -> str:
    """A hash over all files: two releases with the same hash have the same functions."""
    return _hash([f"{name}\n{text}" for name, text in sorted(all_functions().items())])


def sync_functions(connection: Driver) -> list[str]:
    """Make the functions in schema public exactly those of this release; return what was changed.

    Runs in the caller's transaction, as the owner, under the lock of migrations.
    """
    with search_path(connection, "public"):
        found = _read(connection)
        recorded = find_installation(connection)
        if recorded is not None and recorded == (functions_hash(), _catalogue_hash(found)):
            return []
        wanted = _read_wanted(connection)
        try:
            changes = _apply(connection, found, wanted)
        except (psycopg.errors.DependentObjectsStillExist, psycopg.errors.InsufficientPrivilege) as problem:
            reason = " ".join(filter(None, (problem.diag.message_primary, problem.diag.message_detail)))
            raise StartupError(
                f"The functions cannot be installed: {reason} Remove what stands in the way, then run palimpsest "
                "migrate again.",
                code="functions_blocked",
            ) from problem
        found = _read(connection)
        _verify(found, wanted)
        record_functions(connection, functions_hash=functions_hash(), catalogue_hash=_catalogue_hash(found))
        return changes


def remove_functions(bind: Connection) -> None:
    """Drop every function of ours that the schema does not use; a downgrade does this before it changes tables."""
    connection = driver_connection(bind)
    with search_path(connection, "public"):
        _drop(connection, [row.signature for row in _read(connection) if not row.schema_uses])


def driver_connection(bind: Connection) -> Driver:
    """The driver's connection below SQLAlchemy's: function texts are sent exactly as they are written."""
    driver = bind.connection.driver_connection
    assert isinstance(driver, psycopg.Connection)
    return cast(Driver, driver)


def _read(connection: Driver, *, scratch: bool = False) -> list[Installed]:
    schema = "pg_my_temp_schema()" if scratch else "'public'::regnamespace"
    query = CATALOGUE.replace("{schema}", schema).encode()
    rows = connection.execute(query, {"owner": OWNER_ROLE, "app": APP_ROLE}).fetchall()
    return [Installed(*row) for row in rows]


def _read_wanted(connection: Driver) -> dict[Key, Installed]:
    """What the files give: created in a scratch schema, read from the catalogue, and rolled back."""
    with connection.transaction(force_rollback=True), search_path(connection, SCRATCH_PATH):
        connection.execute("SET LOCAL check_function_bodies = off")
        for text in all_functions().values():
            connection.execute(text.encode())
        rows = _read(connection, scratch=True)
    if sorted(row.name for row in rows) != sorted(all_functions()):
        raise StartupError("A file under alembic/functions does not define the one function it is named after.")
    return {
        row.key: row._replace(
            definition=row.definition.replace(" pg_temp.", " public.", 1),
            callers="owner" if row.name in owner_functions() else "service",
        )
        for row in rows
    }


def _apply(connection: Driver, found: list[Installed], wanted: dict[Key, Installed]) -> list[str]:
    _check_owners(connection, wanted)
    dropped = [row for row in found if _must_go(row, wanted)]
    _drop(connection, [row.signature for row in dropped])
    changes = [f"dropped function {row.signature}" for row in dropped if row.key not in wanted]
    kept = {row.key: row for row in found if row not in dropped}
    names = {row.name: row for row in wanted.values()}
    # Bodies name tables and functions that may come later in this very transaction.
    connection.execute("SET LOCAL check_function_bodies = off")
    for name, text in all_functions().items():
        row = names[name]
        before = kept.get(row.key)
        if before is None or before.definition != row.definition:
            connection.execute(text.encode())
            changes.append(f"installed function {name}")
        if before is None or before.callers != row.callers:
            _grant(connection, row)
            if before is not None:
                changes.append(f"granted function {name}")
    return changes


def _grant(connection: Driver, row: Installed) -> None:
    function = f"{row.name}({row.argument_types})"
    connection.execute(f"REVOKE ALL ON FUNCTION {function} FROM PUBLIC, {APP_ROLE}".encode())
    if row.callers == "service":
        connection.execute(f"GRANT EXECUTE ON FUNCTION {function} TO {APP_ROLE}".encode())


def _must_go(row: Installed, wanted: dict[Key, Installed]) -> bool:
    """Whether a function is stale, a foreign overload, or declared so differently that it cannot be replaced."""
    expected = wanted.get(row.key)
    if expected is None:
        return not row.schema_uses
    if row.declaration == expected.declaration:
        return False
    if row.schema_uses:
        raise StartupError(
            f"Function {row.signature} was altered and columns or indexes depend on it. Restore it by hand: it must "
            f"be declared as ({expected.declaration}).",
            code="functions_blocked",
        )
    return True


def _check_owners(connection: Driver, wanted: dict[Key, Installed]) -> None:
    for signature, name, argument_types, owner in connection.execute(FOREIGN, (OWNER_ROLE,)).fetchall():
        if (name, argument_types) in wanted:
            raise StartupError(
                f"Function {signature} belongs to {owner}. Run ALTER FUNCTION {signature} OWNER TO {OWNER_ROLE}, then "
                "palimpsest migrate again.",
                code="functions_blocked",
            )


def _drop(connection: Driver, signatures: list[str]) -> None:
    if signatures:
        connection.execute(f"DROP ROUTINE {', '.join(signatures)}".encode())


def _verify(found: list[Installed], wanted: dict[Key, Installed]) -> None:
    actual = {row.key: row for row in found}
    wrong = sorted(
        {key[0] for key, row in wanted.items() if key not in actual or actual[key].definition != row.definition}
        | {key[0] for key, row in actual.items() if key not in wanted and not row.schema_uses}
        | {row.name for row in found if row.key in wanted and row.callers != wanted[row.key].callers}
    )
    if wrong:
        raise StartupError(f"These functions are not as their files define them: {', '.join(wrong)}.")


def _catalogue_hash(found: list[Installed]) -> str:
    return _hash([f"{row.signature} {row.callers}\n{row.definition}" for row in found])


def _hash(parts: list[str]) -> str:
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()


@contextmanager
def search_path(connection: Driver, path: str) -> Generator[None]:
    """Look names up in these schemas for the length of the block: the catalogue prints names as they are visible."""
    row = connection.execute("SELECT current_setting('search_path')").fetchone()
    assert row is not None
    connection.execute("SELECT set_config('search_path', %s, true)", (path,))
    yield
    connection.execute("SELECT set_config('search_path', %s, true)", row)
