"""Commands about tenants, projects, keys and the audit log."""

import argparse
import re
from datetime import datetime
from typing import Any
from uuid import UUID

from app.cli.parsing import administer, as_owner, command, convert, group, show, takes_json
from app.config import Settings
from app.errors import BadRequest


def add_tenancy_commands(commands: Any) -> None:
    """`palimpsest tenants`, `projects`, `keys` and `audit`."""
    tenants = group(commands, "tenants", "make and list tenants")
    create = command(tenants, "create", run_create_tenant, "make a tenant")
    create.add_argument("id", metavar="ID", help="a-z, 0-9, _ and -, at most 63")
    create.add_argument("--name", default="", help="a name for people")
    takes_json(create)
    takes_json(command(tenants, "list", run_list_tenants, "list tenants"))

    projects = group(commands, "projects", "make projects")
    create = command(projects, "create", run_create_project, "make a project")
    create.add_argument("id", metavar="ID", help="a-z, 0-9, _ and -, at most 63")
    create.add_argument("--tenant", required=True, metavar="T", help="the tenant it belongs to")
    create.add_argument("--name", default="", help="a name for people")
    takes_json(create)

    _key_commands(group(commands, "keys", "issue, list, rotate and revoke API keys"))

    audit = group(commands, "audit", "the audit log of each tenant")
    verify = command(audit, "verify", run_verify_audit, "check that no line was altered, removed or put in")
    verify.add_argument("--tenant", metavar="T", help="only this tenant (default: all)")
    verify.add_argument(
        "--head", metavar="N:HASH", help="a line printed earlier, which the chain must still contain; needs --tenant"
    )
    takes_json(verify)


def run_create_tenant(options: argparse.Namespace, settings: Settings) -> int:
    """`palimpsest tenants create`."""
    from app.cli import administration as admin
    from app.tenancy.schemas import TenantCreate

    data = convert({"tenant_id": options.id, "name": options.name}, TenantCreate)
    made = administer(settings, lambda db: admin.create_tenant(db, data))
    return show(options, made, f"tenant {options.id} {'made' if made['created'] else 'was there already'}")


def run_list_tenants(options: argparse.Namespace, settings: Settings) -> int:
    """`palimpsest tenants list`."""
    from app.cli import administration as admin

    found = administer(settings, admin.tenant_ids)
    return show(options, {"tenants": [{"tenant_id": name} for name in found]}, "\n".join(found))


def run_create_project(options: argparse.Namespace, settings: Settings) -> int:
    """`palimpsest projects create`."""
    from app.cli import administration as admin
    from app.tenancy.schemas import ProjectCreate

    body = {"tenant_id": options.tenant, "project_id": options.id, "name": options.name}
    data = convert(body, ProjectCreate)
    made = administer(settings, lambda db: admin.create_project(db, data))
    state = "made" if made["created"] else "was there already"
    return show(options, made, f"project {options.id} of tenant {options.tenant} {state}")


def _key_commands(keys: Any) -> None:
    create = command(keys, "create", run_create_key, "issue a key; it is printed once")
    create.add_argument("--tenant", metavar="T", help="the tenant the key belongs to")
    create.add_argument("--project", metavar="P", help="bind the key to one project (default: it spans all)")
    create.add_argument("--kind", choices=["agent", "admin", "platform"], default="agent")
    create.add_argument("--agent", metavar="NAME", help="the agent that will use it (required for kind agent)")
    create.add_argument("--scopes", metavar="a,b", help="comma-separated (default: all that its kind may have)")
    create.add_argument("--name", default="", help="a name for people")
    create.add_argument("--expires", metavar="TIME", help="ISO 8601 with a zone, such as 2030-01-01T00:00:00Z")
    for work in ("read", "write", "admin", "expand"):
        create.add_argument(f"--limit-{work}", type=int, metavar="N", help=f"{work} requests a minute (0: no limit)")
    takes_json(create)
    listing = command(keys, "list", run_list_keys, "list keys; secrets are stored nowhere")
    listing.add_argument("--tenant", metavar="T", help="only this tenant's (default: all)")
    takes_json(listing)
    for name, run, text in (
        ("rotate", run_rotate_key, "give a key a new secret; it is printed once"),
        ("revoke", run_revoke_key, "make a key useless, at once and everywhere"),
    ):
        change = command(keys, name, run, text)
        change.add_argument("key_id", metavar="KEY_ID", help="the key's id, or the key itself")
        change.add_argument("--tenant", metavar="T", help="the tenant it belongs to (default: look in all)")
        if name == "rotate":
            change.add_argument("--grace", type=int, default=0, metavar="S", help="seconds the old secret still works")
        takes_json(change)


def run_create_key(options: argparse.Namespace, settings: Settings) -> int:
    """`palimpsest keys create`."""
    from app.cli import administration as admin
    from app.tenancy.keys import replace_platform_key
    from app.tenancy.schemas import KeyCreate

    if options.kind == "platform":
        if any((options.tenant, options.project, options.agent, options.scopes)):
            raise BadRequest("--kind platform: it belongs to no tenant, project or agent, and has no scopes to choose.")
        issued = as_owner(settings, replace_platform_key)
        return show(options, issued, issued["key"])
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
    data = convert(body, KeyCreate)
    issued = administer(settings, lambda db: admin.create_key(db, data))
    return show(options, issued, issued["key"])


def run_list_keys(options: argparse.Namespace, settings: Settings) -> int:
    """`palimpsest keys list`."""
    from app.cli import administration as admin

    found = administer(settings, lambda db: admin.list_keys(db, options.tenant))
    lines = [
        f"{key['key_id']}  {key['tenant_id']}/{key['project_id'] or '*'}  {key['kind']}  {key['agent_id']}"
        f"{'  revoked' if key['revoked_at'] else ''}"
        for key in found
    ]
    return show(options, {"keys": found}, "\n".join(lines))


def run_rotate_key(options: argparse.Namespace, settings: Settings) -> int:
    """`palimpsest keys rotate`."""
    from app.cli import administration as admin

    key_id = _key_id(options.key_id)
    issued = administer(settings, lambda db: admin.rotate_key(db, key_id, options.tenant, options.grace))
    return show(options, issued, issued["key"])


def run_revoke_key(options: argparse.Namespace, settings: Settings) -> int:
    """`palimpsest keys revoke`."""
    from app.cli import administration as admin

    key_id = _key_id(options.key_id)
    revoked = administer(settings, lambda db: admin.revoke_key(db, key_id, options.tenant))
    return show(options, revoked, f"key {key_id} is revoked")


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


def run_verify_audit(options: argparse.Namespace, settings: Settings) -> int:
    """`palimpsest audit verify`."""
    import msgspec

    from app.cli import administration as admin

    head = None
    if options.head is not None:
        match = re.fullmatch(r"([0-9]{1,18}):([0-9a-f]{64})", options.head)
        if match is None or options.tenant is None:
            raise BadRequest("--head: a number, a colon and 64 hexadecimal digits, with --tenant.")
        head = (int(match[1]), match[2])
    verdicts = administer(settings, lambda db: admin.verify_audit(db, options.tenant, head))
    lines = [
        f"{verdict.tenant_id}: {'BROKEN' if verdict.problems else 'intact'}, {verdict.sequence} lines, "
        f"{verdict.unsealed} to be sealed; head {verdict.sequence}:{verdict.hash}"
        + "".join(f"\n  - {problem}" for problem in verdict.problems)
        for verdict in verdicts
    ]
    intact = not any(verdict.problems for verdict in verdicts)
    show(options, {"intact": intact, "tenants": msgspec.to_builtins(verdicts)}, "\n".join(lines))
    return 0 if intact else 1
