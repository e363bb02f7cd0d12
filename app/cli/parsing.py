"""What all commands share: how they are declared, how they reach the database and how they answer."""

import argparse
import json
import sys
from collections.abc import Callable
from typing import Any

from app.config import Settings
from app.errors import BadRequest

Handler = Callable[[argparse.Namespace, Settings], int]

EPILOG = "Without DATABASE_URL an embedded PostgreSQL is used; its data are in .palimpsest/ or PALIMPSEST_HOME."


def say(line: str) -> None:
    """Progress, for the person who waits; data go to standard output alone."""
    print(f"==> {line}", file=sys.stderr, flush=True)


def group(commands: Any, name: str, text: str) -> Any:
    """A group of commands."""
    parser = commands.add_parser(name, help=text, description=f"{text[0].upper()}{text[1:]}.")
    return parser.add_subparsers(title="commands", metavar="COMMAND", required=True)


def command(commands: Any, name: str, run: Handler, text: str) -> argparse.ArgumentParser:
    """One command, with what runs it."""
    parser: argparse.ArgumentParser = commands.add_parser(
        name, help=text, description=f"{text[0].upper()}{text[1:]}.", epilog=EPILOG
    )
    parser.set_defaults(run=run)
    return parser


def takes_json(parser: argparse.ArgumentParser) -> None:
    """The flag for those whose answer may be JSON."""
    parser.add_argument("--json", action="store_true", help="print JSON")


def show(options: argparse.Namespace, data: Any, line: str) -> int:
    """The answer, as JSON or as a line for people; the exit code."""
    print(json.dumps(data, indent=2) if options.json else line)
    return 0


def convert(body: dict[str, Any], kind: Any) -> Any:
    """What was typed as what is asked for, or the error that names its field."""
    import msgspec

    try:
        return msgspec.convert(body, kind)
    except msgspec.ValidationError as problem:
        raise BadRequest(str(problem)) from problem


def administer(settings: Settings, work: Callable[[Any], Any]) -> Any:
    """Does some work on the database as the service would."""
    from app.cli.administration import with_database
    from app.cli.installation import database_of, migrate

    with database_of(settings, say=say) as ready:
        if settings.embedded:
            migrate(ready, say=lambda _: None)
        return with_database(ready, work)


def as_owner(settings: Settings, work: Callable[[Any], Any]) -> Any:
    """Does some work on the database as its owner."""
    from app.cli import administration
    from app.cli.installation import database_of

    with database_of(settings, say=say) as ready:
        return administration.as_owner(ready, work)
