"""HTTP of tombstones and receipts."""

from typing import Annotated, Any
from uuid import UUID

from litestar import Response, Router, delete, get, post
from litestar.params import FromPath, JSONBody, QueryParameter

from app.confirmations import Confirmation
from app.erasure import gardens, tombstones
from app.erasure.schemas import (
    Receipt,
    TombstoneCreate,
    TombstoneCreated,
    TombstoneList,
    TombstoneRead,
    TombstoneRevoke,
    TombstoneRevoked,
)
from app.errors import BadRequest
from app.paging import Page
from app.web.auth import Access
from app.web.requests import ConfirmToken, Cursor, Cursors, Db, Idempotent, IncludeTotal, Limit, Who, respond

# The use cases check for administrators themselves, with an error code of their own.
ADMIN = Access(work="admin")
WRITE = Access(work="write", scopes=("notes:write", "facts:write", "admin"))


@post("/tombstones", opt={"access": ADMIN}, summary="Hide or erase an entity", tags=["forgetting"])
async def create_tombstone(
    db: Db, who: Who, idempotent: Idempotent, data: JSONBody[TombstoneCreate]
) -> Response[TombstoneCreated]:
    """For administrators. Hides the entity, its facts, what points to it and the notes that mention it, at once and at
    every past time; with `erase` a job destroys them and leaves a signed receipt."""
    custodian = tombstones.custodian(who)
    return respond(
        await idempotent.run(db, custodian, lambda session: tombstones.create_tombstone(session, custodian, data=data))
    )


@get("/tombstones", opt={"access": ADMIN}, summary="List tombstones", tags=["forgetting"])
async def list_tombstones(
    db: Db,
    who: Who,
    cursors: Cursors,
    active: Annotated[bool | None, QueryParameter(description="Only active, or only revoked ones.")] = None,
    limit: Limit = 50,
    cursor: Cursor = None,
    include_total: IncludeTotal = False,
) -> TombstoneList:
    """For administrators; newest first."""
    page = Page(cursors, who, "tombstones", limit=limit, cursor=cursor, include_total=include_total, active=active)
    return await tombstones.list_tombstones(db, who, active=active, page=page)


@get("/tombstones/{tombstone_id:uuid}", opt={"access": ADMIN}, summary="Get a tombstone", tags=["forgetting"])
async def get_tombstone(db: Db, who: Who, tombstone_id: FromPath[UUID]) -> TombstoneRead:
    """For administrators."""
    return await tombstones.get_tombstone(db, who, tombstone_id=tombstone_id)


@post(
    "/tombstones/{tombstone_id:uuid}/revoke",
    opt={"access": ADMIN},
    status_code=200,
    summary="Revoke a tombstone",
    tags=["forgetting"],
)
async def revoke_tombstone(
    db: Db, who: Who, idempotent: Idempotent, tombstone_id: FromPath[UUID], data: JSONBody[TombstoneRevoke]
) -> Response[TombstoneRevoked]:
    """For administrators. Restores exactly what no other tombstone hides; 409 once it was erased."""
    custodian = tombstones.custodian(who)
    return respond(
        await idempotent.run(
            db,
            custodian,
            lambda session: tombstones.revoke_tombstone(session, custodian, tombstone_id=tombstone_id, data=data),
        )
    )


@get(
    "/tombstones/{tombstone_id:uuid}/receipt",
    opt={"access": ADMIN},
    summary="Get the receipt of an erasure",
    tags=["forgetting"],
)
async def get_receipt(db: Db, who: Who, tombstone_id: FromPath[UUID]) -> Receipt:
    """For administrators. Verify `signature` over `signed` with the public key of /.well-known/palimpsest."""
    return await tombstones.get_receipt(db, who, tombstone_id=tombstone_id)


@delete("/gardens/{garden_id:uuid}", opt={"access": WRITE}, summary="Delete a garden", tags=["gardens"])
async def delete_garden(
    db: Db,
    who: Who,
    cursors: Cursors,
    garden_id: FromPath[UUID],
    reason: Annotated[
        str | None, QueryParameter(max_length=500, description="Why the garden is deleted; required.")
    ] = None,
    contents: Annotated[
        gardens.Contents,
        QueryParameter(
            description="keep: what is in it stays, visible to its creator and to administrators. delete: its notes "
            "and documents are deleted and its facts retracted."
        ),
    ] = "keep",
    force: Annotated[bool, QueryParameter(description="Delete its contents even if a note is pinned.")] = False,
    confirm_token: ConfirmToken = None,
) -> None:
    """Only for admins of the garden. Requires a reason. All members lose access, and the slug is free again. With
    `contents=delete` its notes can be recovered for 30 days by its creator and by administrators; its facts stay
    retracted. More than 25 notes and facts need a `confirm_token`, which 409 `confirmation_required` carries."""
    if not reason or not reason.strip():
        raise BadRequest("reason: required, as the query parameter ?reason=...", code="reason_required")
    confirmation = Confirmation(
        cursors,
        who,
        "delete_garden",
        token=confirm_token,
        noun="notes and facts",
        garden_id=garden_id,
        contents=contents,
        force=force,
    )
    await gardens.delete_garden(
        db,
        who,
        garden_id=garden_id,
        contents=contents,
        reason=reason,
        force=force,
        confirmation=confirmation,
    )


handlers: list[Any] = [create_tombstone, list_tombstones, get_tombstone, revoke_tombstone, get_receipt, delete_garden]
router = Router(path="/", route_handlers=handlers)
