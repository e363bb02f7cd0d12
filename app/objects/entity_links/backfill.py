"""Backfill: create an object for each entity without one, and relationships from the facts between entities.

Each batch has its own transaction: an interrupted run continues where it stopped, and a second run has nothing to do.
"""

from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import msgspec

from app.access import new_id
from app.audit import events as audit
from app.db.database import Database, Row
from app.db.scope import Scope
from app.errors import NotFound
from app.objects.diff import hash_content
from app.objects.entity_links import queries

BATCH_SIZE = 500
FIRST_ID = "00000000-0000-0000-0000-000000000000"
AGENT = "backfill"


class BackfillResult(msgspec.Struct, kw_only=True):
    """What a run created, or would create."""

    objects: int = 0
    bound: int = 0
    relationships: int = 0
    dry_run: bool = False

    @property
    def anything(self) -> bool:
        return bool(self.objects or self.bound or self.relationships)


def describe(done: BackfillResult) -> str:
    """Return the result as one line of text."""
    if not done.anything:
        return "nothing to do: every entity has an object, and every fact between them a relationship"
    verb = "would create" if done.dry_run else "created"
    return (
        f"{verb} {done.objects} objects and {done.relationships} relationships, "
        f"{'bind' if done.dry_run else 'bound'} {done.bound} entities to existing objects"
    )


async def backfill(
    db: Database,
    *,
    tenant_id: str,
    project_id: str,
    dry_run: bool = False,
    batch_size: int = BATCH_SIZE,
    report: Callable[[str], None] = lambda _: None,
) -> BackfillResult:
    """Create an object for each entity of a project without one, and a relationship for each current shared fact."""
    who = Scope(tenant_id=tenant_id, project_id=project_id, agent_id=AGENT)
    (row,) = await db.query(who, queries.MAIN_BRANCH, {"project": project_id})
    if row["branch_id"] is None:
        raise NotFound("There is no such project.", code="project_not_found")
    place = {"tenant": tenant_id, "project": project_id, "now": datetime.now(UTC)}
    if dry_run:
        return await _count(db, who, {**place, "branch": str(row["branch_id"])})
    done = BackfillResult()
    await _create_objects(db, who, place, done, batch_size, report)
    await _create_relationships(db, who, place, done, batch_size, report)
    if done.anything:
        async with db.tenant(who) as session:
            counts = {"objects": done.objects, "bound": done.bound, "relationships": done.relationships}
            await audit.record(session, "admin_action", key_id=AGENT, action="objects_backfill", **counts)
    return done


async def _count(db: Database, who: Scope, place: dict[str, Any]) -> BackfillResult:
    (unbound,) = await db.query(who, queries.COUNT_UNBOUND, place)
    (facts,) = await db.query(who, queries.COUNT_RELATIONSHIPS, place)
    return BackfillResult(objects=unbound["made"], bound=unbound["bound"], relationships=facts["made"], dry_run=True)


async def _create_objects(
    db: Database,
    who: Scope,
    place: dict[str, Any],
    done: BackfillResult,
    batch_size: int,
    report: Callable[[str], None],
) -> None:
    after = FIRST_ID
    while True:
        found = await db.query(who, queries.UNBOUND_ENTITIES, {**place, "after": after, "limit": batch_size})
        if not found:
            return
        after = str(found[-1]["entity_id"])
        async with db.tenant(who) as session:
            row = await session.row(
                queries.BACKFILL_OBJECTS, {"rows": _json([_object_row(entity) for entity in found])}
            )
        assert row is not None
        done.objects += row["made"]
        done.bound += row["bound"]
        report(f"{done.objects} objects created, {done.bound} entities bound to existing objects")


async def _create_relationships(
    db: Database,
    who: Scope,
    place: dict[str, Any],
    done: BackfillResult,
    batch_size: int,
    report: Callable[[str], None],
) -> None:
    after, content_hash = FIRST_ID, hash_content(properties={}, status=None, key=None, labels=[]).hex()
    while True:
        found = await db.query(who, queries.CURRENT_FACTS, {**place, "after": after, "limit": batch_size})
        if not found:
            return
        after = str(found[-1]["fact_id"])
        rows = [
            {"fact_id": str(fact["fact_id"]), "relationship_id": new_id(), "content_hash": content_hash}
            for fact in found
        ]
        async with db.tenant(who) as session:
            row = await session.row(queries.BACKFILL_RELATIONSHIPS, {"rows": _json(rows)})
        assert row is not None
        if row["made"]:
            done.relationships += row["made"]
            report(f"{done.relationships} relationships created")


def _object_row(entity: Row) -> dict[str, Any]:
    properties = {"aliases": list(entity["aliases"])}
    return {
        "entity_id": str(entity["entity_id"]),
        "object_id": new_id(),
        "type": entity["type"],
        "key": entity["canonical_norm"],
        "title": entity["canonical"],
        "properties": properties,
        "embed_text": ", ".join([entity["canonical"], *entity["aliases"]]),
        "content_hash": hash_content(properties=properties, status=None, key=entity["canonical_norm"], labels=[]).hex(),
    }


def _json(rows: list[dict[str, Any]]) -> str:
    return msgspec.json.encode(rows).decode()
