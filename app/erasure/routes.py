"""HTTP of tombstones and receipts."""

from typing import Annotated, Any
from uuid import UUID

from litestar import Response, Router, get, post
from litestar.params import FromPath, JSONBody, QueryParameter

from app.erasure import tombstones
from app.erasure.schemas import (
    Receipt,
    TombstoneCreate,
    TombstoneCreated,
    TombstoneList,
    TombstoneRead,
    TombstoneRevoke,
    TombstoneRevoked,
)
from app.paging import Page
from app.web.auth import Access
from app.web.requests import Cursor, Cursors, Db, Idempotent, Limit, Who, respond

# The use cases check for administrators themselves, with an error code of their own.
ADMIN = Access(work="admin")


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
) -> TombstoneList:
    """For administrators; newest first."""
    page = Page(cursors, who, "tombstones", limit=limit, cursor=cursor, active=active)
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


handlers: list[Any] = [create_tombstone, list_tombstones, get_tombstone, revoke_tombstone, get_receipt]
router = Router(path="/", route_handlers=handlers)
