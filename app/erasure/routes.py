"""HTTP of the room history."""

from typing import Annotated, Any
from uuid import UUID

from litestar import Response, Router, get, post
from litestar.params import FromPath, JSONBody, QueryParameter

from app.audit.recording import EventType
from app.erasure import audit, provenance, tombstones
from app.erasure.schemas import (
    EventList,
    Provenance,
    Receipt,
    TombstoneCreate,
    TombstoneCreated,
    TombstoneList,
    TombstoneRead,
    TombstoneRevoke,
    TombstoneRevoked,
)
from app.errors import BadRequest
from app.facts.as_of import parse_as_of
from app.inputs import parse_moment
from app.paging import Page
from app.tenancy.schemas import SYNONYMS, VisibilityIn
from app.web.auth import Access
from app.web.requests import AsOf, Cursor, Cursors, Db, HoldDenied, Idempotent, Limit, Who, respond

READ = Access(work="read", scopes=("facts:read",))
# Who is no administrator is told so in words of its own.
FORGET = Access(work="admin")
AUDIT = Access(work="admin", scopes=("admin",), kinds=("admin", "platform"), project=False)


@get(
    "/facts/{fact_id:uuid}/provenance",
    opt={"access": READ},
    summary="What a fact was derived from",
    tags=["facts"],
)
async def get_provenance(
    db: Db,
    who: Who,
    hold_denied: HoldDenied,
    fact_id: FromPath[UUID],
    depth: Annotated[int, QueryParameter(description="How many steps back, 1 to 5.")] = 3,
    visibility: Annotated[
        VisibilityIn | None, QueryParameter(name="scope", description="Only facts of this scope; others look absent.")
    ] = None,
    as_of: AsOf = None,
) -> Provenance:
    """The facts whose hashes it cites in `derived_from`, theirs, and so on. What the caller cannot see is shown as
    `{hash, exists: false}`, like what is not there."""
    scope = None if visibility is None else SYNONYMS.get(visibility, visibility)
    return await provenance.get_provenance(
        db, who, fact_id=fact_id, depth=depth, scope=scope, as_of=parse_as_of(as_of), denied=hold_denied
    )


@post("/tombstones", opt={"access": FORGET}, summary="Forget an entity", tags=["forgetting"])
async def create_tombstone(
    db: Db, who: Who, idempotent: Idempotent, data: JSONBody[TombstoneCreate]
) -> Response[TombstoneCreated]:
    """For administrators. Hides the entity, its facts, what points to it and the notes that mention it, at every time
    and at once; with `erase` a job destroys them and leaves a signed receipt."""
    return respond(await tombstones.create_tombstone(db, who, data=data, once=idempotent))


@get("/tombstones", opt={"access": FORGET}, summary="List tombstones", tags=["forgetting"])
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


@get("/tombstones/{tombstone_id:uuid}", opt={"access": FORGET}, summary="One tombstone", tags=["forgetting"])
async def get_tombstone(db: Db, who: Who, tombstone_id: FromPath[UUID]) -> TombstoneRead:
    """For administrators."""
    return await tombstones.get_tombstone(db, who, tombstone_id=tombstone_id)


@post(
    "/tombstones/{tombstone_id:uuid}/revoke",
    opt={"access": FORGET},
    status_code=200,
    summary="Revoke a tombstone",
    tags=["forgetting"],
)
async def revoke_tombstone(
    db: Db, who: Who, idempotent: Idempotent, tombstone_id: FromPath[UUID], data: JSONBody[TombstoneRevoke]
) -> Response[TombstoneRevoked]:
    """For administrators. Restores exactly what no other tombstone hides; 409 once it was erased."""
    return respond(await tombstones.revoke_tombstone(db, who, tombstone_id=tombstone_id, data=data, once=idempotent))


@get(
    "/tombstones/{tombstone_id:uuid}/receipt",
    opt={"access": FORGET},
    summary="The receipt of an erasure",
    tags=["forgetting"],
)
async def get_receipt(db: Db, who: Who, tombstone_id: FromPath[UUID]) -> Receipt:
    """For administrators. Verify `signature` over `signed` with the public key of /.well-known/palimpsest."""
    return await tombstones.get_receipt(db, who, tombstone_id=tombstone_id)


@get("/admin/audit-log", opt={"access": AUDIT}, summary="Read the audit log", tags=["administration"])
async def list_events(
    db: Db,
    who: Who,
    cursors: Cursors,
    after: Annotated[
        str | None, QueryParameter(max_length=40, description="Later than this time, or this sequence number.")
    ] = None,
    before: Annotated[
        str | None, QueryParameter(max_length=40, description="Earlier than this time, or this sequence number.")
    ] = None,
    event_type: Annotated[EventType | None, QueryParameter(description="Only of this type.")] = None,
    tenant_id: Annotated[
        str | None, QueryParameter(max_length=63, description="Only for the platform key, which belongs to no tenant.")
    ] = None,
    limit: Annotated[int, QueryParameter(ge=1, le=5000, description="How many at the most.")] = 500,
    cursor: Cursor = None,
) -> EventList:
    """Events in the order of the tenant's chain, as soon as they are sealed, which takes a few seconds."""
    filters: dict[str, Any] = {
        "event_type": event_type,
        **_bound(after, "after"),
        **_bound(before, "before"),
    }
    page = Page(cursors, who, "events", limit=limit, cursor=cursor, tenant=tenant_id, **filters)
    return await audit.list_events(db, who, tenant_id=tenant_id, filters=filters, page=page)


def _bound(text: str | None, field: str) -> dict[str, Any]:
    if text is not None and text.strip().isdecimal():
        if len(text.strip()) > 18:
            raise BadRequest(f"{field}: a sequence number of more than 18 digits.")
        return {f"{field}_sequence": int(text)}
    return {field: parse_moment(text, field)}


router = Router(
    path="/",
    route_handlers=[
        get_provenance, create_tombstone, list_tombstones, get_tombstone, revoke_tombstone, get_receipt, list_events,
    ],
)  # fmt: skip
