"""`palimpsest embeddings`: the models that make vectors."""

import argparse
from typing import Any

from app.cli.command_line import (
    add_command,
    add_group,
    add_json_option,
    print_result,
    run_as_owner,
    say,
)
from app.config import Settings
from app.errors import BadRequest

# The largest integer of PostgreSQL.
MAX_MODEL_VERSION = 2**31 - 1


def add_embedding_commands(commands: Any) -> None:
    """Add the commands of embedding models."""
    embeddings = add_group(commands, "embeddings", "embedding models (as the owner of the database)")
    add_json_option(add_command(embeddings, "status", run_embedding_status, "list models and their coverage"))
    add = add_command(
        embeddings, "add", run_add_model, "register a model; the worker embeds everything with it in the background"
    )
    add.add_argument("model", metavar="PROVIDER/MODEL[@DIM]", help="such as ollama/nomic-embed-text")
    activate = add_command(embeddings, "activate", run_activate_model, "use a model for recall, or none")
    activate.add_argument("--force", action="store_true", help="even when it covers less than 95%% of all units")
    drop = add_command(embeddings, "drop", run_drop_model, "remove an inactive model and its vectors")
    for change in (activate, drop):
        change.add_argument("model", metavar="MODEL", help="PROVIDER/MODEL, or its number as status shows it")
        change.add_argument("--model-version", type=int, metavar="N", help="which version, if there are several")
        add_json_option(change)
    add.add_argument(
        "--model-version", type=int, default=1, metavar="N", help="a new version of the same model (default: 1)"
    )
    add_json_option(add)


def run_embedding_status(options: argparse.Namespace, settings: Settings) -> int:
    """`palimpsest embeddings status`."""
    from app.embeddings.administration import model_status

    found = run_as_owner(settings, lambda owner: model_status(owner, least=settings.embed_min_confidence))
    lines = [
        f"{row['model_id']}  {row['model']}  version {row['version']}  {row['dimensions']} dimensions"
        f"{'  ACTIVE' if row['active'] else ''}\n   {row['coverage']:.1%} of {row['units']} units, "
        f"{row['pending']} pending, {row['failed']} refused"
        + ("" if row["oldest_pending_seconds"] is None else f", oldest {row['oldest_pending_seconds']} s")
        for row in found
    ]
    return print_result(options, {"models": found}, "\n".join(lines) or "no models: recall works without vectors")


def run_add_model(options: argparse.Namespace, settings: Settings) -> int:
    """`palimpsest embeddings add`."""
    from app.embeddings.administration import add_model

    if not 1 <= options.model_version <= MAX_MODEL_VERSION:
        raise BadRequest(f"--model-version: from 1 to {MAX_MODEL_VERSION}.")
    named = {"name": options.model, "version": options.model_version}
    made = run_as_owner(settings, lambda owner: add_model(owner, settings, **named, say=say))
    return print_result(options, made, f"{made['model']} is model {made['model_id']}; see embeddings status")


def run_activate_model(options: argparse.Namespace, settings: Settings) -> int:
    """`palimpsest embeddings activate`."""
    from app.embeddings.administration import activate_model

    named = {"name": options.model, "version": options.model_version, "force": options.force}
    least = settings.embed_min_confidence
    made = run_as_owner(settings, lambda owner: activate_model(owner, **named, least=least))
    return print_result(options, made, f"recall uses {made['model']}")


def run_drop_model(options: argparse.Namespace, settings: Settings) -> int:
    """`palimpsest embeddings drop`."""
    from app.embeddings.administration import drop_model

    named = {"name": options.model, "version": options.model_version}
    made = run_as_owner(settings, lambda owner: drop_model(owner, **named, say=say))
    return print_result(options, made, f"{made['model']} is removed")
