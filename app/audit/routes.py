"""HTTP of the audit log."""

from typing import Annotated, Any

from litestar import Router, get
from litestar.params import QueryParameter

from app.audit import service
from app.audit.events import EventType
from app.audit.schemas import EventList
from app.errors import BadRequest
from app.inputs import parse_moment
from app.paging import Page
from app.web.auth import Access
from app.web.requests import Cursor, Cursors, Db, IncludeTotal, Who

ADMIN = Access(work="admin", scopes=("admin",), kinds=("admin", "platform"), project=False)


@get("/admin/audit-log", opt={"access": ADMIN}, summary="Read the audit log", tags=["administration"])
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
        str | None, QueryParameter(max_length=63, description="Only with the platform key, which belongs to no tenant.")
    ] = None,
    limit: Annotated[int, QueryParameter(ge=1, le=5000, description="At most this many.")] = 500,
    cursor: Cursor = None,
    include_total: IncludeTotal = False,
) -> EventList:
    """Events in the order of the tenant's chain; an event appears once it is sealed, after a few seconds."""
    filters: dict[str, Any] = {
        "event_type": event_type,
        **_bound(after, "after"),
        **_bound(before, "before"),
    }
    page = Page(
        cursors, who, "events", limit=limit, cursor=cursor, include_total=include_total, tenant=tenant_id, **filters
    )
    return await service.list_events(db, who, tenant_id=tenant_id, filters=filters, page=page)


def _bound(text: str | None, field: str) -> dict[str, Any]:
    if text is not None and text.strip().isdecimal():
        if len(text.strip()) > 18:
            raise BadRequest(f"{field}: a sequence number must have at most 18 digits.")
        return {f"{field}_sequence": int(text)}
    return {field: parse_moment(text, field)}


handlers: list[Any] = [list_events]
router = Router(path="/", route_handlers=handlers)
