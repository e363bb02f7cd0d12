"""Write the generated parts of the documentation: `make docs`."""

import argparse
import textwrap
from collections.abc import Iterator
from dataclasses import fields

from app.cli.main import build_parser
from app.config import Settings
from app.docs.rendering import FOLDER

CONFIGURATION = """# Configuration

All settings are environment variables, read once at start. An unusable value is named and refused.

```sh
PORT=8001 WEB_CONCURRENCY=4 LOG_LEVEL=warning palimpsest serve --no-worker
```

Settings of a project, such as its language or what models may do with its notes, are set over the API: see
[Extraction](extraction.md#settings).

{table}
"""

COMMAND_LINE = """# Command line

`palimpsest COMMAND --help` shows the same. `--json` prints data as JSON; progress goes to standard error.

Exit codes: 0 done, 1 failed, 2 the arguments or settings cannot be used.

{commands}
"""


def shown(value: object) -> str:
    """Return a default as the table writes it."""
    if value is None:
        return ""
    if isinstance(value, bool):
        return "on" if value else "off"
    if isinstance(value, frozenset):
        return ",".join(sorted(value))
    if isinstance(value, float) and value.is_integer():
        return str(int(value))
    return str(value)


def configuration() -> str:
    """Return the page of settings."""
    lines = ["| variable | default | meaning |", "|---|---|---|"]
    for setting in fields(Settings):
        about = setting.metadata
        lines.append(f"| `{about['variable']}` | {shown(setting.default)} | {about['help']} |")
    return CONFIGURATION.format(table="\n".join(lines))


def command_line() -> str:
    """Return the page of commands."""
    parts = [part for name, parser in commands(build_parser()) for part in describe(name, parser)]
    return COMMAND_LINE.format(commands="\n".join(parts).rstrip())


def commands(parser: argparse.ArgumentParser) -> Iterator[tuple[str, argparse.ArgumentParser]]:
    """Yield each command that runs something, with its whole name."""
    groups = [action for action in parser._actions if isinstance(action, argparse._SubParsersAction)]
    if not groups:
        yield parser.prog, parser
    for group in groups:
        for child in group.choices.values():
            yield from commands(child)


def describe(name: str, parser: argparse.ArgumentParser) -> Iterator[str]:
    """Yield the lines about one command: what it does and its arguments."""
    usage = [name]
    rows: list[str] = []
    for action in parser._actions:
        if isinstance(action, argparse._HelpAction):
            continue
        value = action.metavar or "|".join(map(str, action.choices or ())) or action.dest.upper()
        takes = f" {value}" if action.nargs != 0 else ""
        label = f"{action.option_strings[0]}{takes}" if action.option_strings else str(value)
        usage.append(label if action.required else f"[{label}]")
        rows.append(f"| `{_cell(label)}` | {_cell(_help(action))} |")
    yield f"## {name}\n"
    yield f"{parser.description}\n"
    # An option stays on one line with its value.
    whole = " ".join(part.replace(" ", "\0") for part in usage)
    lines = textwrap.wrap(whole, 92, subsequent_indent="    ", break_long_words=False, break_on_hyphens=False)
    yield "\n".join(["```text", *lines, "```\n"]).replace("\0", " ")
    if rows:
        yield "\n".join(["| argument | meaning |", "|---|---|", *rows]) + "\n"


def _cell(text: str) -> str:
    return text.replace("|", "\\|")


def _help(action: argparse.Action) -> str:
    text = (action.help or "").replace("%%", "%")
    default = action.default
    if action.option_strings and action.nargs != 0 and default not in (None, "", []) and "default" not in text:
        return f"{text} (default: {default})".strip()
    return text


PAGES = {"configuration": configuration, "command-line": command_line}

if __name__ == "__main__":
    for name, build in PAGES.items():
        (FOLDER / f"{name}.md").write_text(build(), encoding="utf-8")
        print(f"wrote app/docs/{name}.md")
