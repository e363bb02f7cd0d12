"""`palimpsest tenants` and `palimpsest projects`."""

import argparse
from typing import Any

from app.cli.command_line import add_command, add_group, add_json_option, convert_options, print_result, run_on_database
from app.config import Settings


def add_tenant_commands(commands: Any) -> None:
    """Add the commands of tenants and projects."""
    tenants = add_group(commands, "tenants", "create and list tenants")
    create = add_command(tenants, "create", run_create_tenant, "create a tenant")
    create.add_argument("id", metavar="ID", help="a-z, 0-9, _ and -, at most 63 characters")
    create.add_argument("--name", default="", help="a display name")
    add_json_option(create)
    add_json_option(add_command(tenants, "list", run_list_tenants, "list tenants"))

    projects = add_group(commands, "projects", "create projects")
    create = add_command(projects, "create", run_create_project, "create a project")
    create.add_argument("id", metavar="ID", help="a-z, 0-9, _ and -, at most 63 characters")
    create.add_argument("--tenant", required=True, metavar="T", help="the tenant it belongs to")
    create.add_argument("--name", default="", help="a display name")
    add_json_option(create)


def run_create_tenant(options: argparse.Namespace, settings: Settings) -> int:
    """`palimpsest tenants create`."""
    from app.cli import administration as admin
    from app.tenancy.schemas import TenantCreate

    data = convert_options({"tenant_id": options.id, "name": options.name}, TenantCreate)
    created = run_on_database(settings, lambda db: admin.create_tenant(db, data))
    return print_result(options, created, f"tenant {options.id} {'created' if created.created else 'already exists'}")


def run_list_tenants(options: argparse.Namespace, settings: Settings) -> int:
    """`palimpsest tenants list`."""
    from app.cli import administration as admin

    found = run_on_database(settings, admin.tenant_ids)
    return print_result(options, {"tenants": [{"tenant_id": name} for name in found]}, "\n".join(found))


def run_create_project(options: argparse.Namespace, settings: Settings) -> int:
    """`palimpsest projects create`."""
    from app.cli import administration as admin
    from app.tenancy.schemas import ProjectCreate

    body = {"tenant_id": options.tenant, "project_id": options.id, "name": options.name}
    data = convert_options(body, ProjectCreate)
    created = run_on_database(settings, lambda db: admin.create_project(db, data))
    state = "created" if created.created else "already exists"
    return print_result(options, created, f"project {options.id} of tenant {options.tenant} {state}")
