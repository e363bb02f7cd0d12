"""HTTP of embedding: what must not reach a provider."""

from uuid import UUID

from litestar import Response, Router, delete, get, post
from litestar.params import FromPath, JSONBody

from app.embeddings import redactions
from app.embeddings.schemas import RedactionCreate, RedactionCreated, RedactionList
from app.paging import Page
from app.web.auth import Access
from app.web.reference import also
from app.web.requests import Cursor, Cursors, Db, Idempotent, Limit, Who, respond

ADMIN = Access(work="admin", kinds=("admin",), scopes=("admin",), project=False)


@get("/admin/redactions", opt={"access": ADMIN}, summary="List redaction patterns", tags=["administration"])
async def list_redactions(
    db: Db, who: Who, cursors: Cursors, limit: Limit = 50, cursor: Cursor = None
) -> RedactionList:
    """Those of the tenant, oldest first, and those that hold for everybody."""
    page = Page(cursors, who, "redactions", limit=limit, cursor=cursor)
    return await redactions.list_redactions(db, who, page=page)


@post(
    "/admin/redactions",
    opt={"access": ADMIN},
    summary="Add a redaction pattern",
    tags=["administration"],
    responses=also(200, RedactionCreated, "It was there already."),
)
async def create_redaction(
    db: Db, who: Who, idempotent: Idempotent, data: JSONBody[RedactionCreate]
) -> Response[RedactionCreated]:
    """What matches is sent to no embedding provider: [REDACTED] is, instead. It holds for what is embedded from now on;
    what was embedded before is not queued again. At most 50 for each tenant."""
    return respond(await redactions.create_redaction(db, who, data=data, once=idempotent))


@delete(
    "/admin/redactions/{redaction_id:uuid}",
    opt={"access": ADMIN},
    summary="Remove a redaction pattern",
    tags=["administration"],
)
async def delete_redaction(db: Db, who: Who, redaction_id: FromPath[UUID]) -> None:
    """What was embedded under it stays as it is, until it changes."""
    await redactions.delete_redaction(db, who, redaction_id=redaction_id)


router = Router(path="/", route_handlers=[list_redactions, create_redaction, delete_redaction])
