"""Commands about what all tenants share, the models of embeddings, and objects."""

import argparse
from pathlib import Path
from typing import Any

from app.cli.parsing import administer, as_owner, command, convert, group, say, show, takes_json
from app.config import Settings
from app.errors import BadRequest

# What an integer of PostgreSQL holds.
MAX_MODEL_VERSION = 2**31 - 1


def add_content_commands(commands: Any) -> None:
    """`palimpsest predicates`, `types`, `embeddings` and `objects`."""
    predicates = group(commands, "predicates", "the vocabulary that all tenants share (as the owner of the database)")
    change = command(predicates, "set", run_set_predicate, "make a predicate for all tenants, or change it")
    change.add_argument("name", metavar="NAME")
    change.add_argument("--cardinality", choices=["single", "multi"], help="one value at a time, or several (multi)")
    change.add_argument("--status", choices=["pending", "active", "deprecated"], help="default: active")
    change.add_argument("--alias", action="append", default=[], metavar="A", help="another name; may be repeated")
    takes_json(change)
    takes_json(command(predicates, "list", run_list_predicates, "list what all tenants share"))
    types = group(commands, "types", "types of objects and relationships that all tenants share (as the owner)")
    load = command(types, "load", run_load_types, "register the types of a JSON file for all tenants")
    load.add_argument("file", metavar="FILE", type=Path, help='{"objects": [...], "relationships": [...]}')
    takes_json(load)
    takes_json(command(types, "list", run_list_types, "list what all tenants share"))
    _embedding_commands(group(commands, "embeddings", "the models vectors are made with (as the owner)"))
    _object_commands(group(commands, "objects", "objects of what is known already"))


def run_set_predicate(options: argparse.Namespace, settings: Settings) -> int:
    """`palimpsest predicates set`."""
    from app.facts.predicates.global_predicates import GlobalPredicate, set_global_predicate

    fields = {"name": options.name, "cardinality": options.cardinality, "status": options.status}
    data = convert({**fields, "aliases": options.alias}, GlobalPredicate)
    made = as_owner(settings, lambda owner: set_global_predicate(owner, data))
    return show(options, made, f"predicate {made['name']} is set for all tenants")


def run_list_predicates(options: argparse.Namespace, settings: Settings) -> int:
    """`palimpsest predicates list`."""
    from app.facts.predicates.global_predicates import list_global_predicates

    found = as_owner(settings, list_global_predicates)
    lines = [f"{row['name']}  {row['cardinality']}  {row['status']}  used by {row['tenants']}" for row in found]
    return show(options, {"predicates": found}, "\n".join(lines))


def run_load_types(options: argparse.Namespace, settings: Settings) -> int:
    """`palimpsest types load`."""
    from app.objects.types.installation import load_types, read_file

    try:
        given = options.file.read_bytes()
    except OSError as problem:
        raise BadRequest(f"FILE: {options.file} cannot be read: {problem.strerror}.") from problem
    data = read_file(given)
    made = as_owner(settings, lambda owner: load_types(owner, data))
    lines = [
        f"{row['kind']} type {row['type']}  version {row['version']}{'' if row['created'] else ' (as it was)'}"
        for row in made
    ]
    return show(options, {"types": made}, "\n".join(lines))


def run_list_types(options: argparse.Namespace, settings: Settings) -> int:
    """`palimpsest types list`."""
    from app.objects.types.installation import list_types

    found = as_owner(settings, list_types)
    lines = [f"{row['kind']} type {row['type']}  version {row['version']}" for row in found]
    return show(options, {"types": found}, "\n".join(lines))


def _embedding_commands(embeddings: Any) -> None:
    takes_json(command(embeddings, "status", run_embedding_status, "list models and how much each of them covers"))
    add = command(embeddings, "add", run_add_model, "register a model; the worker fills it in the background")
    add.add_argument("model", metavar="PROVIDER/MODEL[@DIM]", help="such as ollama/nomic-embed-text")
    activate = command(embeddings, "activate", run_activate_model, "let recall search by a model, or by none")
    activate.add_argument("--force", action="store_true", help="also when it covers less than 95%% of what there is")
    drop = command(embeddings, "drop", run_drop_model, "forget a model that is not active, with its vectors")
    for change in (activate, drop):
        change.add_argument("model", metavar="MODEL", help="PROVIDER/MODEL, or its number as status shows it")
        change.add_argument("--model-version", type=int, metavar="N", help="which one, where there are several")
        takes_json(change)
    add.add_argument("--model-version", type=int, default=1, metavar="N", help="of the same model, another one (1)")
    takes_json(add)


def run_embedding_status(options: argparse.Namespace, settings: Settings) -> int:
    """`palimpsest embeddings status`."""
    from app.embeddings.installation import model_status

    found = as_owner(settings, model_status)
    lines = [
        f"{row['model_id']}  {row['model']}  version {row['version']}  {row['dimensions']} dimensions"
        f"{'  ACTIVE' if row['active'] else ''}\n   {row['coverage']:.1%} of {row['units']} units, "
        f"{row['pending']} pending, {row['failed']} refused"
        + ("" if row["oldest_pending_seconds"] is None else f", oldest {row['oldest_pending_seconds']} s")
        for row in found
    ]
    return show(options, {"models": found}, "\n".join(lines) or "no models: recall works without vectors")


def run_add_model(options: argparse.Namespace, settings: Settings) -> int:
    """`palimpsest embeddings add`."""
    from app.embeddings.installation import add_model

    if not 1 <= options.model_version <= MAX_MODEL_VERSION:
        raise BadRequest(f"--model-version: from 1 to {MAX_MODEL_VERSION}.")
    named = {"name": options.model, "version": options.model_version}
    made = as_owner(settings, lambda owner: add_model(owner, settings, **named, say=say))
    return show(options, made, f"{made['model']} is model {made['model_id']}; the worker fills it (embeddings status)")


def run_activate_model(options: argparse.Namespace, settings: Settings) -> int:
    """`palimpsest embeddings activate`."""
    from app.embeddings.installation import activate_model

    named = {"name": options.model, "version": options.model_version, "force": options.force}
    made = as_owner(settings, lambda owner: activate_model(owner, **named))
    return show(options, made, f"recall searches by {made['model']}")


def run_drop_model(options: argparse.Namespace, settings: Settings) -> int:
    """`palimpsest embeddings drop`."""
    from app.embeddings.installation import drop_model

    named = {"name": options.model, "version": options.model_version}
    made = as_owner(settings, lambda owner: drop_model(owner, **named, say=say))
    return show(options, made, f"{made['model']} is dropped")


def _object_commands(objects: Any) -> None:
    text = "make an object for each entity without one, and relationships of the facts between them; safe to repeat"
    fill = command(objects, "backfill", run_backfill, text)
    fill.add_argument("--tenant", required=True, metavar="T", help="the tenant")
    fill.add_argument("--project", required=True, metavar="P", help="its project")
    fill.add_argument("--dry-run", action="store_true", help="only say how much there is to do")
    takes_json(fill)


def run_backfill(options: argparse.Namespace, settings: Settings) -> int:
    """`palimpsest objects backfill`."""
    import msgspec

    from app.objects.entity_links.backfill import backfill, describe

    place = {"tenant_id": options.tenant, "project_id": options.project, "dry_run": options.dry_run}
    done = administer(settings, lambda db: backfill(db, **place, report=say))
    return show(options, msgspec.to_builtins(done), describe(done))
