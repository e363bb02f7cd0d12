"""`palimpsest objects`."""

import argparse
from typing import Any

from app.cli.command_line import (
    add_command,
    add_group,
    add_json_option,
    print_result,
    run_on_database,
    say,
)
from app.config import Settings


def add_object_commands(commands: Any) -> None:
    """Add the commands of objects."""
    objects = add_group(commands, "objects", "create objects from entities and facts")
    text = "create an object for each entity without one, and relationships for facts between them; safe to repeat"
    fill = add_command(objects, "backfill", run_backfill, text)
    fill.add_argument("--tenant", required=True, metavar="T", help="the tenant")
    fill.add_argument("--project", required=True, metavar="P", help="its project")
    fill.add_argument("--dry-run", action="store_true", help="only report what would be created")
    add_json_option(fill)


def run_backfill(options: argparse.Namespace, settings: Settings) -> int:
    """`palimpsest objects backfill`."""
    import msgspec

    from app.objects.entity_links.backfill import backfill, describe

    place = {"tenant_id": options.tenant, "project_id": options.project, "dry_run": options.dry_run}
    done = run_on_database(settings, lambda db: backfill(db, **place, report=say))
    return print_result(options, msgspec.to_builtins(done), describe(done))
