"""The vocabulary of the whole installation: its operator decides, tenants use it and cannot change it."""

from datetime import UTC, datetime
from typing import Any, Literal

import msgspec

from app.access import new_id
from app.db.database import Database
from app.errors import Conflict
from app.facts.names import predicate_name
from app.facts.vocabulary import queries

CHANGES = {("pending", "active"), ("pending", "deprecated"), ("active", "deprecated")}


class GlobalPredicate(msgspec.Struct, frozen=True, kw_only=True):
    """What the operator says of a predicate; what is None stays as it is."""

    name: str
    cardinality: Literal["single", "multi"] | None = None
    status: Literal["pending", "active", "deprecated"] | None = None
    aliases: list[str] = msgspec.field(default_factory=list)


async def list_global_predicates(owner: Database) -> list[dict[str, Any]]:
    """All of them, by name."""
    async with owner.system() as session:
        return await session.rows(queries.LIST_GLOBAL_PREDICATES)


async def set_global_predicate(owner: Database, data: GlobalPredicate) -> dict[str, Any]:
    """Makes a predicate of the installation, or changes its status and adds aliases, in every tenant's copy too.

    Its cardinality is for good, since tenants' facts were written by it.
    """
    name = predicate_name(data.name, "NAME")
    aliases = [predicate_name(alias, "--alias") for alias in data.aliases]
    now = datetime.now(UTC)
    async with owner.system() as session:
        found = await session.row(queries.FIND_GLOBAL_PREDICATE, {"norm": name.norm})
        if found is None:
            row = {
                "id": new_id(),
                "canonical": name.shown,
                "norm": name.norm,
                "cardinality": data.cardinality or "multi",
                "status": data.status or "active",
                "now": now,
            }
            await session.execute(queries.INSERT_GLOBAL_PREDICATE, row)
            found = {**row, "predicate_id": row["id"]}
        else:
            _check_change(data, found)
            change = {"id": str(found["predicate_id"]), "status": data.status or found["status"], "now": now}
            await session.execute(queries.CHANGE_GLOBAL_PREDICATE, change)
            await session.execute(queries.CHANGE_COPIES, change)
            if data.status == "active":
                await session.execute(queries.RESOLVE_CONFLICTS, {"id": change["id"], "now": now})
        for alias in aliases:
            named = await session.row(queries.FIND_GLOBAL_PREDICATE, {"norm": alias.norm})
            if named is not None:
                raise Conflict(f"--alias: {alias.shown} is itself a predicate's name.", code="predicate_alias_taken")
            taken = await session.row(
                queries.PUT_GLOBAL_ALIAS,
                {"id": str(found["predicate_id"]), "alias": alias.shown, "norm": alias.norm},
            )
            if taken is None or str(taken["predicate_id"]) != str(found["predicate_id"]):
                raise Conflict(f"--alias: {alias.shown} already names another predicate.", code="predicate_alias_taken")
    return {"predicate_id": str(found["predicate_id"]), "name": name.shown}


def _check_change(data: GlobalPredicate, found: dict[str, Any]) -> None:
    if data.cardinality not in (None, found["cardinality"]):
        raise Conflict(
            f"--cardinality: it is {found['cardinality']} for good; deprecate it and make another one.",
            code="predicate_exists",
        )
    if data.status in (None, found["status"]):
        return
    if (found["status"], data.status) not in CHANGES:
        raise Conflict(f"--status: from {found['status']} it cannot become {data.status}.", code="predicate_transition")
    if data.status == "active" and found["cardinality"] == "single" and found["copies"]:
        raise Conflict(
            "--status: tenants have used it while it was pending, and several values may be open; make another one.",
            code="predicate_values_open",
        )
