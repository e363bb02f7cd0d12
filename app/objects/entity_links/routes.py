"""HTTP of links between entities and objects."""

from typing import Any
from uuid import UUID

from litestar import Router, delete, put
from litestar.params import FromPath, JSONBody

from app.facts.schemas import EntityWritten
from app.objects.entity_links import binding
from app.objects.entity_links.schemas import EntityBind
from app.web.auth import Access
from app.web.requests import Db, Who

WRITE = Access(work="write", scopes=("graph:write",))


@put(
    "/entities/{entity_id:uuid}/object",
    opt={"access": WRITE},
    summary="Bind an entity to an object",
    tags=["entities"],
)
async def bind_entity(db: Db, who: Who, entity_id: FromPath[UUID], data: JSONBody[EntityBind]) -> EntityWritten:
    """The object belongs to the project or to every project; `object_id` is its canonical id or that of one of its
    versions. An earlier binding is replaced. Hiding or erasing the entity also hides or erases the object. 404 is
    `entity_not_found` or `object_not_found`."""
    return await binding.bind_entity(db, who, entity_id=entity_id, data=data)


@delete(
    "/entities/{entity_id:uuid}/object",
    opt={"access": WRITE},
    summary="Unbind an entity from its object",
    tags=["entities"],
)
async def unbind_entity(db: Db, who: Who, entity_id: FromPath[UUID]) -> None:
    """The object does not change. Unbinding an entity without a binding succeeds."""
    await binding.unbind_entity(db, who, entity_id=entity_id)


handlers: list[Any] = [bind_entity, unbind_entity]
router = Router(path="/", route_handlers=handlers)
