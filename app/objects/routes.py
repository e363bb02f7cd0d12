"""HTTP of the room objects."""

from typing import Annotated, Any
from uuid import UUID

import msgspec
from litestar import Response, Router, delete, get, patch, post
from litestar.params import FromPath, HeaderParameter, JSONBody, QueryParameter

from app.errors import BadRequest
from app.facts.as_of import parse_as_of
from app.objects import batches, relationships, service
from app.objects.schemas import (
    GraphBatch,
    GraphBatchDone,
    ObjectCreate,
    ObjectCreated,
    ObjectList,
    ObjectPatch,
    ObjectRead,
    ObjectVersions,
    RelationshipAsk,
    RelationshipCreated,
    RelationshipList,
    RelationshipPatch,
    RelationshipRead,
    RelationshipVersions,
)
from app.paging import Page
from app.web.auth import Access
from app.web.reference import also
from app.web.requests import AsOf, Cursor, Cursors, Db, Idempotent, Limit, Who, respond

READ = Access(work="read", scopes=("graph:read",))
WRITE = Access(work="write", scopes=("graph:write",))
IfMatch = Annotated[
    str | None,
    HeaderParameter(
        name="If-Match",
        max_length=200,
        description='The version that is meant to be changed, such as "3" (the ETag of a read); another one is 409.',
    ),
]
Deleted = Annotated[bool, QueryParameter(description="Also what is deleted.")]
OnBranch = Annotated[UUID | None, QueryParameter(description="On this branch; the project's main when absent.")]
Summaries = Annotated[
    bool, QueryParameter(name="includeChangeSummary", description="With what changed in each version.")
]
OfType = Annotated[str | None, QueryParameter(name="type", max_length=128, description="Only of this type.")]


def _tagged(body: ObjectRead | RelationshipRead) -> Response[Any]:
    return Response(body, headers={"etag": f'"{body.version}"'})


@post("/graph/objects", opt={"access": WRITE}, summary="Make an object", tags=["objects"])
async def create_object(
    db: Db, who: Who, idempotent: Idempotent, data: JSONBody[ObjectCreate]
) -> Response[ObjectCreated]:
    """Checked by its type's JSON Schema (422 `object_schema_validation_failed` with every error). A type that is not
    registered takes any properties; the answer says so in `warnings`."""
    return respond(await service.create_object(db, who, data=data, once=idempotent))


@post(
    ["/graph/batch", "/graph/objects/batch"],
    opt={"access": WRITE},
    summary="Make many objects and relationships",
    tags=["objects"],
)
async def create_batch(
    db: Db, who: Who, idempotent: Idempotent, data: JSONBody[GraphBatch]
) -> Response[GraphBatchDone]:
    """Up to 1,000 together in one transaction, all or none. Give an object a `ref` and relationships of the batch can
    name it by `src_ref` and `dst_ref`. An error names the list and the index."""
    return respond(await batches.create_batch(db, who, data=data, once=idempotent))


@get("/graph/objects", opt={"access": READ}, summary="List objects", tags=["objects"])
async def list_objects(
    db: Db,
    who: Who,
    cursors: Cursors,
    of_type: OfType = None,
    subtype: Annotated[str | None, QueryParameter(max_length=128)] = None,
    status: Annotated[str | None, QueryParameter(max_length=128)] = None,
    key: Annotated[str | None, QueryParameter(max_length=256)] = None,
    label: Annotated[
        list[str] | None, QueryParameter(max_items=16, description="Has this label; several: all of them.")
    ] = None,
    properties: Annotated[
        str | None,
        QueryParameter(max_length=4096, description='Contains this JSON object, such as {"owner": {"team": "core"}}.'),
    ] = None,
    deleted: Annotated[bool, QueryParameter(description="Those that are deleted, instead of the live ones.")] = False,
    branch_id: OnBranch = None,
    limit: Limit = 50,
    cursor: Cursor = None,
) -> ObjectList:
    """Newest first: the project's, and those of every project of the tenant."""
    filters: dict[str, Any] = {
        "type": of_type,
        "subtype": subtype,
        "status": status,
        "key": key,
        "labels": label or None,
        "properties": _contained(properties),
        "deleted": deleted,
        "branch_id": branch_id,
    }
    if any(len(one) > 128 for one in label or []):
        raise BadRequest("label: at most 128 characters.")
    if deleted and (filters["labels"] is not None or filters["properties"] is not None):
        raise BadRequest("deleted: labels and properties are looked up among live objects; leave them out.")
    page = Page(cursors, who, "objects", limit=limit, cursor=cursor, filters=sorted(filters.items()))
    return await service.list_objects(db, who, filters=filters, page=page)


def _contained(text: str | None) -> str | None:
    """A JSON object out of a query string, written anew."""
    if text is None:
        return None
    try:
        value = msgspec.json.decode(text, type=dict[str, Any])
    except (msgspec.MsgspecError, RecursionError, ValueError) as problem:
        raise BadRequest(
            'properties: a JSON object, such as {"owner": "core"}.', code="invalid_properties"
        ) from problem
    encoded = msgspec.json.encode(value).decode()
    if "\\u0000" in encoded:
        raise BadRequest("properties: NUL characters are not allowed.", code="invalid_text")
    return encoded


@get("/graph/objects/{object_id:uuid}", opt={"access": READ}, summary="One object", tags=["objects"])
async def get_object(
    db: Db,
    who: Who,
    object_id: FromPath[UUID],
    branch_id: OnBranch = None,
    as_of: AsOf = None,
    include_deleted: Deleted = False,
) -> Response[ObjectRead]:
    """By its canonical id as it is now, or with `as_of` as it stood then; by the id of an earlier version that one."""
    known = parse_as_of(as_of)
    if known is not None and branch_id is not None:
        raise BadRequest("branch_id: not beside as_of, which reads the project's main.")
    found = await service.get_object(
        db, who, object_id=object_id, branch_id=branch_id, as_of=known, deleted=include_deleted
    )
    return _tagged(found)


@patch("/graph/objects/{object_id:uuid}", opt={"access": WRITE}, summary="Change an object", tags=["objects"])
async def patch_object(
    db: Db, who: Who, object_id: FromPath[UUID], data: JSONBody[ObjectPatch], if_match: IfMatch = None
) -> Response[ObjectRead]:
    """A JSON merge patch makes a new version. The id of a version that is not the head, or another version in
    `If-Match`, is 409 `cannot_patch_non_head_version`; what changes nothing is 409 `no_effective_change` and makes no
    version."""
    return _tagged(await service.patch_object(db, who, object_id=object_id, data=data, if_match=if_match))


@delete("/graph/objects/{object_id:uuid}", opt={"access": WRITE}, summary="Delete an object", tags=["objects"])
async def delete_object(db: Db, who: Who, object_id: FromPath[UUID], if_match: IfMatch = None) -> None:
    """By a new version: its history can still be read, and it can be restored. Its relationships go with it."""
    await service.delete_object(db, who, object_id=object_id, if_match=if_match)


@post(
    "/graph/objects/{object_id:uuid}/restore",
    opt={"access": WRITE},
    status_code=200,
    summary="Restore an object",
    tags=["objects"],
)
async def restore_object(db: Db, who: Who, object_id: FromPath[UUID]) -> Response[ObjectRead]:
    """With the relationships that were deleted with it, where their other end lives and their place is free."""
    return _tagged(await service.restore_object(db, who, object_id=object_id))


@get(
    "/graph/objects/{object_id:uuid}/versions", opt={"access": READ}, summary="Versions of an object", tags=["objects"]
)
async def list_object_versions(
    db: Db,
    who: Who,
    cursors: Cursors,
    object_id: FromPath[UUID],
    summaries: Summaries = False,
    limit: Limit = 50,
    cursor: Cursor = None,
) -> ObjectVersions:
    """Newest first; also of a deleted object."""
    page = Page(cursors, who, "object-versions", limit=limit, cursor=cursor, object_id=object_id)
    return await service.list_object_versions(db, who, object_id=object_id, summaries=summaries, page=page)


@post(
    "/graph/relationships",
    opt={"access": WRITE},
    summary="Link two objects",
    tags=["relationships"],
    responses=also(200, RelationshipCreated, "They were linked so already; what is new of it was taken on."),
)
async def create_relationship(
    db: Db, who: Who, idempotent: Idempotent, data: JSONBody[RelationshipAsk]
) -> Response[RelationshipCreated]:
    """There is one live relationship of a type from one object to another: the same again makes a new version of it
    where it says something new. Where the type allows one only, a second is 400
    `relationship_multiplicity_violation`."""
    return respond(await relationships.create_relationship(db, who, ask=data, once=idempotent))


@get("/graph/relationships", opt={"access": READ}, summary="List relationships", tags=["relationships"])
async def list_relationships(
    db: Db,
    who: Who,
    cursors: Cursors,
    of_type: OfType = None,
    src_id: Annotated[UUID | None, QueryParameter(description="Only from this object.")] = None,
    dst_id: Annotated[UUID | None, QueryParameter(description="Only to this object.")] = None,
    object_id: Annotated[UUID | None, QueryParameter(description="Only from or to this object.")] = None,
    deleted: Annotated[bool, QueryParameter(description="Those that are deleted, instead of the live ones.")] = False,
    limit: Limit = 50,
    cursor: Cursor = None,
) -> RelationshipList:
    """Newest first: the project's, and those of every project of the tenant."""
    filters: dict[str, Any] = {
        "type": of_type,
        "src_id": src_id,
        "dst_id": dst_id,
        "object_id": object_id,
        "deleted": deleted,
    }
    page = Page(cursors, who, "relationships", limit=limit, cursor=cursor, filters=sorted(filters.items()))
    return await relationships.list_relationships(db, who, filters=filters, page=page)


@get(
    "/graph/relationships/{relationship_id:uuid}",
    opt={"access": READ},
    summary="One relationship",
    tags=["relationships"],
)
async def get_relationship(
    db: Db, who: Who, relationship_id: FromPath[UUID], as_of: AsOf = None, include_deleted: Deleted = False
) -> Response[RelationshipRead]:
    """By its canonical id as it is now, or with `as_of` as it stood then; by the id of an earlier version that one."""
    known = parse_as_of(as_of)
    found = await relationships.get_relationship(
        db, who, relationship_id=relationship_id, as_of=known, deleted=include_deleted
    )
    return _tagged(found)


@patch(
    "/graph/relationships/{relationship_id:uuid}",
    opt={"access": WRITE},
    summary="Change a relationship",
    tags=["relationships"],
)
async def patch_relationship(
    db: Db, who: Who, relationship_id: FromPath[UUID], data: JSONBody[RelationshipPatch], if_match: IfMatch = None
) -> Response[RelationshipRead]:
    """A JSON merge patch makes a new version; guarded as that of an object. What it links never changes."""
    return _tagged(
        await relationships.patch_relationship(db, who, relationship_id=relationship_id, data=data, if_match=if_match)
    )


@delete(
    "/graph/relationships/{relationship_id:uuid}",
    opt={"access": WRITE},
    summary="Delete a relationship",
    tags=["relationships"],
)
async def delete_relationship(db: Db, who: Who, relationship_id: FromPath[UUID], if_match: IfMatch = None) -> None:
    """By a new version: its history can still be read, and it can be restored."""
    await relationships.delete_relationship(db, who, relationship_id=relationship_id, if_match=if_match)


@post(
    "/graph/relationships/{relationship_id:uuid}/restore",
    opt={"access": WRITE},
    status_code=200,
    summary="Restore a relationship",
    tags=["relationships"],
)
async def restore_relationship(db: Db, who: Who, relationship_id: FromPath[UUID]) -> Response[RelationshipRead]:
    """Where both objects live and its place is free."""
    return _tagged(await relationships.restore_relationship(db, who, relationship_id=relationship_id))


@get(
    "/graph/relationships/{relationship_id:uuid}/versions",
    opt={"access": READ},
    summary="Versions of a relationship",
    tags=["relationships"],
)
async def list_relationship_versions(
    db: Db,
    who: Who,
    cursors: Cursors,
    relationship_id: FromPath[UUID],
    summaries: Summaries = False,
    limit: Limit = 50,
    cursor: Cursor = None,
) -> RelationshipVersions:
    """Newest first; also of a deleted relationship."""
    page = Page(cursors, who, "relationship-versions", limit=limit, cursor=cursor, relationship_id=relationship_id)
    return await relationships.list_relationship_versions(
        db, who, relationship_id=relationship_id, summaries=summaries, page=page
    )


handlers: list[Any] = [
    create_object, create_batch, list_objects, get_object, patch_object, delete_object, restore_object,
    list_object_versions, create_relationship, list_relationships, get_relationship, patch_relationship,
    delete_relationship, restore_relationship, list_relationship_versions,
]  # fmt: skip
router = Router(path="/", route_handlers=handlers)
