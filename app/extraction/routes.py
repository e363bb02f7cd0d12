"""HTTP routes of extraction: reviews and usage."""

from typing import Annotated, Any
from uuid import UUID

from litestar import Router, get, post
from litestar.params import FromPath, JSONBody, QueryParameter

from app.extraction import reviews, usage
from app.extraction.schemas import ReviewDecided, ReviewDecision, ReviewList, ReviewRead, ReviewStatus, UsageList
from app.paging import Page
from app.web.auth import Access
from app.web.requests import Cursor, Cursors, Db, IncludeTotal, Limit, Who

READ = Access(work="read", scopes=("notes:read",))
WRITE = Access(work="write", scopes=("notes:write",))
METRICS = Access(work="read", scopes=("graph:admin:metrics", "admin"))


@get("/reviews", opt={"access": READ}, summary="List reviews", tags=["pipeline"])
async def list_reviews(
    db: Db,
    who: Who,
    cursors: Cursors,
    status: Annotated[ReviewStatus | None, QueryParameter(description="Only reviews with this status.")] = None,
    limit: Limit = 50,
    cursor: Cursor = None,
    include_total: IncludeTotal = False,
) -> ReviewList:
    """Lists changes that extraction proposes and that contradict a note, so that somebody has to decide; newest
    first."""
    page = Page(cursors, who, "reviews", limit=limit, cursor=cursor, include_total=include_total, status=status)
    return await reviews.list_reviews(db, who, status=status, page=page)


@get("/reviews/{review_id:uuid}", opt={"access": READ}, summary="Get a review", tags=["pipeline"])
async def get_review(db: Db, who: Who, review_id: FromPath[UUID]) -> ReviewRead:
    """Returns the review with its target note as it is now."""
    return await reviews.get_review(db, who, review_id=review_id)


@post(
    "/reviews/{review_id:uuid}/approve",
    opt={"access": WRITE},
    status_code=200,
    summary="Approve a review",
    tags=["pipeline"],
)
async def approve_review(
    db: Db, who: Who, review_id: FromPath[UUID], data: JSONBody[ReviewDecision | None] = None
) -> ReviewDecided:
    """Applies the proposal. An update keeps the old content in the note's history; a deletion can be recovered for 30
    days. Returns 409 `review_stale` when the target note has changed, `review_already_decided` when it is decided."""
    return await reviews.approve(db, who, review_id=review_id, data=data or ReviewDecision())


@post(
    "/reviews/{review_id:uuid}/reject",
    opt={"access": WRITE},
    status_code=200,
    summary="Reject a review",
    tags=["pipeline"],
)
async def reject_review(
    db: Db, who: Who, review_id: FromPath[UUID], data: JSONBody[ReviewDecision | None] = None
) -> ReviewDecided:
    """Rejects the proposal and changes no note; the review is kept."""
    return await reviews.reject(db, who, review_id=review_id, data=data or ReviewDecision())


@get("/usage", opt={"access": METRICS}, summary="Get token usage", tags=["pipeline"])
async def read_usage(db: Db, who: Who) -> UsageList:
    """Returns the project's calls and tokens by day and model of the last 31 days, and its budget."""
    return await usage.read_usage(db, who)


handlers: list[Any] = [list_reviews, get_review, approve_review, reject_review, read_usage]
router = Router(path="/", route_handlers=handlers)
