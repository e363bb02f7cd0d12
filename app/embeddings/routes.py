"""HTTP of redaction patterns."""

from uuid import UUID

from litestar import Response, Router, delete, get, post
from litestar.params import FromPath, JSONBody

from app.embeddings import redactions
from app.embeddings.schemas import RedactionCreate, RedactionCreated, RedactionList
from app.paging import Page
from app.web.auth import Access
from app.web.reference import also
from app.web.requests import Cursor, Cursors, Db, Idempotent, IncludeTotal, Limit, Who, respond

ADMIN = Access(work="admin", kinds=("admin",), scopes=("admin",), project=False)


@get("/admin/redactions", opt={"access": ADMIN}, summary="List redaction patterns", tags=["administration"])
async def list_redactions(
    db: Db, who: Who, cursors: Cursors, limit: Limit = 50, cursor: Cursor = None, include_total: IncludeTotal = False
) -> RedactionList:
    """Returns the patterns of the tenant, oldest first, and the built-in ones."""
    page = Page(cursors, who, "redactions", limit=limit, cursor=cursor, include_total=include_total)
    return await redactions.list_redactions(db, who, page=page)


@post(
    "/admin/redactions",
    opt={"access": ADMIN},
    summary="Add a redaction pattern",
    tags=["administration"],
    responses=also(200, RedactionCreated, "The pattern existed already."),
)
async def create_redaction(
    db: Db, who: Who, idempotent: Idempotent, data: JSONBody[RedactionCreate]
) -> Response[RedactionCreated]:
    """Text that matches is replaced by [REDACTED] before it is sent to a provider. The pattern applies from now on;
    existing vectors are not made again. At most 50 patterns for each tenant."""
    await redactions.check_pattern(db, who, pattern=data.pattern)
    return respond(await idempotent.run(db, who, lambda session: redactions.create_redaction(session, who, data=data)))


@delete(
    "/admin/redactions/{redaction_id:uuid}",
    opt={"access": ADMIN},
    summary="Remove a redaction pattern",
    tags=["administration"],
)
async def delete_redaction(db: Db, who: Who, redaction_id: FromPath[UUID]) -> None:
    """Existing vectors stay as they are until their units change."""
    await redactions.delete_redaction(db, who, redaction_id=redaction_id)


router = Router(path="/", route_handlers=[list_redactions, create_redaction, delete_redaction])
