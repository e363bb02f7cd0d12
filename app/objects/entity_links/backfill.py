"""Objects made of what there is: one for each entity that has none, and relationships of the facts between them.

Some at a time, each in a transaction of its own: what was interrupted goes on where it stopped, and a second run finds
nothing to do.
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

AT_ONCE = 500
FIRST = "00000000-0000-0000-0000-000000000000"
AGENT = "backfill"


class Backfilled(msgspec.Struct, kw_only=True):
    """What a run made, or would make."""

    objects: int = 0
    bound: int = 0
    relationships: int = 0
    dry_run: bool = False

    @property
    def anything(self) -> bool:
        return bool(self.objects or self.bound or self.relationships)


def describe(done: Backfilled) -> str:
    """The same in one line."""
    if not done.anything:
        return "nothing to do: every entity has its object, and every fact between them its relationship"
    would = "would make" if done.dry_run else "made"
    return (
        f"{would} {done.objects} objects and {done.relationships} relationships, "
        f"{'bind' if done.dry_run else 'bound'} {done.bound} entities to objects that were there"
    )


async def backfill(
    db: Database,
    *,
    tenant_id: str,
    project_id: str,
    dry_run: bool = False,
    at_once: int = AT_ONCE,
    say: Callable[[str], None] = lambda _: None,
) -> Backfilled:
    """Makes an object for each entity of a project without one, and a relationship for each fact that stands between
    two of them and that everybody there may read."""
    who = Scope(tenant_id=tenant_id, project_id=project_id, agent_id=AGENT)
    (row,) = await db.query(who, queries.MAIN_BRANCH, {"project": project_id})
    if row["branch_id"] is None:
        raise NotFound("There is no such project.", code="project_not_found")
    place = {"tenant": tenant_id, "project": project_id, "now": datetime.now(UTC)}
    if dry_run:
        return await _count(db, who, {**place, "branch": str(row["branch_id"])})
    done = Backfilled()
    await _objects(db, who, place, done, at_once, say)
    await _relationships(db, who, place, done, at_once, say)
    if done.anything:
        async with db.tenant(who) as session:
            counts = {"objects": done.objects, "bound": done.bound, "relationships": done.relationships}
            await audit.record(session, "admin_action", key_id=AGENT, action="objects_backfill", **counts)
    return done


async def _count(db: Database, who: Scope, place: dict[str, Any]) -> Backfilled:
    (loose,) = await db.query(who, queries.COUNT_LOOSE, place)
    (facts,) = await db.query(who, queries.COUNT_RELATIONSHIPS, place)
    return Backfilled(objects=loose["made"], bound=loose["bound"], relationships=facts["made"], dry_run=True)


async def _objects(
    db: Database, who: Scope, place: dict[str, Any], done: Backfilled, at_once: int, say: Callable[[str], None]
) -> None:
    after = FIRST
    while True:
        found = await db.query(who, queries.LOOSE_ENTITIES, {**place, "after": after, "limit": at_once})
        if not found:
            return
        after = str(found[-1]["entity_id"])
        async with db.tenant(who) as session:
            row = await session.row(queries.BACKFILL_OBJECTS, {"rows": _json([_object(entity) for entity in found])})
        assert row is not None
        done.objects += row["made"]
        done.bound += row["bound"]
        say(f"{done.objects} objects made, {done.bound} bound to what was there")


async def _relationships(
    db: Database, who: Scope, place: dict[str, Any], done: Backfilled, at_once: int, say: Callable[[str], None]
) -> None:
    after, said = FIRST, hash_content(properties={}, status=None, key=None, labels=[]).hex()
    while True:
        found = await db.query(who, queries.STANDING_FACTS, {**place, "after": after, "limit": at_once})
        if not found:
            return
        after = str(found[-1]["fact_id"])
        rows = [{"fact_id": str(fact["fact_id"]), "relationship_id": new_id(), "content_hash": said} for fact in found]
        async with db.tenant(who) as session:
            row = await session.row(queries.BACKFILL_RELATIONSHIPS, {"rows": _json(rows)})
        assert row is not None
        if row["made"]:
            done.relationships += row["made"]
            say(f"{done.relationships} relationships made")


def _object(entity: Row) -> dict[str, Any]:
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
