"""`palimpsest predicates` and `palimpsest types`: the vocabulary that all tenants share."""

import argparse
from pathlib import Path
from typing import Any

from app.cli.command_line import (
    add_command,
    add_group,
    add_json_option,
    convert_options,
    print_result,
    run_as_owner,
)
from app.config import Settings
from app.errors import BadRequest


def add_vocabulary_commands(commands: Any) -> None:
    """Add the commands of global predicates and types."""
    predicates = add_group(commands, "predicates", "predicates that all tenants share (as the owner of the database)")
    change = add_command(predicates, "set", run_set_predicate, "create or change a predicate for all tenants")
    change.add_argument("name", metavar="NAME")
    change.add_argument("--cardinality", choices=["single", "multi"], help="one value at a time, or several")
    change.add_argument("--status", choices=["pending", "active", "deprecated"], help="default: active")
    change.add_argument("--alias", action="append", default=[], metavar="A", help="another name; may be repeated")
    add_json_option(change)
    add_json_option(add_command(predicates, "list", run_list_predicates, "list them"))
    types = add_group(commands, "types", "types of objects and relationships that all tenants share (as the owner)")
    load = add_command(types, "load", run_load_types, "register the types of a JSON file for all tenants")
    load.add_argument("file", metavar="FILE", type=Path, help='{"objects": [...], "relationships": [...]}')
    add_json_option(load)
    add_json_option(add_command(types, "list", run_list_types, "list them"))


def run_set_predicate(options: argparse.Namespace, settings: Settings) -> int:
    """`palimpsest predicates set`."""
    from app.facts.predicates.global_predicates import GlobalPredicate, set_global_predicate

    fields = {"name": options.name, "cardinality": options.cardinality, "status": options.status}
    data = convert_options({**fields, "aliases": options.alias}, GlobalPredicate)
    made = run_as_owner(settings, lambda owner: set_global_predicate(owner, data))
    return print_result(options, made, f"predicate {made['name']} is set for all tenants")


def run_list_predicates(options: argparse.Namespace, settings: Settings) -> int:
    """`palimpsest predicates list`."""
    from app.facts.predicates.global_predicates import list_global_predicates

    found = run_as_owner(settings, list_global_predicates)
    lines = [f"{row['name']}  {row['cardinality']}  {row['status']}  used by {row['tenants']}" for row in found]
    return print_result(options, {"predicates": found}, "\n".join(lines))


def run_load_types(options: argparse.Namespace, settings: Settings) -> int:
    """`palimpsest types load`."""
    from app.objects.types.installation import load_types, read_file

    try:
        given = options.file.read_bytes()
    except OSError as problem:
        raise BadRequest(f"FILE: {options.file} cannot be read: {problem.strerror}.") from problem
    data = read_file(given)
    made = run_as_owner(settings, lambda owner: load_types(owner, data))
    lines = [
        f"{row['kind']} type {row['type']}  version {row['version']}{'' if row['created'] else ' (unchanged)'}"
        for row in made
    ]
    if jobs := sum(row["jobs"] for row in made):
        lines.append(f"{jobs} jobs apply changed settings of search to existing objects")
    return print_result(options, {"types": made}, "\n".join(lines))


def run_list_types(options: argparse.Namespace, settings: Settings) -> int:
    """`palimpsest types list`."""
    from app.objects.types.installation import list_types

    found = run_as_owner(settings, list_types)
    lines = [f"{row['kind']} type {row['type']}  version {row['version']}" for row in found]
    return print_result(options, {"types": found}, "\n".join(lines))
