"""Roles and migrations: what `palimpsest migrate` does, and what it prints when it may not."""

from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import psycopg
from alembic.config import Config
from alembic.runtime.migration import MigrationContext
from alembic.script import ScriptDirectory
from psycopg import sql
from psycopg.conninfo import conninfo_to_dict
from sqlalchemy import Connection, create_engine, text

from alembic import command, op
from app.config import Settings
from app.db.rls import APP_ROLE, OWNER_ROLE
from app.errors import ConfigError, StartupError

# One number for all of Palimpsest's migrations in a database; the value has no meaning.
ADVISORY_LOCK = 7_305_114_922
TURN_TIMEOUT = "5min"
LOCK_TIMEOUT = "5s"
STATEMENT_TIMEOUT = "15min"

_ROOT = Path(__file__).resolve().parents[2]
_PACKAGED = Path(__file__).resolve().parents[1] / "_alembic"


class RolesMissing(StartupError):
    """The roles are not there and this role may not make them; `sql` is for a DBA."""

    def __init__(self, role: str, script: str) -> None:
        super().__init__(
            f"Role {role} may not create the roles {OWNER_ROLE} and {APP_ROLE}, or their place in this database. Hand "
            f"the SQL below to a DBA, then run palimpsest migrate again with DATABASE_MIGRATION_URL naming "
            f"{OWNER_ROLE}, or a member of it.",
            code="roles_missing",
        )
        self.script = script


def migration_conninfo(settings: Settings) -> str:
    """Where migrations connect."""
    conninfo = settings.database_migration_url or settings.database_url
    if conninfo is None:
        raise ConfigError("Set DATABASE_MIGRATION_URL, or use `palimpsest migrate`, which starts the embedded server.")
    return conninfo


def alembic_config() -> Config:
    """Alembic's configuration, from the source tree or the installed package."""
    folder = _ROOT / "alembic" if (_ROOT / "alembic" / "env.py").exists() else _PACKAGED
    config = Config()
    config.set_main_option("script_location", str(folder).replace("%", "%%"))
    config.set_main_option("path_separator", "os")
    return config


def functions_folder() -> Path:
    """Where the functions of this version lie, one described file each."""
    return Path(str(alembic_config().get_main_option("script_location"))) / "functions"


@cache
def known_revisions() -> tuple[str, ...]:
    """The migrations this version carries, oldest first."""
    found = [script.revision for script in ScriptDirectory.from_config(alembic_config()).walk_revisions()]
    if not found:
        raise StartupError("No migrations were found beside the package; reinstall Palimpsest.")
    return tuple(reversed(found))


def head_revision() -> str:
    """The newest migration this version carries."""
    return known_revisions()[-1]


def prepare_connection(connection: Connection) -> None:
    """Becomes the owner, sets time-outs, and takes the lock that lets one migration run at a time."""
    member = connection.execute(
        text("SELECT current_user = :owner OR pg_has_role(current_user, :owner, 'MEMBER')"), {"owner": OWNER_ROLE}
    ).scalar_one()
    if not member:
        raise StartupError(
            f"Migrations run as {OWNER_ROLE}; this role is no member of it. Set DATABASE_MIGRATION_URL accordingly."
        )
    connection.execute(text(f"SET ROLE {OWNER_ROLE}"))
    connection.execute(text(f"SET lock_timeout = '{TURN_TIMEOUT}'"))
    connection.execute(text("SELECT pg_advisory_lock(:number)"), {"number": ADVISORY_LOCK})
    connection.execute(text(f"SET lock_timeout = '{LOCK_TIMEOUT}'"))
    connection.execute(text(f"SET statement_timeout = '{STATEMENT_TIMEOUT}'"))
    connection.commit()


def role_script(database: str, *, app_password: str | None = None, with_placeholders: bool = False) -> list[str]:
    """The statements that make both roles and give them their place; each may run twice."""
    password = "PASSWORD 'choose-one' " if with_placeholders else ""
    owner_login = "LOGIN " if with_placeholders else "NOLOGIN "
    name = sql.Identifier(database).as_string()
    return [
        _create_role(OWNER_ROLE, f"{owner_login}{password}NOSUPERUSER NOBYPASSRLS NOCREATEDB NOCREATEROLE"),
        _create_role(
            APP_ROLE,
            f"LOGIN {password or _password_clause(app_password)}NOSUPERUSER NOBYPASSRLS NOCREATEDB NOCREATEROLE",
        ),
        # Generic plans flip under tenant skew; hot functions choose for themselves.
        f"ALTER ROLE {APP_ROLE} SET plan_cache_mode = force_custom_plan",
        f"ALTER ROLE {APP_ROLE} SET timezone = 'UTC'",
        f"ALTER ROLE {APP_ROLE} SET statement_timeout = '60s'",
        f"ALTER ROLE {APP_ROLE} SET idle_in_transaction_session_timeout = '60s'",
        f"GRANT CONNECT, TEMPORARY, CREATE ON DATABASE {name} TO {OWNER_ROLE}",
        f"GRANT CONNECT ON DATABASE {name} TO {APP_ROLE}",
        f"GRANT USAGE, CREATE ON SCHEMA public TO {OWNER_ROLE}",
        f"GRANT USAGE ON SCHEMA public TO {APP_ROLE}",
        "CREATE EXTENSION IF NOT EXISTS vector",
    ]


def _create_role(role: str, options: str) -> str:
    return (
        f"DO $$ BEGIN IF NOT EXISTS (SELECT FROM pg_roles WHERE rolname = '{role}') "
        f"THEN CREATE ROLE {role} {options}; END IF; END $$"
    )


def _password_clause(password: str | None) -> str:
    return "" if password is None else f"PASSWORD {sql.Literal(password).as_string()} "


def ensure_roles(conninfo: str, *, app_conninfo: str | None = None) -> list[str]:
    """Makes roles and extension where they are missing; answers what was done, in words."""
    with psycopg.connect(conninfo, autocommit=True) as connection:
        found = connection.execute(
            "SELECT current_user, current_database(), (SELECT rolsuper OR rolcreaterole FROM pg_roles "
            "WHERE rolname = current_user), ARRAY(SELECT rolname::text FROM pg_roles WHERE rolname = ANY (%s)), "
            "EXISTS (SELECT FROM pg_extension WHERE extname = 'vector'), EXISTS (SELECT FROM pg_roles "
            "WHERE rolname = %s AND has_schema_privilege(oid, 'public', 'CREATE'))",
            ([OWNER_ROLE, APP_ROLE], OWNER_ROLE),
        ).fetchone()
        assert found is not None
        role, database, may_create, roles, has_vector, has_schema = found
        missing = sorted({OWNER_ROLE, APP_ROLE} - set(roles))
        if not may_create and (missing or not has_schema):
            raise RolesMissing(role, dba_script(database))
        if not has_vector:
            _make_extension(connection, role)
        if not missing and has_schema:
            return []
        return _make_roles(connection, database, role, missing, app_conninfo)


def _make_extension(connection: psycopg.Connection[Any], role: str) -> None:
    try:
        connection.execute("CREATE EXTENSION IF NOT EXISTS vector")
    except psycopg.errors.InsufficientPrivilege as problem:
        raise StartupError(
            f"The extension vector is not in this database, and role {role} may not create it. Let a superuser run "
            "CREATE EXTENSION vector in it, then run palimpsest migrate again.",
            code="extension_missing",
        ) from problem
    except psycopg.Error as problem:
        reason = str(problem).strip().splitlines()[0]
        raise StartupError(
            f"The extension vector cannot be created ({reason}). Install pgvector 0.8 or newer on the server.",
            code="extension_missing",
        ) from problem


def dba_script(database: str) -> str:
    """The SQL to hand to a DBA, with passwords to choose."""
    return ";\n".join(role_script(database, with_placeholders=True)) + ";"


def _make_roles(
    connection: psycopg.Connection[Any], database: str, role: str, missing: list[str], app_conninfo: str | None
) -> list[str]:
    wanted = conninfo_to_dict(app_conninfo) if app_conninfo else {}
    password = wanted.get("password") if wanted.get("user") == APP_ROLE else None
    try:
        with connection.transaction():
            for statement in role_script(database, app_password=None if password is None else str(password)):
                connection.execute(statement.encode())
            if OWNER_ROLE in missing:
                connection.execute(f"GRANT {OWNER_ROLE} TO CURRENT_USER".encode())
    except psycopg.errors.InsufficientPrivilege as problem:
        raise RolesMissing(role, dba_script(database)) from problem
    done = [f"created role {name}" for name in missing]
    if APP_ROLE in missing and password is None:
        done.append(
            f"role {APP_ROLE} has no password yet: ALTER ROLE {APP_ROLE} PASSWORD '...' if your server asks for one"
        )
    return done


def current_revision(conninfo: str) -> str | None:
    """The migration a database is at."""
    engine = _engine(conninfo)
    try:
        with engine.connect() as connection:
            return MigrationContext.configure(connection).get_current_revision()
    finally:
        engine.dispose()


def upgrade(conninfo: str, revision: str = "head", *, say: Callable[[str], None] = lambda _: None) -> list[str]:
    """Apply migrations up to a revision; at head also install this version's functions. Return what changed of them."""
    config = _with_connection(conninfo, lambda config: command.upgrade(config, revision), say)
    return config.attributes.get("changes", [])


def downgrade(conninfo: str, revision: str, *, say: Callable[[str], None] = lambda _: None) -> None:
    """Remove our functions and take migrations back to a revision; `base` leaves nothing of ours in the schema."""
    _with_connection(conninfo, lambda config: command.downgrade(config, revision), say)


def check_drift(conninfo: str) -> None:
    """Raises when tables in code and in the database differ."""
    _with_connection(conninfo, command.check, lambda _: None)


def execute_literal(statements: str) -> None:
    """Runs frozen SQL inside a migration exactly as it is written: colons and percent signs mean themselves."""
    op.execute(text(statements.replace(":", r"\:")))


def _engine(conninfo: str) -> Any:
    return create_engine("postgresql+psycopg://", creator=lambda: psycopg.connect(conninfo))


def _with_connection(conninfo: str, run: Callable[[Config], Any], say: Callable[[str], None]) -> Config:
    config = alembic_config()
    config.print_stdout = lambda text, *_: say(str(text))
    engine = _engine(conninfo)
    try:
        with engine.connect() as connection:
            config.attributes["connection"] = connection
            run(config)
    finally:
        engine.dispose()
    return config
