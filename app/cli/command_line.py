"""Declaration of commands, their access to the database, and their output."""

import argparse
import json
import sys
from collections.abc import Callable
from typing import Any

from app.config import Settings
from app.errors import BadRequest

Handler = Callable[[argparse.Namespace, Settings], int]

EPILOG = "Without DATABASE_URL an embedded PostgreSQL is used, with its data in .palimpsest/ or PALIMPSEST_HOME."


def say(line: str) -> None:
    """Print progress to standard error; standard output is for results."""
    print(f"==> {line}", file=sys.stderr, flush=True)


def add_group(commands: Any, name: str, text: str) -> Any:
    """Add a group of commands and return its subparsers."""
    parser = commands.add_parser(name, help=text, description=f"{text[0].upper()}{text[1:]}.")
    return parser.add_subparsers(title="commands", metavar="COMMAND", required=True)


def add_command(commands: Any, name: str, run: Handler, text: str) -> argparse.ArgumentParser:
    """Add a command with the function that runs it."""
    parser: argparse.ArgumentParser = commands.add_parser(
        name, help=text, description=f"{text[0].upper()}{text[1:]}.", epilog=EPILOG
    )
    parser.set_defaults(run=run)
    return parser


def add_json_option(parser: argparse.ArgumentParser) -> None:
    """Add the option that prints the result as JSON."""
    parser.add_argument("--json", action="store_true", help="print JSON")


def print_result(options: argparse.Namespace, data: Any, text: str) -> int:
    """Print the result as JSON or as text, and return exit code 0."""
    import msgspec

    print(json.dumps(msgspec.to_builtins(data), indent=2) if options.json else text)
    return 0


def convert_options(body: dict[str, Any], kind: Any, *, option: str | None = None) -> Any:
    """Return options as a Struct, or raise BadRequest that names the field or option."""
    import msgspec

    try:
        return msgspec.convert(body, kind)
    except msgspec.ValidationError as problem:
        raise BadRequest(f"{option}: {problem}" if option else str(problem)) from problem


def run_on_database(settings: Settings, work: Callable[[Any], Any]) -> Any:
    """Run work on the database as the service, after migrating an embedded one."""
    from app.cli.administration import with_database
    from app.cli.installation import database_of, migrate

    with database_of(settings, say=say) as ready:
        if settings.embedded:
            migrate(ready, say=lambda _: None)
        return with_database(ready, work)


def run_as_owner(settings: Settings, work: Callable[[Any], Any]) -> Any:
    """Run work on the database as its owner."""
    from app.cli import administration
    from app.cli.installation import database_of

    with database_of(settings, say=say) as ready:
        return administration.as_owner(ready, work)
