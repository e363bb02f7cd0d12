"""HTTP of objects and relationships."""

from datetime import datetime
from typing import Annotated, Any
from uuid import UUID

import msgspec
from litestar import Response, Router, delete, get, patch, post
from litestar.params import FromPath, HeaderParameter, JSONBody, QueryParameter

from app.errors import BadRequest
from app.facts.as_of import parse_as_of
from app.objects import batches, relationships, service
from app.objects.json_patch import PatchOperation
from app.objects.schemas import (
    GraphBatch,
    GraphBatchResult,
    ObjectCreate,
    ObjectList,
    ObjectPatch,
    ObjectRead,
    ObjectVersions,
    ObjectWritten,
    RelationshipList,
    RelationshipPatch,
    RelationshipRead,
    RelationshipRequest,
    RelationshipVersions,
    RelationshipWritten,
)
from app.paging import Page
from app.read_context import ReadContext
from app.web.auth import Access
from app.web.reference import also
from app.web.requests import AsOf, Cursor, Cursors, Db, HoldDenied, Idempotent, IncludeTotal, Limit, Who, respond

READ = Access(work="read", scopes=("graph:read",))
WRITE = Access(work="write", scopes=("graph:write",))
IfMatch = Annotated[
    str | None,
    HeaderParameter(
        name="If-Match",
        max_length=200,
        description='The version to change, such as "3" (the ETag of a read); any other is 409.',
    ),
]
Deleted = Annotated[bool, QueryParameter(description="Also return a deleted one.")]
OnBranch = Annotated[UUID | None, QueryParameter(description="The branch to read; the project's main when absent.")]
Summaries = Annotated[
    bool, QueryParameter(name="includeChangeSummary", description="Include what changed in each version.")
]
OfType = Annotated[str | None, QueryParameter(name="type", max_length=128, description="Only of this type.")]


def _tagged(body: ObjectRead | RelationshipRead | ObjectWritten | RelationshipWritten) -> Response[Any]:
    match body:
        case ObjectWritten():
            version = body.object.version
        case RelationshipWritten():
            version = body.relationship.version
        case _:
            version = body.version
    return Response(body, headers={"etag": f'"{version}"'})


@post("/graph/objects", opt={"access": WRITE}, summary="Create an object", tags=["objects"])
async def create_object(
    db: Db, who: Who, idempotent: Idempotent, data: JSONBody[ObjectCreate]
) -> Response[ObjectWritten]:
    """The properties are checked against the JSON Schema of the type (422 `object_schema_validation_failed` lists every
    error). A type that is not registered allows any properties, and the response has a warning."""
    return respond(await idempotent.run(db, who, lambda session: service.create_object(session, who, data=data)))


@post(
    ["/graph/batch", "/graph/objects/batch"],
    opt={"access": WRITE},
    summary="Create many objects and relationships",
    tags=["objects"],
)
async def create_batch(
    db: Db, who: Who, idempotent: Idempotent, data: JSONBody[GraphBatch]
) -> Response[GraphBatchResult]:
    """Stores up to 1,000 items in one transaction, all or none. Give an object a `ref`, and relationships of the batch
    can name it by `src_ref` and `dst_ref`. An error names the list and the index of its item."""
    batch = await batches.check_batch(db, who, data=data)
    return respond(await idempotent.run(db, who, lambda session: batches.create_batch(session, who, batch=batch)))


@get("/graph/objects", opt={"access": READ}, summary="List objects", tags=["objects"])
async def list_objects(
    db: Db,
    who: Who,
    hold_denied: HoldDenied,
    cursors: Cursors,
    of_type: OfType = None,
    subtype: Annotated[str | None, QueryParameter(max_length=128)] = None,
    status: Annotated[str | None, QueryParameter(max_length=128)] = None,
    key: Annotated[str | None, QueryParameter(max_length=256)] = None,
    label: Annotated[
        list[str] | None,
        QueryParameter(max_items=16, description="Only objects with this label; repeat it to require several."),
    ] = None,
    properties: Annotated[
        str | None,
        QueryParameter(
            max_length=4096,
            description='Only objects whose properties contain this JSON object, such as {"owner": {"team": "core"}}.',
        ),
    ] = None,
    deleted: Annotated[bool, QueryParameter(description="List deleted ones instead of live ones.")] = False,
    branch_id: OnBranch = None,
    as_of: AsOf = None,
    limit: Limit = 50,
    cursor: Cursor = None,
    include_total: IncludeTotal = False,
) -> ObjectList:
    """Newest first: those of the project, and those that belong to every project of the tenant. With `as_of` the
    versions that were recorded then; the filters apply to these."""
    known = _parse_as_of(as_of, branch_id)
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
        raise BadRequest("deleted: cannot be combined with label or properties, which only search live objects.")
    page = Page(
        cursors,
        who,
        "objects",
        limit=limit,
        cursor=cursor,
        include_total=include_total,
        as_of=known,
        filters=sorted(filters.items()),
    )
    context = ReadContext.of(who, as_of=known, hold_denied=hold_denied)
    return await service.list_objects(db, context, filters=filters, page=page)


def _parse_as_of(as_of: str | None, branch_id: UUID | None) -> datetime | None:
    """Return `as_of` as a time; raise BadRequest when a branch is named too."""
    known = parse_as_of(as_of)
    if known is not None and branch_id is not None:
        raise BadRequest("branch_id: cannot be combined with as_of, which reads the project's main branch.")
    return known


def _contained(text: str | None) -> str | None:
    """Return a JSON object of a query string, encoded again; raise BadRequest when it is none."""
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


@get("/graph/objects/{object_id:uuid}", opt={"access": READ}, summary="Read an object", tags=["objects"])
async def get_object(
    db: Db,
    who: Who,
    hold_denied: HoldDenied,
    object_id: FromPath[UUID],
    branch_id: OnBranch = None,
    as_of: AsOf = None,
    include_deleted: Deleted = False,
) -> Response[ObjectRead]:
    """The canonical id reads the object as it is now, or with `as_of` as it was then. The id of an earlier version
    reads that version."""
    context = ReadContext.of(who, as_of=_parse_as_of(as_of, branch_id), hold_denied=hold_denied)
    return _tagged(
        await service.get_object(db, context, object_id=object_id, branch_id=branch_id, deleted=include_deleted)
    )


@patch("/graph/objects/{object_id:uuid}", opt={"access": WRITE}, summary="Change an object", tags=["objects"])
async def patch_object(
    db: Db,
    who: Who,
    object_id: FromPath[UUID],
    data: JSONBody[ObjectPatch | list[PatchOperation]],
    if_match: IfMatch = None,
) -> Response[ObjectWritten]:
    """A JSON merge patch creates a new version; so does a JSON Patch (RFC 6902, a list of operations on paths such as
    /properties/owner or /labels/-), which can also set a property to null. The id of an earlier version, or another
    version in `If-Match`, is 409 `cannot_patch_non_head_version`; a patch that changes nothing is 409
    `no_effective_change`."""
    return _tagged(await service.patch_object(db, who, object_id=object_id, data=data, if_match=if_match))


@delete("/graph/objects/{object_id:uuid}", opt={"access": WRITE}, summary="Delete an object", tags=["objects"])
async def delete_object(db: Db, who: Who, object_id: FromPath[UUID], if_match: IfMatch = None) -> None:
    """Deletes the object and its relationships by new versions: their history can still be read, and they can be
    restored."""
    await service.delete_object(db, who, object_id=object_id, if_match=if_match)


@post(
    "/graph/objects/{object_id:uuid}/restore",
    opt={"access": WRITE},
    status_code=200,
    summary="Restore an object",
    tags=["objects"],
)
async def restore_object(db: Db, who: Who, object_id: FromPath[UUID]) -> Response[ObjectWritten]:
    """Restores the object with the relationships that were deleted with it, unless their other end is deleted or
    another live relationship has taken their place."""
    return _tagged(await service.restore_object(db, who, object_id=object_id))


@get(
    "/graph/objects/{object_id:uuid}/versions",
    opt={"access": READ},
    summary="List versions of an object",
    tags=["objects"],
)
async def list_object_versions(
    db: Db,
    who: Who,
    cursors: Cursors,
    object_id: FromPath[UUID],
    summaries: Summaries = False,
    limit: Limit = 50,
    cursor: Cursor = None,
    include_total: IncludeTotal = False,
) -> ObjectVersions:
    """Newest first; also of a deleted object."""
    page = Page(
        cursors, who, "object-versions", limit=limit, cursor=cursor, include_total=include_total, object_id=object_id
    )
    return await service.list_object_versions(
        db, ReadContext.of(who), object_id=object_id, summaries=summaries, page=page
    )


@post(
    "/graph/relationships",
    opt={"access": WRITE},
    summary="Link two objects",
    tags=["relationships"],
    responses=also(200, RelationshipWritten, "The relationship existed; it was updated where the request differs."),
)
async def create_relationship(
    db: Db, who: Who, idempotent: Idempotent, data: JSONBody[RelationshipRequest]
) -> Response[RelationshipWritten]:
    """Two objects have at most one live relationship of a type in each direction: the same request again creates a new
    version of it where something differs. A second one where the type allows one is 400
    `relationship_multiplicity_violation`."""
    made = await relationships.prepare_relationship(db, who, data=data)
    return respond(
        await idempotent.run(db, who, lambda session: relationships.create_relationship(session, who, data=made))
    )


@get("/graph/relationships", opt={"access": READ}, summary="List relationships", tags=["relationships"])
async def list_relationships(
    db: Db,
    who: Who,
    hold_denied: HoldDenied,
    cursors: Cursors,
    of_type: OfType = None,
    src_id: Annotated[UUID | None, QueryParameter(description="Only from this object.")] = None,
    dst_id: Annotated[UUID | None, QueryParameter(description="Only to this object.")] = None,
    object_id: Annotated[UUID | None, QueryParameter(description="Only from or to this object.")] = None,
    deleted: Annotated[bool, QueryParameter(description="List deleted ones instead of live ones.")] = False,
    as_of: AsOf = None,
    limit: Limit = 50,
    cursor: Cursor = None,
    include_total: IncludeTotal = False,
) -> RelationshipList:
    """Newest first: those of the project, and those that belong to every project of the tenant. With `as_of` the
    versions that were recorded then; the filters apply to these."""
    known = parse_as_of(as_of)
    filters: dict[str, Any] = {
        "type": of_type,
        "src_id": src_id,
        "dst_id": dst_id,
        "object_id": object_id,
        "deleted": deleted,
    }
    page = Page(
        cursors,
        who,
        "relationships",
        limit=limit,
        cursor=cursor,
        include_total=include_total,
        as_of=known,
        filters=sorted(filters.items()),
    )
    context = ReadContext.of(who, as_of=known, hold_denied=hold_denied)
    return await relationships.list_relationships(db, context, filters=filters, page=page)


@get(
    "/graph/relationships/{relationship_id:uuid}",
    opt={"access": READ},
    summary="Read a relationship",
    tags=["relationships"],
)
async def get_relationship(
    db: Db,
    who: Who,
    hold_denied: HoldDenied,
    relationship_id: FromPath[UUID],
    as_of: AsOf = None,
    include_deleted: Deleted = False,
) -> Response[RelationshipRead]:
    """The canonical id reads the relationship as it is now, or with `as_of` as it was then. The id of an earlier
    version reads that version."""
    context = ReadContext.of(who, as_of=parse_as_of(as_of), hold_denied=hold_denied)
    return _tagged(
        await relationships.get_relationship(db, context, relationship_id=relationship_id, deleted=include_deleted)
    )


@patch(
    "/graph/relationships/{relationship_id:uuid}",
    opt={"access": WRITE},
    summary="Change a relationship",
    tags=["relationships"],
)
async def patch_relationship(
    db: Db,
    who: Who,
    relationship_id: FromPath[UUID],
    data: JSONBody[RelationshipPatch | list[PatchOperation]],
    if_match: IfMatch = None,
) -> Response[RelationshipWritten]:
    """A JSON merge patch or a JSON Patch creates a new version, with the same checks as for an object. The ends cannot
    change."""
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
    """Deletes the relationship by a new version: its history can still be read, and it can be restored."""
    await relationships.delete_relationship(db, who, relationship_id=relationship_id, if_match=if_match)


@post(
    "/graph/relationships/{relationship_id:uuid}/restore",
    opt={"access": WRITE},
    status_code=200,
    summary="Restore a relationship",
    tags=["relationships"],
)
async def restore_relationship(db: Db, who: Who, relationship_id: FromPath[UUID]) -> Response[RelationshipWritten]:
    """Both objects have to be live, and no other live relationship may have taken its place."""
    return _tagged(await relationships.restore_relationship(db, who, relationship_id=relationship_id))


@get(
    "/graph/relationships/{relationship_id:uuid}/versions",
    opt={"access": READ},
    summary="List versions of a relationship",
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
    include_total: IncludeTotal = False,
) -> RelationshipVersions:
    """Newest first; also of a deleted relationship."""
    page = Page(
        cursors,
        who,
        "relationship-versions",
        limit=limit,
        cursor=cursor,
        include_total=include_total,
        relationship_id=relationship_id,
    )
    return await relationships.list_relationship_versions(
        db, ReadContext.of(who), relationship_id=relationship_id, summaries=summaries, page=page
    )


handlers: list[Any] = [
    create_object, create_batch, list_objects, get_object, patch_object, delete_object, restore_object,
    list_object_versions, create_relationship, list_relationships, get_relationship, patch_relationship,
    delete_relationship, restore_relationship, list_relationship_versions,
]  # fmt: skip
router = Router(path="/", route_handlers=handlers)
