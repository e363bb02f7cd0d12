"""The `palimpsest` command."""

import argparse
import json
import os
import re
import shutil
import sys
import tempfile
from collections.abc import Callable
from datetime import datetime
from pathlib import Path
from typing import Any
from uuid import UUID

from app import __version__
from app.config import Settings, read_settings
from app.errors import AppError, BadRequest, ConfigError, StartupError

Handler = Callable[[argparse.Namespace, Settings], int]

DESCRIPTION = "Palimpsest: long-term memory for agents, on plain PostgreSQL."
EPILOG = "Without DATABASE_URL an embedded PostgreSQL is used; its data are in .palimpsest/ or PALIMPSEST_HOME."


def say(line: str) -> None:
    """Progress, for the person who waits; data go to standard output alone."""
    print(f"==> {line}", file=sys.stderr, flush=True)


def main(arguments: list[str] | None = None) -> int:
    """Runs one command and answers its exit code."""
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
    """In words, what a database, a migration or a file system may answer; None for a mistake of ours."""
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
    """All commands with their help."""
    parser = argparse.ArgumentParser(prog="palimpsest", description=DESCRIPTION, epilog=EPILOG)
    parser.add_argument("--version", action="version", version=f"palimpsest {__version__}")
    commands = parser.add_subparsers(title="commands", metavar="COMMAND", required=True)

    serve = _command(commands, "serve", run_serve, "start the API and a worker (what `make run` starts)")
    serve.add_argument("--no-worker", action="store_true", help="only the API; run `palimpsest worker` elsewhere")
    serve.add_argument(
        "--demo",
        action="store_true",
        help="make tenant demo with two keys if there is none (always done when embedded)",
    )
    _command(commands, "worker", run_worker, "work on background jobs until stopped")
    _migrate_command(commands)
    doctor = _command(commands, "doctor", run_doctor, "check database, roles, policies, migrations and clock")
    _json(doctor)

    tenants = _group(commands, "tenants", "make and list tenants")
    create = _command(tenants, "create", run_create_tenant, "make a tenant")
    create.add_argument("id", metavar="ID", help="a-z, 0-9, _ and -, at most 63")
    create.add_argument("--name", default="", help="a name for people")
    _json(create)
    _json(_command(tenants, "list", run_list_tenants, "list tenants"))

    projects = _group(commands, "projects", "make projects")
    create = _command(projects, "create", run_create_project, "make a project")
    create.add_argument("id", metavar="ID", help="a-z, 0-9, _ and -, at most 63")
    create.add_argument("--tenant", required=True, metavar="T", help="the tenant it belongs to")
    create.add_argument("--name", default="", help="a name for people")
    _json(create)

    _key_commands(_group(commands, "keys", "issue, list, rotate and revoke API keys"))

    audit = _group(commands, "audit", "the audit log of each tenant")
    verify = _command(audit, "verify", run_verify_audit, "check that no line was altered, removed or put in")
    verify.add_argument("--tenant", metavar="T", help="only this tenant (default: all)")
    verify.add_argument(
        "--head", metavar="N:HASH", help="a line printed earlier, which the chain must still contain; needs --tenant"
    )
    _json(verify)

    predicates = _group(commands, "predicates", "the vocabulary that all tenants share (as the owner of the database)")
    change = _command(predicates, "set", run_set_predicate, "make a predicate for all tenants, or change it")
    change.add_argument("name", metavar="NAME")
    change.add_argument("--cardinality", choices=["single", "multi"], help="one value at a time, or several (multi)")
    change.add_argument("--status", choices=["pending", "active", "deprecated"], help="default: active")
    change.add_argument("--alias", action="append", default=[], metavar="A", help="another name; may be repeated")
    _json(change)
    _json(_command(predicates, "list", run_list_predicates, "list what all tenants share"))
    types = _group(commands, "types", "types of objects and relationships that all tenants share (as the owner)")
    load = _command(types, "load", run_load_types, "register the types of a JSON file for all tenants")
    load.add_argument("file", metavar="FILE", type=Path, help='{"objects": [...], "relationships": [...]}')
    _json(load)
    _json(_command(types, "list", run_list_types, "list what all tenants share"))
    _embedding_commands(_group(commands, "embeddings", "the models vectors are made with (as the owner)"))
    _object_commands(_group(commands, "objects", "objects of what is known already"))
    return parser


def _migrate_command(commands: Any) -> None:
    migrate = _command(commands, "migrate", run_migrate, "create roles and bring the schema to the newest migration")
    migrate.add_argument("--revision", default="head", metavar="R", help="stop at this migration (default: head)")
    migrate.add_argument("--downgrade", metavar="R", help="go back to this migration; `base` removes everything")
    migrate.add_argument("--repair", action="store_true", help="put drifted policies, grants and functions right")
    migrate.add_argument("--print-roles", action="store_true", help="print the SQL that makes the roles, for a DBA")


def _embedding_commands(embeddings: Any) -> None:
    _json(_command(embeddings, "status", run_embedding_status, "list models and how much each of them covers"))
    add = _command(embeddings, "add", run_add_model, "register a model; the worker fills it in the background")
    add.add_argument("model", metavar="PROVIDER/MODEL[@DIM]", help="such as ollama/nomic-embed-text")
    activate = _command(embeddings, "activate", run_activate_model, "let recall search by a model, or by none")
    activate.add_argument("--force", action="store_true", help="also when it covers less than 95%% of what there is")
    drop = _command(embeddings, "drop", run_drop_model, "forget a model that is not active, with its vectors")
    for change in (activate, drop):
        change.add_argument("model", metavar="MODEL", help="PROVIDER/MODEL, or its number as status shows it")
        change.add_argument("--model-version", type=int, metavar="N", help="which one, where there are several")
        _json(change)
    add.add_argument("--model-version", type=int, default=1, metavar="N", help="of the same model, another one (1)")
    _json(add)


def _object_commands(objects: Any) -> None:
    text = "make an object for each entity without one, and relationships of the facts between them; safe to repeat"
    fill = _command(objects, "backfill", run_backfill, text)
    fill.add_argument("--tenant", required=True, metavar="T", help="the tenant")
    fill.add_argument("--project", required=True, metavar="P", help="its project")
    fill.add_argument("--dry-run", action="store_true", help="only say how much there is to do")
    _json(fill)


def _key_commands(keys: Any) -> None:
    create = _command(keys, "create", run_create_key, "issue a key; it is printed once")
    create.add_argument("--tenant", metavar="T", help="the tenant the key belongs to")
    create.add_argument("--project", metavar="P", help="bind the key to one project (default: it spans all)")
    create.add_argument("--kind", choices=["agent", "admin", "platform"], default="agent")
    create.add_argument("--agent", metavar="NAME", help="the agent that will use it (required for kind agent)")
    create.add_argument("--scopes", metavar="a,b", help="comma-separated (default: all that its kind may have)")
    create.add_argument("--name", default="", help="a name for people")
    create.add_argument("--expires", metavar="TIME", help="ISO 8601 with a zone, such as 2030-01-01T00:00:00Z")
    for work in ("read", "write", "admin", "expand"):
        create.add_argument(f"--limit-{work}", type=int, metavar="N", help=f"{work} requests a minute (0: no limit)")
    _json(create)
    listing = _command(keys, "list", run_list_keys, "list keys; secrets are stored nowhere")
    listing.add_argument("--tenant", metavar="T", help="only this tenant's (default: all)")
    _json(listing)
    for name, run, text in (
        ("rotate", run_rotate_key, "give a key a new secret; it is printed once"),
        ("revoke", run_revoke_key, "make a key useless, at once and everywhere"),
    ):
        change = _command(keys, name, run, text)
        change.add_argument("key_id", metavar="KEY_ID", help="the key's id, or the key itself")
        change.add_argument("--tenant", metavar="T", help="the tenant it belongs to (default: look in all)")
        if name == "rotate":
            change.add_argument("--grace", type=int, default=0, metavar="S", help="seconds the old secret still works")
        _json(change)


def _group(commands: Any, name: str, text: str) -> Any:
    parser = commands.add_parser(name, help=text, description=f"{text[0].upper()}{text[1:]}.")
    return parser.add_subparsers(title="commands", metavar="COMMAND", required=True)


def _command(commands: Any, name: str, run: Handler, text: str) -> argparse.ArgumentParser:
    parser: argparse.ArgumentParser = commands.add_parser(
        name, help=text, description=f"{text[0].upper()}{text[1:]}.", epilog=EPILOG
    )
    parser.set_defaults(run=run)
    return parser


def _json(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--json", action="store_true", help="print JSON")


def run_serve(options: argparse.Namespace, settings: Settings) -> int:
    """`palimpsest serve`."""
    from app.telemetry.logs import configure_logs

    configure_logs(settings.log_level)
    own = "PROMETHEUS_MULTIPROC_DIR" not in os.environ
    if own:
        # Before the first metric is made: all processes that serve starts share their figures through this folder.
        os.environ["PROMETHEUS_MULTIPROC_DIR"] = tempfile.mkdtemp(prefix="palimpsest-metrics-")
    try:
        from app.operations.supervisor import serve

        serve(settings, with_worker=not options.no_worker, demo=options.demo, say=say)
    finally:
        if own:
            shutil.rmtree(os.environ["PROMETHEUS_MULTIPROC_DIR"], ignore_errors=True)
    return 0


def run_worker(_options: argparse.Namespace, settings: Settings) -> int:
    """`palimpsest worker`."""
    from app.operations.installation import database_of
    from app.operations.supervisor import run_worker

    with database_of(settings, say=say) as ready:
        run_worker(ready)
    return 0


def run_migrate(options: argparse.Namespace, settings: Settings) -> int:
    """`palimpsest migrate`."""
    from app.db import migrations
    from app.operations.installation import DATABASE, database_of, migrate

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
        migrate(ready, revision=options.revision, say=say)
        if options.repair:
            from app.db.repair import repair
            from app.db.schema import load_metadata

            repair(migrations.migration_conninfo(ready), load_metadata())
            say("policies, grants and functions are as this version needs them; palimpsest doctor shows what is left")
    return 0


def run_doctor(options: argparse.Namespace, settings: Settings) -> int:
    """`palimpsest doctor`."""
    from app.operations.doctor import examine
    from app.operations.installation import database_of

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


def _administer(settings: Settings, work: Callable[[Any], Any]) -> Any:
    from app.operations.administration import with_database
    from app.operations.installation import database_of, migrate

    with database_of(settings, say=say) as ready:
        if settings.embedded:
            migrate(ready, say=lambda _: None)
        return with_database(ready, work)


def _show(options: argparse.Namespace, data: Any, line: str) -> int:
    print(json.dumps(data, indent=2) if options.json else line)
    return 0


def run_create_tenant(options: argparse.Namespace, settings: Settings) -> int:
    """`palimpsest tenants create`."""
    from app.operations import administration as admin
    from app.tenancy.schemas import TenantCreate

    data = _convert({"tenant_id": options.id, "name": options.name}, TenantCreate)
    made = _administer(settings, lambda db: admin.create_tenant(db, data))
    return _show(options, made, f"tenant {options.id} {'made' if made['created'] else 'was there already'}")


def run_list_tenants(options: argparse.Namespace, settings: Settings) -> int:
    """`palimpsest tenants list`."""
    from app.operations import administration as admin

    found = _administer(settings, admin.tenant_ids)
    return _show(options, {"tenants": [{"tenant_id": name} for name in found]}, "\n".join(found))


def run_create_project(options: argparse.Namespace, settings: Settings) -> int:
    """`palimpsest projects create`."""
    from app.operations import administration as admin
    from app.tenancy.schemas import ProjectCreate

    body = {"tenant_id": options.tenant, "project_id": options.id, "name": options.name}
    data = _convert(body, ProjectCreate)
    made = _administer(settings, lambda db: admin.create_project(db, data))
    state = "made" if made["created"] else "was there already"
    return _show(options, made, f"project {options.id} of tenant {options.tenant} {state}")


def run_create_key(options: argparse.Namespace, settings: Settings) -> int:
    """`palimpsest keys create`."""
    from app.operations import administration as admin
    from app.operations.installation import database_of
    from app.tenancy.keys import replace_platform_key
    from app.tenancy.schemas import KeyCreate

    if options.kind == "platform":
        if any((options.tenant, options.project, options.agent, options.scopes)):
            raise BadRequest("--kind platform: it belongs to no tenant, project or agent, and has no scopes to choose.")
        with database_of(settings, say=say) as ready:
            issued = admin.as_owner(ready, replace_platform_key)
        return _show(options, issued, issued["key"])
    if options.tenant is None:
        raise BadRequest("--tenant: name the tenant the key belongs to.")
    limits = {work: getattr(options, f"limit_{work}") for work in ("read", "write", "admin", "expand")}
    body: dict[str, Any] = {
        "tenant_id": options.tenant,
        "kind": options.kind,
        "project_id": options.project,
        "agent_id": options.agent,
        "name": options.name,
        "rate_limits": {work: limit for work, limit in limits.items() if limit is not None},
    }
    if options.scopes is not None:
        body["scopes"] = [scope.strip() for scope in options.scopes.split(",") if scope.strip()]
    if options.expires is not None:
        body["expires_at"] = _moment(options.expires)
    data = _convert(body, KeyCreate)
    issued = _administer(settings, lambda db: admin.create_key(db, data))
    return _show(options, issued, issued["key"])


def run_set_predicate(options: argparse.Namespace, settings: Settings) -> int:
    """`palimpsest predicates set`."""
    from app.facts.vocabulary.installation import GlobalPredicate, set_global_predicate
    from app.operations.administration import as_owner
    from app.operations.installation import database_of

    fields = {"name": options.name, "cardinality": options.cardinality, "status": options.status}
    data = _convert({**fields, "aliases": options.alias}, GlobalPredicate)
    with database_of(settings, say=say) as ready:
        made = as_owner(ready, lambda owner: set_global_predicate(owner, data))
    return _show(options, made, f"predicate {made['name']} is set for all tenants")


def run_list_predicates(options: argparse.Namespace, settings: Settings) -> int:
    """`palimpsest predicates list`."""
    from app.facts.vocabulary.installation import list_global_predicates
    from app.operations.administration import as_owner
    from app.operations.installation import database_of

    with database_of(settings, say=say) as ready:
        found = as_owner(ready, list_global_predicates)
    lines = [f"{row['name']}  {row['cardinality']}  {row['status']}  used by {row['tenants']}" for row in found]
    return _show(options, {"predicates": found}, "\n".join(lines))


def run_load_types(options: argparse.Namespace, settings: Settings) -> int:
    """`palimpsest types load`."""
    from app.objects.types.installation import load_types, read_file

    try:
        given = options.file.read_bytes()
    except OSError as problem:
        raise BadRequest(f"FILE: {options.file} cannot be read: {problem.strerror}.") from problem
    data = read_file(given)
    made = _as_owner(settings, lambda owner: load_types(owner, data))
    lines = [
        f"{row['kind']} type {row['type']}  version {row['version']}{'' if row['created'] else ' (as it was)'}"
        for row in made
    ]
    return _show(options, {"types": made}, "\n".join(lines))


def run_list_types(options: argparse.Namespace, settings: Settings) -> int:
    """`palimpsest types list`."""
    from app.objects.types.installation import list_types

    found = _as_owner(settings, list_types)
    lines = [f"{row['kind']} type {row['type']}  version {row['version']}" for row in found]
    return _show(options, {"types": found}, "\n".join(lines))


def run_embedding_status(options: argparse.Namespace, settings: Settings) -> int:
    """`palimpsest embeddings status`."""
    from app.recall.embedding.installation import model_status

    found = _as_owner(settings, model_status)
    lines = [
        f"{row['model_id']}  {row['model']}  version {row['version']}  {row['dimensions']} dimensions"
        f"{'  ACTIVE' if row['active'] else ''}\n   {row['coverage']:.1%} of {row['units']} units, "
        f"{row['pending']} pending, {row['failed']} refused"
        + ("" if row["oldest_pending_seconds"] is None else f", oldest {row['oldest_pending_seconds']} s")
        for row in found
    ]
    return _show(options, {"models": found}, "\n".join(lines) or "no models: recall works without vectors")


def run_add_model(options: argparse.Namespace, settings: Settings) -> int:
    """`palimpsest embeddings add`."""
    from app.recall.embedding.installation import add_model

    if options.model_version < 1:
        raise BadRequest("--model-version: 1 or more.")
    named = {"name": options.model, "version": options.model_version}
    made = _as_owner(settings, lambda owner: add_model(owner, settings, **named, say=say))
    return _show(options, made, f"{made['model']} is model {made['model_id']}; the worker fills it (embeddings status)")


def run_activate_model(options: argparse.Namespace, settings: Settings) -> int:
    """`palimpsest embeddings activate`."""
    from app.recall.embedding.installation import activate_model

    named = {"name": options.model, "version": options.model_version, "force": options.force}
    made = _as_owner(settings, lambda owner: activate_model(owner, **named))
    return _show(options, made, f"recall searches by {made['model']}")


def run_drop_model(options: argparse.Namespace, settings: Settings) -> int:
    """`palimpsest embeddings drop`."""
    from app.recall.embedding.installation import drop_model

    named = {"name": options.model, "version": options.model_version}
    made = _as_owner(settings, lambda owner: drop_model(owner, **named, say=say))
    return _show(options, made, f"{made['model']} is dropped")


def run_backfill(options: argparse.Namespace, settings: Settings) -> int:
    """`palimpsest objects backfill`."""
    import msgspec

    from app.objects.bridges.backfill import backfill, describe

    place = {"tenant_id": options.tenant, "project_id": options.project, "dry_run": options.dry_run}
    done = _administer(settings, lambda db: backfill(db, **place, say=say))
    return _show(options, msgspec.to_builtins(done), describe(done))


def _as_owner(settings: Settings, work: Callable[[Any], Any]) -> Any:
    from app.operations.administration import as_owner
    from app.operations.installation import database_of

    with database_of(settings, say=say) as ready:
        return as_owner(ready, work)


def run_verify_audit(options: argparse.Namespace, settings: Settings) -> int:
    """`palimpsest audit verify`."""
    import msgspec

    from app.operations import administration as admin

    head = None
    if options.head is not None:
        match = re.fullmatch(r"([0-9]{1,18}):([0-9a-f]{64})", options.head)
        if match is None or options.tenant is None:
            raise BadRequest("--head: a number, a colon and 64 hexadecimal digits, with --tenant.")
        head = (int(match[1]), match[2])
    verdicts = _administer(settings, lambda db: admin.verify_audit(db, options.tenant, head))
    lines = [
        f"{verdict.tenant_id}: {'BROKEN' if verdict.problems else 'intact'}, {verdict.sequence} lines, "
        f"{verdict.unsealed} to be sealed; head {verdict.sequence}:{verdict.hash}"
        + "".join(f"\n  - {problem}" for problem in verdict.problems)
        for verdict in verdicts
    ]
    intact = not any(verdict.problems for verdict in verdicts)
    _show(options, {"intact": intact, "tenants": msgspec.to_builtins(verdicts)}, "\n".join(lines))
    return 0 if intact else 1


def run_list_keys(options: argparse.Namespace, settings: Settings) -> int:
    """`palimpsest keys list`."""
    from app.operations import administration as admin

    found = _administer(settings, lambda db: admin.list_keys(db, options.tenant))
    lines = [
        f"{key['key_id']}  {key['tenant_id']}/{key['project_id'] or '*'}  {key['kind']}  {key['agent_id']}"
        f"{'  revoked' if key['revoked_at'] else ''}"
        for key in found
    ]
    return _show(options, {"keys": found}, "\n".join(lines))


def run_rotate_key(options: argparse.Namespace, settings: Settings) -> int:
    """`palimpsest keys rotate`."""
    from app.operations import administration as admin

    key_id = _key_id(options.key_id)
    issued = _administer(settings, lambda db: admin.rotate_key(db, key_id, options.tenant, options.grace))
    return _show(options, issued, issued["key"])


def run_revoke_key(options: argparse.Namespace, settings: Settings) -> int:
    """`palimpsest keys revoke`."""
    from app.operations import administration as admin

    key_id = _key_id(options.key_id)
    revoked = _administer(settings, lambda db: admin.revoke_key(db, key_id, options.tenant))
    return _show(options, revoked, f"key {key_id} is revoked")


def _key_id(text: str) -> UUID:
    match = re.match(r"pk_([0-9a-f]{32})_", text)
    try:
        return UUID(match[1] if match else text)
    except ValueError as problem:
        raise BadRequest("KEY_ID: neither a key's id nor a key.") from problem


def _moment(text: str) -> datetime:
    try:
        moment = datetime.fromisoformat(text)
    except ValueError as problem:
        raise BadRequest("--expires: not a time such as 2030-01-01T00:00:00Z.") from problem
    if moment.tzinfo is None:
        raise BadRequest("--expires: a time with a zone, such as 2030-01-01T00:00:00Z.")
    return moment


def _convert(body: dict[str, Any], kind: Any) -> Any:
    import msgspec

    try:
        return msgspec.convert(body, kind)
    except msgspec.ValidationError as problem:
        raise BadRequest(str(problem)) from problem


if __name__ == "__main__":
    # `python -m app.cli` is how the supervisor starts its worker.
    sys.exit(main())
