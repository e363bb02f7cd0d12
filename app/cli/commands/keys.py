"""`palimpsest keys`."""

import argparse
import os
import re
from datetime import datetime
from typing import Any
from uuid import UUID

from app.cli.command_line import (
    add_command,
    add_group,
    add_json_option,
    convert_options,
    print_result,
    run_as_owner,
    run_on_database,
)
from app.config import Settings
from app.errors import BadRequest

LIMITED_WORK = ("read", "write", "admin", "expand")


def add_key_commands(commands: Any) -> None:
    """Add the commands of API keys."""
    keys = add_group(commands, "keys", "issue, list, rotate and revoke API keys")
    create = add_command(keys, "create", run_create_key, "issue a key; it is printed once")
    create.add_argument("--tenant", metavar="T", help="the tenant the key belongs to")
    create.add_argument("--project", metavar="P", help="bind the key to one project (default: all projects)")
    create.add_argument("--kind", choices=["agent", "admin", "platform"], default="agent")
    create.add_argument("--agent", metavar="NAME", help="the agent that will use it (required for kind agent)")
    create.add_argument("--user", metavar="ID", help="bind an agent's key to one end user, for whom it always acts")
    create.add_argument("--scopes", metavar="a,b", help="comma-separated (default: all scopes of its kind)")
    create.add_argument("--name", default="", help="a display name")
    create.add_argument("--expires", metavar="TIME", help="ISO 8601 with a zone, such as 2030-01-01T00:00:00Z")
    create.add_argument(
        "--from-env",
        metavar="NAME",
        help="store the key that this environment variable holds, instead of a new one; only its id is printed",
    )
    for work in LIMITED_WORK:
        create.add_argument(f"--limit-{work}", type=int, metavar="N", help=f"{work} requests a minute (0: no limit)")
    add_json_option(create)
    listing = add_command(keys, "list", run_list_keys, "list keys, without their secrets")
    listing.add_argument("--tenant", metavar="T", help="only this tenant's (default: all)")
    add_json_option(listing)
    for name, run, text in (
        ("rotate", run_rotate_key, "give a key a new secret; it is printed once"),
        ("revoke", run_revoke_key, "revoke a key, with immediate effect"),
    ):
        change = add_command(keys, name, run, text)
        change.add_argument("key_id", metavar="KEY_ID", help="the key's id, or the key itself")
        change.add_argument("--tenant", metavar="T", help="the tenant it belongs to (default: look in all)")
        if name == "rotate":
            change.add_argument("--grace", type=int, default=0, metavar="S", help="seconds the old secret still works")
        add_json_option(change)


def run_create_key(options: argparse.Namespace, settings: Settings) -> int:
    """`palimpsest keys create`."""
    from app.cli import administration as admin
    from app.tenancy.keys import replace_platform_key
    from app.tenancy.schemas import KeyCreate

    if options.kind == "platform":
        if any((options.tenant, options.project, options.agent, options.user, options.scopes)):
            raise BadRequest("--kind platform: a platform key has no tenant, project, agent, user or scopes.")
        if options.from_env:
            raise BadRequest("--from-env: for a platform key, set PLATFORM_KEY for the service instead.")
        issued = run_as_owner(settings, replace_platform_key)
        return print_result(options, issued, issued["key"])
    if options.tenant is None:
        raise BadRequest("--tenant: required, except for --kind platform.")
    limits = {work: getattr(options, f"limit_{work}") for work in LIMITED_WORK}
    body: dict[str, Any] = {
        "tenant_id": options.tenant,
        "kind": options.kind,
        "project_id": options.project,
        "agent_id": options.agent,
        "user_id": options.user,
        "name": options.name,
        "rate_limits": {work: limit for work, limit in limits.items() if limit is not None},
    }
    if options.scopes is not None:
        body["scopes"] = [scope.strip() for scope in options.scopes.split(",") if scope.strip()]
    if options.expires is not None:
        body["expires_at"] = _parse_time(options.expires)
    data = convert_options(body, KeyCreate)
    if options.from_env:
        key = os.environ.get(options.from_env, "").strip()
        if not key:
            raise BadRequest(f"--from-env: the environment variable {options.from_env} is not set.")
        stored = run_on_database(settings, lambda db: admin.register_key(db, data, key))
        state = "created" if stored["created"] else "already exists"
        return print_result(options, stored, f"key {stored['key_id']} of tenant {options.tenant} {state}")
    issued = run_on_database(settings, lambda db: admin.create_key(db, data))
    return print_result(options, issued, issued.key)


def run_list_keys(options: argparse.Namespace, settings: Settings) -> int:
    """`palimpsest keys list`."""
    from app.cli import administration as admin

    found = run_on_database(settings, lambda db: admin.list_keys(db, options.tenant))
    lines = [
        f"{key['key_id']}  {key['tenant_id']}/{key['project_id'] or '*'}  {key['kind']}  {key['agent_id']}"
        f"{'  revoked' if key['revoked_at'] else ''}"
        for key in found
    ]
    return print_result(options, {"keys": found}, "\n".join(lines))


def run_rotate_key(options: argparse.Namespace, settings: Settings) -> int:
    """`palimpsest keys rotate`."""
    from app.cli import administration as admin
    from app.tenancy.schemas import KeyRotate

    key_id = _parse_key_id(options.key_id)
    data = convert_options({"grace_seconds": options.grace}, KeyRotate, option="--grace")
    issued = run_on_database(settings, lambda db: admin.rotate_key(db, key_id, options.tenant, data))
    return print_result(options, issued, issued.key)


def run_revoke_key(options: argparse.Namespace, settings: Settings) -> int:
    """`palimpsest keys revoke`."""
    from app.cli import administration as admin

    key_id = _parse_key_id(options.key_id)
    revoked = run_on_database(settings, lambda db: admin.revoke_key(db, key_id, options.tenant))
    return print_result(options, revoked, f"key {key_id} is revoked")


def _parse_key_id(text: str) -> UUID:
    match = re.match(r"pk_([0-9a-f]{32})_", text)
    try:
        return UUID(match[1] if match else text)
    except ValueError as problem:
        raise BadRequest("KEY_ID: neither the id of a key nor a key.") from problem


def _parse_time(text: str) -> datetime:
    try:
        moment = datetime.fromisoformat(text)
    except ValueError as problem:
        raise BadRequest("--expires: not a time such as 2030-01-01T00:00:00Z.") from problem
    if moment.tzinfo is None:
        raise BadRequest("--expires: needs a time zone, such as 2030-01-01T00:00:00Z.")
    return moment
