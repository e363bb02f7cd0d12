"""The `palimpsest` command."""

import argparse
import json
import os
import shutil
import sys
import tempfile
from typing import Any

from app import __version__
from app.cli.command_line import EPILOG, add_command, add_json_option, say
from app.cli.commands.audit import add_audit_commands
from app.cli.commands.embeddings import add_embedding_commands
from app.cli.commands.keys import add_key_commands
from app.cli.commands.objects import add_object_commands
from app.cli.commands.tenants import add_tenant_commands
from app.cli.commands.vocabulary import add_vocabulary_commands
from app.config import Settings, read_settings
from app.errors import AppError, BadRequest, ConfigError, StartupError

DESCRIPTION = "Palimpsest: long-term memory for agents, on plain PostgreSQL."


def main(arguments: list[str] | None = None) -> int:
    """Run one command and return its exit code."""
    options = build_parser().parse_args(arguments)
    try:
        return options.run(options, read_settings())
    except AppError as problem:
        _explain(problem, as_json=getattr(options, "json", False))
        return 2 if isinstance(problem, ConfigError | BadRequest) else 1
    except KeyboardInterrupt:
        return 130
    except Exception as problem:
        explained = _as_startup_error(problem)
        if explained is None:
            raise
        _explain(explained, as_json=getattr(options, "json", False))
        return 1


def _as_startup_error(problem: Exception) -> StartupError | None:
    """Return an error of the database, a migration or the file system as a StartupError; None for a bug."""
    import psycopg
    from alembic.util import CommandError
    from sqlalchemy.exc import DBAPIError

    cause = problem.orig if isinstance(problem, DBAPIError) else problem
    if isinstance(cause, psycopg.errors.UndefinedTable | psycopg.errors.UndefinedFunction):
        return StartupError("The schema is not there; run palimpsest migrate.", code="not_migrated")
    if isinstance(cause, psycopg.Error):
        return StartupError(f"The database refused: {(str(cause).strip().splitlines() or [type(cause).__name__])[0]}")
    if isinstance(cause, CommandError):
        return StartupError(f"The migration cannot be found or run: {cause}")
    if isinstance(cause, OSError):
        return StartupError(f"{cause.strerror or cause}: {cause.filename or ''}".rstrip(": "))
    return None


def _explain(problem: AppError, *, as_json: bool) -> None:
    if as_json:
        print(json.dumps({"error": {"code": problem.code, "message": problem.message, "details": problem.details}}))
    print(f"palimpsest: {problem.message} ({problem.code})", file=sys.stderr)
    script = getattr(problem, "script", None)
    if script:
        print(f"\n{script}")


def build_parser() -> argparse.ArgumentParser:
    """Return the parser of all commands."""
    parser = argparse.ArgumentParser(prog="palimpsest", description=DESCRIPTION, epilog=EPILOG)
    parser.add_argument("--version", action="version", version=f"palimpsest {__version__}")
    commands = parser.add_subparsers(title="commands", metavar="COMMAND", required=True)

    serve = add_command(commands, "serve", run_serve, "start the API and a worker (what `make run` starts)")
    serve.add_argument("--no-worker", action="store_true", help="only the API; run `palimpsest worker` elsewhere")
    serve.add_argument(
        "--demo",
        action="store_true",
        help="create tenant demo with two keys if it does not exist (always done when embedded)",
    )
    add_command(commands, "worker", run_worker, "run background jobs until stopped")
    _migrate_command(commands)
    doctor = add_command(commands, "doctor", run_doctor, "check database, roles, policies, migrations and clock")
    add_json_option(doctor)

    add_tenant_commands(commands)
    add_key_commands(commands)
    add_audit_commands(commands)
    add_vocabulary_commands(commands)
    add_embedding_commands(commands)
    add_object_commands(commands)
    return parser


def _migrate_command(commands: Any) -> None:
    migrate = add_command(
        commands, "migrate", run_migrate, "create roles, bring the schema to the newest migration and install functions"
    )
    migrate.add_argument("--revision", default="head", metavar="R", help="stop at this migration (default: head)")
    migrate.add_argument("--downgrade", metavar="R", help="go back to this migration; `base` removes everything")
    migrate.add_argument(
        "--repair",
        action="store_true",
        help="put drifted policies and grants right; functions are put right by every migrate",
    )
    migrate.add_argument("--print-roles", action="store_true", help="print the SQL that makes the roles, for a DBA")


def run_serve(options: argparse.Namespace, settings: Settings) -> int:
    """`palimpsest serve`."""
    from app.telemetry.logs import configure_logs

    configure_logs(settings.log_level)
    own = "PROMETHEUS_MULTIPROC_DIR" not in os.environ
    if own:
        # Before the first metric is created: all processes of serve share their metrics through this folder.
        os.environ["PROMETHEUS_MULTIPROC_DIR"] = tempfile.mkdtemp(prefix="palimpsest-metrics-")
    try:
        from app.cli.supervisor import serve

        serve(settings, with_worker=not options.no_worker, demo=options.demo, say=say)
    finally:
        if own:
            shutil.rmtree(os.environ["PROMETHEUS_MULTIPROC_DIR"], ignore_errors=True)
    return 0


def run_worker(_options: argparse.Namespace, settings: Settings) -> int:
    """`palimpsest worker`."""
    from app.cli.installation import database_of
    from app.cli.supervisor import run_worker

    with database_of(settings, say=say) as ready:
        run_worker(ready)
    return 0


def run_migrate(options: argparse.Namespace, settings: Settings) -> int:
    """`palimpsest migrate`."""
    from app.cli.installation import DATABASE, database_of, migrate
    from app.db import migrations

    if options.print_roles:
        from psycopg.conninfo import conninfo_to_dict

        url = settings.database_migration_url or settings.database_url or ""
        print(migrations.dba_script(str(conninfo_to_dict(url).get("dbname") or DATABASE)))
        return 0
    with database_of(settings, say=say) as ready:
        if options.downgrade:
            migrations.downgrade(migrations.migration_conninfo(ready), options.downgrade)
            say(f"the database is at migration {options.downgrade}")
            return 0
        migrate(ready, revision=options.revision, keep_newer=False, say=say)
        if options.repair:
            from app.db.repair import repair
            from app.db.schema import load_metadata

            repair(migrations.migration_conninfo(ready), load_metadata())
            say("policies and grants are as this version needs them; palimpsest doctor shows what is left")
    return 0


def run_doctor(options: argparse.Namespace, settings: Settings) -> int:
    """`palimpsest doctor`."""
    from app.cli.doctor import examine
    from app.cli.installation import database_of

    if settings.embedded and not (settings.home / "postgres").exists():
        raise StartupError(f"There is no embedded database in {settings.home} yet; make run (or migrate) creates it.")
    with database_of(settings, say=say) as ready:
        findings = examine(ready)
    healthy = all(finding.ok for finding in findings)
    if options.json:
        checks = [{"check": f.check, "ok": f.ok, "found": f.found, "remedy": f.remedy} for f in findings]
        print(json.dumps({"healthy": healthy, "checks": checks}, indent=2))
        return 0 if healthy else 1
    for finding in findings:
        print(f"{'ok  ' if finding.ok else 'FAIL'}  {finding.check}: {finding.found}")
        if not finding.ok:
            print(f"      -> {finding.remedy}")
    print("everything is in order" if healthy else "something needs attention")
    return 0 if healthy else 1
