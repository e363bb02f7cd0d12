"""HTTP of the pipeline: reviews, and what models have cost."""

from typing import Annotated, Any
from uuid import UUID

from litestar import Router, get, post
from litestar.params import FromPath, JSONBody, QueryParameter

from app.extraction import reviews
from app.extraction.schemas import ReviewDecided, ReviewDecision, ReviewList, ReviewRead, ReviewStatus, UsageList
from app.paging import Page
from app.web.auth import Access
from app.web.requests import Cursor, Cursors, Db, Limit, Who

READ = Access(work="read", scopes=("notes:read",))
WRITE = Access(work="write", scopes=("notes:write",))
FIGURES = Access(work="read", scopes=("graph:admin:metrics", "admin"))


@get("/reviews", opt={"access": READ}, summary="List reviews", tags=["pipeline"])
async def list_reviews(
    db: Db,
    who: Who,
    cursors: Cursors,
    status: Annotated[ReviewStatus | None, QueryParameter(description="Only those that stand so.")] = None,
    limit: Limit = 50,
    cursor: Cursor = None,
) -> ReviewList:
    """Changes that the pipeline proposes against what is known, for somebody to decide; the newest first."""
    page = Page(cursors, who, "reviews", limit=limit, cursor=cursor, status=status)
    return await reviews.list_reviews(db, who, status=status, page=page)


@get("/reviews/{review_id:uuid}", opt={"access": READ}, summary="One review", tags=["pipeline"])
async def get_review(db: Db, who: Who, review_id: FromPath[UUID]) -> ReviewRead:
    """With the note it would change, as it is now."""
    return await reviews.get_review(db, who, review_id=review_id)


@post("/reviews/{review_id:uuid}/approve", opt={"access": WRITE}, status_code=200, summary="Approve", tags=["pipeline"])
async def approve_review(
    db: Db, who: Who, review_id: FromPath[UUID], data: JSONBody[ReviewDecision | None] = None
) -> ReviewDecided:
    """Does what was proposed: an update keeps the old words in the note's history, a deletion can be recovered for 30
    days. 409 `review_stale` when the note has changed since, `review_already_decided` when somebody was faster."""
    return await reviews.approve(db, who, review_id=review_id, data=data or ReviewDecision())


@post("/reviews/{review_id:uuid}/reject", opt={"access": WRITE}, status_code=200, summary="Reject", tags=["pipeline"])
async def reject_review(
    db: Db, who: Who, review_id: FromPath[UUID], data: JSONBody[ReviewDecision | None] = None
) -> ReviewDecided:
    """Leaves everything as it is; the review stays on record."""
    return await reviews.reject(db, who, review_id=review_id, data=data or ReviewDecision())


@get("/usage", opt={"access": FIGURES}, summary="What models have cost", tags=["pipeline"])
async def read_usage(db: Db, who: Who) -> UsageList:
    """Calls and tokens of the project by day and model, of the last 31 days, beside its budget."""
    return await reviews.read_usage(db, who)


handlers: list[Any] = [list_reviews, get_review, approve_review, reject_review, read_usage]
router = Router(path="/", route_handlers=handlers)
