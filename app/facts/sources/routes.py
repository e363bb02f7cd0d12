"""HTTP of sources."""

from typing import Any

from litestar import Response, Router, get, put
from litestar.params import JSONBody

from app.facts.sources import service
from app.facts.sources.schemas import SourceList, SourcePut, SourceWritten
from app.paging import Page
from app.web.auth import Access
from app.web.reference import also
from app.web.requests import Cursor, Cursors, Db, Idempotent, IncludeTotal, Limit, Who, respond

READ = Access(work="read", scopes=("facts:read", "admin"))
ADMIN = Access(work="admin", scopes=("admin",), kinds=("admin",))


@get("/sources", opt={"access": READ}, summary="List sources", tags=["truth"])
async def list_sources(
    db: Db, who: Who, cursors: Cursors, limit: Limit = 50, cursor: Cursor = None, include_total: IncludeTotal = False
) -> SourceList:
    """Registered sources of the project by name, with the trust each has now."""
    return await service.list_sources(
        db, who, page=Page(cursors, who, "sources", limit=limit, cursor=cursor, include_total=include_total)
    )


@put(
    "/sources",
    opt={"access": ADMIN},
    status_code=201,
    summary="Register a source",
    tags=["truth"],
    responses=also(200, SourceWritten, "The source was registered already and is updated."),
)
async def put_source(db: Db, who: Who, idempotent: Idempotent, data: JSONBody[SourcePut]) -> Response[SourceWritten]:
    """For administrators. New facts get the trust of their source within a minute, existing ones by the job."""
    return respond(await idempotent.run(db, who, lambda session: service.put_source(session, who, data=data)))


handlers: list[Any] = [list_sources, put_source]
router = Router(path="/", route_handlers=handlers)
