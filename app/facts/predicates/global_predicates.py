"""Use cases of the predicates of the whole installation: its operator changes them, tenants use them."""

from datetime import UTC, datetime
from typing import Any, Literal

import msgspec

from app.access import new_id
from app.db.database import Database, Row, Session
from app.errors import Conflict
from app.facts.names import Name, predicate_name
from app.facts.predicates import queries

TRANSITIONS = {("pending", "active"), ("pending", "deprecated"), ("active", "deprecated")}


class GlobalPredicate(msgspec.Struct, frozen=True, kw_only=True):
    """What the operator sets of a predicate; None leaves a field as it is."""

    name: str
    cardinality: Literal["single", "multi"] | None = None
    status: Literal["pending", "active", "deprecated"] | None = None
    aliases: list[str] = msgspec.field(default_factory=list)


async def list_global_predicates(owner: Database) -> list[dict[str, Any]]:
    """Return all predicates of the installation by name."""
    async with owner.system() as session:
        return await session.rows(queries.LIST_GLOBAL_PREDICATES)


async def set_global_predicate(owner: Database, data: GlobalPredicate) -> dict[str, Any]:
    """Create a predicate of the installation, or change its status and add aliases, in every tenant's copy too.

    Its cardinality never changes, since tenants have written facts by it.
    """
    name = predicate_name(data.name, "NAME")
    aliases = [predicate_name(alias, "--alias") for alias in data.aliases]
    now = datetime.now(UTC)
    async with owner.system() as session:
        found = await session.row(queries.FIND_GLOBAL_PREDICATE, {"norm": name.norm})
        if found is None:
            predicate_id = await _insert(session, name, data, now)
        else:
            predicate_id = str(found["predicate_id"])
            _check_change(data, found)
            await _change(session, found, data, now)
        for alias in aliases:
            await _add_alias(session, predicate_id, alias)
    return {"predicate_id": predicate_id, "name": name.shown}


async def _insert(session: Session, name: Name, data: GlobalPredicate, now: datetime) -> str:
    row = {
        "id": new_id(),
        "canonical": name.shown,
        "norm": name.norm,
        "cardinality": data.cardinality or "multi",
        "status": data.status or "active",
        "now": now,
    }
    await session.execute(queries.INSERT_GLOBAL_PREDICATE, row)
    return str(row["id"])


async def _change(session: Session, found: Row, data: GlobalPredicate, now: datetime) -> None:
    change = {"id": str(found["predicate_id"]), "status": data.status or found["status"], "now": now}
    await session.execute(queries.CHANGE_GLOBAL_PREDICATE, change)
    await session.execute(queries.CHANGE_COPIES, change)
    if data.status == "active":
        await session.execute(queries.RESOLVE_CONFLICTS, {"id": change["id"], "now": now})


async def _add_alias(session: Session, predicate_id: str, alias: Name) -> None:
    named = await session.row(queries.FIND_GLOBAL_PREDICATE, {"norm": alias.norm})
    if named is not None:
        raise Conflict(f"--alias: {alias.shown} is itself a predicate's name.", code="predicate_alias_taken")
    taken = await session.row(queries.PUT_GLOBAL_ALIAS, {"id": predicate_id, "alias": alias.shown, "norm": alias.norm})
    if taken is None or str(taken["predicate_id"]) != predicate_id:
        raise Conflict(f"--alias: {alias.shown} already names another predicate.", code="predicate_alias_taken")


def _check_change(data: GlobalPredicate, found: dict[str, Any]) -> None:
    if data.cardinality not in (None, found["cardinality"]):
        raise Conflict(
            f"--cardinality: it is {found['cardinality']} and cannot change; deprecate it and create another one.",
            code="predicate_exists",
        )
    if data.status in (None, found["status"]):
        return
    if (found["status"], data.status) not in TRANSITIONS:
        raise Conflict(f"--status: cannot change from {found['status']} to {data.status}.", code="predicate_transition")
    if data.status == "active" and found["cardinality"] == "single" and found["copies"]:
        raise Conflict(
            "--status: tenants used it while it was pending, and several values may be open; create another predicate.",
            code="predicate_values_open",
        )
