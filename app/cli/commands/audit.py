"""`palimpsest audit`."""

import argparse
import re
from typing import Any

from app.cli.command_line import add_command, add_group, add_json_option, print_result, run_on_database
from app.config import Settings
from app.errors import BadRequest


def add_audit_commands(commands: Any) -> None:
    """Add the commands of the audit log."""
    audit = add_group(commands, "audit", "the audit log of each tenant")
    verify = add_command(audit, "verify", run_verify_audit, "check that no line was altered, removed or inserted")
    verify.add_argument("--tenant", metavar="T", help="only this tenant (default: all)")
    verify.add_argument(
        "--head", metavar="N:HASH", help="a head printed earlier that the chain must still contain; needs --tenant"
    )
    add_json_option(verify)


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
    verdicts = run_on_database(settings, lambda db: admin.verify_audit(db, options.tenant, head))
    lines = [
        f"{verdict.tenant_id}: {'BROKEN' if verdict.problems else 'intact'}, {verdict.sequence} lines, "
        f"{verdict.unsealed} to be sealed; head {verdict.sequence}:{verdict.hash}"
        + "".join(f"\n  - {problem}" for problem in verdict.problems)
        for verdict in verdicts
    ]
    intact = not any(verdict.problems for verdict in verdicts)
    print_result(options, {"intact": intact, "tenants": msgspec.to_builtins(verdicts)}, "\n".join(lines))
    return 0 if intact else 1
