"""HTTP of types."""

from typing import Annotated, Any, cast

from litestar import Response, Router, get, patch, post
from litestar.params import FromPath, JSONBody, QueryParameter

from app.objects.types import service
from app.objects.types.schemas import (
    ObjectTypeCreate,
    ObjectTypeList,
    ObjectTypeRead,
    ObjectTypeWritten,
    RelationshipTypeCreate,
    RelationshipTypeList,
    RelationshipTypeRead,
    RelationshipTypeWritten,
    Status,
    TypePatch,
)
from app.paging import Page
from app.web.auth import Access
from app.web.reference import also
from app.web.requests import Cursor, Cursors, Db, Idempotent, IncludeTotal, Limit, Who, respond

READ = Access(work="read", scopes=("graph:read",), project=False)
WRITE = Access(work="write", scopes=("graph:write",), project=False)
TypeFilter = Annotated[
    str | None, QueryParameter(name="type", max_length=128, description="Only the type of this name.")
]
StatusFilter = Annotated[Status | None, QueryParameter(description="Only active or only retired versions.")]
Version = Annotated[
    int | None, QueryParameter(ge=1, le=2**31 - 1, description="This version instead of the active one.")
]


@post(
    "/graph/schemas/objects",
    opt={"access": WRITE},
    summary="Register a type of objects",
    tags=["types"],
    responses=also(200, ObjectTypeWritten, "An equal version is registered already."),
)
async def register_object_type(
    db: Db, who: Who, idempotent: Idempotent, data: JSONBody[ObjectTypeCreate]
) -> Response[ObjectTypeWritten]:
    """Registers a new type or the next version of one, which becomes active for every project of the tenant. When some
    of the newest 1,000 objects do not fit it, 409 `objects_do_not_fit` says how many and names some; with `force` it is
    registered anyway, and they are checked when they next change. A job, whose id is in the answer, applies changed
    settings of search to existing objects. Registering is optional: an unregistered type allows any properties."""
    return respond(
        await idempotent.run(db, who, lambda session: service.register_type(session, who, "object", data=data))
    )


@post(
    "/graph/schemas/relationships",
    opt={"access": WRITE},
    summary="Register a type of relationships",
    tags=["types"],
    responses=also(200, RelationshipTypeWritten, "An equal version is registered already."),
)
async def register_relationship_type(
    db: Db, who: Who, idempotent: Idempotent, data: JSONBody[RelationshipTypeCreate]
) -> Response[RelationshipTypeWritten]:
    """Says which objects it may link, how many relationships of it an object may have, and which properties it has. The
    database enforces the multiplicity; objects that exceed it already are 409 `multiplicity_exceeded`."""
    return respond(
        await idempotent.run(db, who, lambda session: service.register_type(session, who, "relationship", data=data))
    )


@get("/graph/schemas/objects", opt={"access": READ}, summary="List types of objects", tags=["types"])
async def list_object_types(
    db: Db,
    who: Who,
    cursors: Cursors,
    name: TypeFilter = None,
    status: StatusFilter = None,
    limit: Limit = 50,
    cursor: Cursor = None,
    include_total: IncludeTotal = False,
) -> ObjectTypeList:
    """By name, the tenant's own and those of the installation (`scope` is `global`)."""
    page = Page(
        cursors, who, "object-types", limit=limit, cursor=cursor, include_total=include_total, type=name, status=status
    )
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
    include_total: IncludeTotal = False,
) -> RelationshipTypeList:
    """By name, the tenant's own and those of the installation (`scope` is `global`)."""
    page = Page(
        cursors,
        who,
        "relationship-types",
        limit=limit,
        cursor=cursor,
        include_total=include_total,
        type=name,
        status=status,
    )
    found: Any = await service.list_types(db, who, "relationship", name=name, status=status, page=page)
    return cast(RelationshipTypeList, found)


@get("/graph/schemas/objects/{name:str}", opt={"access": READ}, summary="Read a type of objects", tags=["types"])
async def get_object_type(db: Db, who: Who, name: FromPath[str], version: Version = None) -> ObjectTypeRead:
    """Returns the active version unless `version` names another."""
    return cast(ObjectTypeRead, await service.get_type(db, who, "object", name=name, version=version))


@get(
    "/graph/schemas/relationships/{name:str}",
    opt={"access": READ},
    summary="Read a type of relationships",
    tags=["types"],
)
async def get_relationship_type(db: Db, who: Who, name: FromPath[str], version: Version = None) -> RelationshipTypeRead:
    """Returns the active version unless `version` names another."""
    return cast(RelationshipTypeRead, await service.get_type(db, who, "relationship", name=name, version=version))


@patch(
    "/graph/schemas/objects/{name:str}",
    opt={"access": WRITE},
    summary="Activate or retire a version of a type of objects",
    tags=["types"],
)
async def set_object_type_status(db: Db, who: Who, name: FromPath[str], data: JSONBody[TypePatch]) -> ObjectTypeWritten:
    """`active` makes this the active version. `retired` leaves the type without one, so that any properties are
    allowed."""
    found = await service.set_type_status(db, who, "object", name=name, data=data)
    return cast(ObjectTypeWritten, found)


@patch(
    "/graph/schemas/relationships/{name:str}",
    opt={"access": WRITE},
    summary="Activate or retire a version of a type of relationships",
    tags=["types"],
)
async def set_relationship_type_status(
    db: Db, who: Who, name: FromPath[str], data: JSONBody[TypePatch]
) -> RelationshipTypeWritten:
    """`active` makes this the active version. `retired` leaves the type without one, so that any ends and properties
    are allowed."""
    found = await service.set_type_status(db, who, "relationship", name=name, data=data)
    return cast(RelationshipTypeWritten, found)


handlers: list[Any] = [
    register_object_type, register_relationship_type, list_object_types, list_relationship_types, get_object_type,
    get_relationship_type, set_object_type_status, set_relationship_type_status,
]  # fmt: skip
router = Router(path="/", route_handlers=handlers)
