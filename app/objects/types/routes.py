"""HTTP of the registries of types."""

from typing import Annotated, Any, cast

from litestar import Response, Router, get, patch, post
from litestar.params import FromPath, JSONBody, QueryParameter

from app.objects.types import service
from app.objects.types.schemas import (
    ObjectTypeCreate,
    ObjectTypeCreated,
    ObjectTypeList,
    ObjectTypeRead,
    RelationshipTypeCreate,
    RelationshipTypeCreated,
    RelationshipTypeList,
    RelationshipTypeRead,
    Status,
    TypePatch,
)
from app.paging import Page
from app.web.auth import Access
from app.web.reference import also
from app.web.requests import Cursor, Cursors, Db, Idempotent, Limit, Who, respond

READ = Access(work="read", scopes=("graph:read",), project=False)
WRITE = Access(work="write", scopes=("graph:write",), project=False)
TypeFilter = Annotated[str | None, QueryParameter(name="type", max_length=128, description="Only of this name.")]
StatusFilter = Annotated[Status | None, QueryParameter(description="Only versions that count, or that do not.")]
Version = Annotated[int | None, QueryParameter(ge=1, le=2**31 - 1, description="Another than the one that counts.")]


@post(
    "/graph/schemas/objects",
    opt={"access": WRITE},
    summary="Register a type of objects",
    tags=["types"],
    responses=also(200, ObjectTypeCreated, "This very version was there already."),
)
async def register_object_type(
    db: Db, who: Who, idempotent: Idempotent, data: JSONBody[ObjectTypeCreate]
) -> Response[ObjectTypeCreated]:
    """A new type, or the next version of one: it counts from now on for every project of the tenant, and objects that
    are there are checked by it when they next change. No type has to be registered: one that is not takes any
    properties."""
    return respond(await service.register_type(db, who, "object", data=data, once=idempotent))


@post(
    "/graph/schemas/relationships",
    opt={"access": WRITE},
    summary="Register a type of relationships",
    tags=["types"],
    responses=also(200, RelationshipTypeCreated, "This very version was there already."),
)
async def register_relationship_type(
    db: Db, who: Who, idempotent: Idempotent, data: JSONBody[RelationshipTypeCreate]
) -> Response[RelationshipTypeCreated]:
    """What it may link, how many there may be, and what properties it has. Multiplicity is kept by the database from
    now on; where objects have more relationships already the answer is 409 `multiplicity_exceeded`."""
    return respond(await service.register_type(db, who, "relationship", data=data, once=idempotent))


@get("/graph/schemas/objects", opt={"access": READ}, summary="List types of objects", tags=["types"])
async def list_object_types(
    db: Db,
    who: Who,
    cursors: Cursors,
    name: TypeFilter = None,
    status: StatusFilter = None,
    limit: Limit = 50,
    cursor: Cursor = None,
) -> ObjectTypeList:
    """By name; those of the installation with `scope` global."""
    page = Page(cursors, who, "object-types", limit=limit, cursor=cursor, type=name, status=status)
    return cast(ObjectTypeList, await service.list_types(db, who, "object", name=name, status=status, page=page))


@get("/graph/schemas/relationships", opt={"access": READ}, summary="List types of relationships", tags=["types"])
async def list_relationship_types(
    db: Db,
    who: Who,
    cursors: Cursors,
    name: TypeFilter = None,
    status: StatusFilter = None,
    limit: Limit = 50,
    cursor: Cursor = None,
) -> RelationshipTypeList:
    """By name; those of the installation with `scope` global."""
    page = Page(cursors, who, "relationship-types", limit=limit, cursor=cursor, type=name, status=status)
    found: Any = await service.list_types(db, who, "relationship", name=name, status=status, page=page)
    return cast(RelationshipTypeList, found)


@get("/graph/schemas/objects/{name:str}", opt={"access": READ}, summary="One type of objects", tags=["types"])
async def get_object_type(db: Db, who: Who, name: FromPath[str], version: Version = None) -> ObjectTypeRead:
    """The version that counts, unless another is named."""
    return cast(ObjectTypeRead, await service.get_type(db, who, "object", name=name, version=version))


@get(
    "/graph/schemas/relationships/{name:str}", opt={"access": READ}, summary="One type of relationships", tags=["types"]
)
async def get_relationship_type(db: Db, who: Who, name: FromPath[str], version: Version = None) -> RelationshipTypeRead:
    """The version that counts, unless another is named."""
    return cast(RelationshipTypeRead, await service.get_type(db, who, "relationship", name=name, version=version))


@patch(
    "/graph/schemas/objects/{name:str}",
    opt={"access": WRITE},
    summary="Choose a version of a type of objects",
    tags=["types"],
)
async def set_object_type_status(db: Db, who: Who, name: FromPath[str], data: JSONBody[TypePatch]) -> ObjectTypeRead:
    """`active` makes this the version that counts, `retired` leaves the type without one: then any properties do."""
    found = await service.set_type_status(db, who, "object", name=name, data=data)
    return cast(ObjectTypeRead, found)


@patch(
    "/graph/schemas/relationships/{name:str}",
    opt={"access": WRITE},
    summary="Choose a version of a type of relationships",
    tags=["types"],
)
async def set_relationship_type_status(
    db: Db, who: Who, name: FromPath[str], data: JSONBody[TypePatch]
) -> RelationshipTypeRead:
    """`active` makes this the version that counts, `retired` leaves the type without one."""
    found = await service.set_type_status(db, who, "relationship", name=name, data=data)
    return cast(RelationshipTypeRead, found)


handlers: list[Any] = [
    register_object_type, register_relationship_type, list_object_types, list_relationship_types, get_object_type,
    get_relationship_type, set_object_type_status, set_relationship_type_status,
]  # fmt: skip
router = Router(path="/", route_handlers=handlers)
