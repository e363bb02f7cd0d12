"""Use cases of binding: choose the object that represents an entity."""

from uuid import UUID

import msgspec

from app.access import Principal, require_project
from app.db.database import Database, Row, Session
from app.db.retries import retried
from app.errors import AppError, Forbidden
from app.facts.entities import service as entities
from app.facts.schemas import EntityWritten
from app.objects.entity_links import queries
from app.objects.entity_links.schemas import EntityBind
from app.objects.versions import not_found


async def bind_entity(db: Database, who: Principal, *, entity_id: UUID, data: EntityBind) -> EntityWritten:
    """Bind an entity to an object of its project or of every project, replacing an earlier binding."""

    async def write() -> EntityWritten:
        async with db.tenant(who) as session:
            bound = await _bind(session, who, entity_id, data.object_id)
            (row,) = await entities.read_entities(session, who, ids=[bound["entity_id"]])
            # The caller sees what they bound, even where a tombstone hides the object.
            entity = msgspec.structs.replace(entities.present_entity(row), object_canonical_id=bound["object_id"])
            return EntityWritten(entity=entity, created=False)

    return await retried(write)


async def unbind_entity(db: Database, who: Principal, *, entity_id: UUID) -> None:
    """Remove the binding of an entity, if it has one; the object does not change."""

    async def write() -> None:
        async with db.tenant(who) as session:
            await _bind(session, who, entity_id, None)

    await retried(write)


async def _bind(session: Session, who: Principal, entity_id: UUID, object_id: UUID | None) -> Row:
    require_project(who)
    row = await session.row(
        queries.BIND_ENTITY,
        {
            "entity": str(entity_id),
            "object": None if object_id is None else str(object_id),
            "admin": who.is_admin,
            "shared": who.is_tenant_admin,
            "key": who.key_id,
        },
    )
    assert row is not None
    if row["refused"] is not None:
        raise _refusal(row["refused"])
    return row


def _refusal(code: str) -> AppError:
    if code == "wrong_key_kind":
        return Forbidden(
            "object_id: only keys of kind admin that are bound to no project can bind objects of every project.",
            code=code,
        )
    if code == "entity_tombstoned":
        return entities.tombstoned("entity")
    return not_found("object") if code == "object_not_found" else entities.entity_not_found()
