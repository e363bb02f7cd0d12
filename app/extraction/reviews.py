"""Use cases of reviews: list them, and let what they propose happen or not."""

from datetime import UTC, datetime, timedelta
from uuid import UUID

from app.access import Principal, require_project
from app.db.database import Database, Row, Session
from app.db.retries import retried
from app.errors import Conflict, NotFound
from app.extraction import queries
from app.extraction.schemas import (
    ReviewDecided,
    ReviewDecision,
    ReviewList,
    ReviewRead,
    ReviewStatus,
    ReviewTarget,
    UsageList,
    UsageRead,
)
from app.extraction.writing import apply_change
from app.notes import service as notes
from app.notes.deriving import Target
from app.paging import Page
from app.tenancy import gardens
from app.tenancy.settings import find_settings

USAGE_DAYS = 31
STALE = {
    "target_gone": "The note it would change is gone.",
    "target_changed": "The note was changed since it was proposed; reject it, and let it be proposed anew.",
    "target_pinned": "The note is pinned; unpin it first.",
    "duplicate_content": "Another live note says the same already.",
    "no_change": "The note says this already.",
}


def _present(row: Row, target: ReviewTarget | None = None) -> ReviewRead:
    shown = {name: row[name] for name in queries.REVIEW if name not in ("content_type",)}
    for name in ("review_id", "note_id", "target_note_id", "garden_id"):
        shown[name] = None if row[name] is None else UUID(str(row[name]))
    return ReviewRead(**shown, type=row["content_type"], target=target)


async def list_reviews(db: Database, who: Principal, *, status: ReviewStatus | None, page: Page) -> ReviewList:
    """Reviews in the caller's reach, the newest first."""
    after = None if page.after is None else (datetime.fromisoformat(page.after[0]), page.after[1])
    statement = queries.select_reviews(
        tenant_id=who.tenant_id, project_id=require_project(who), status=status, after=after, limit=page.limit + 1
    )
    rows, next_cursor = page.cut(
        await db.fetch(who, statement), key=lambda row: [row["created_at"].isoformat(), str(row["review_id"])]
    )
    targets = await _targets(db, who, rows)
    return ReviewList(
        reviews=[_present(row, targets.get(str(row["target_note_id"]))) for row in rows], next_cursor=next_cursor
    )


async def get_review(db: Database, who: Principal, *, review_id: UUID) -> ReviewRead:
    """One review, with the note it would change."""
    rows = await db.fetch(who, queries.select_review(tenant_id=who.tenant_id, review_id=str(review_id)))
    if not rows:
        raise _review_not_found()
    targets = await _targets(db, who, rows)
    return _present(rows[0], targets.get(str(rows[0]["target_note_id"])))


async def _targets(db: Database, who: Principal, rows: list[Row]) -> dict[str, ReviewTarget]:
    ids = sorted({str(row["target_note_id"]) for row in rows})
    found = await notes.read_notes(db, who, ids=ids)
    return {
        str(note.note_id): ReviewTarget(note_id=note.note_id, content=note.content, version=note.version)
        for note in found
    }


async def approve(db: Database, who: Principal, *, review_id: UUID, data: ReviewDecision) -> ReviewDecided:
    """Does what was proposed, in the name of who approves; 409 when the note is no longer what it was."""
    settings = await find_settings(db, who)
    if settings.mutations_frozen:
        raise Conflict(
            "mutations_frozen is on: nothing is changed by proposals until it is off.", code="mutations_frozen"
        )
    return await retried(lambda: _approve(db, who, review_id=review_id, data=data))


async def _approve(db: Database, who: Principal, *, review_id: UUID, data: ReviewDecision) -> ReviewDecided:
    async with db.tenant(who) as session:
        review = await queries.lock_review(session, tenant_id=who.tenant_id, review_id=str(review_id))
        _require_pending(review)
        assert review is not None
        proposal = {
            "action": review["action"].upper(),
            "outcome": "approved",
            "fact": review["content"],
            "confidence": review["confidence"],
            "reason": review["reason"],
            "source_note_id": str(review["note_id"]),
            "target_note_id": str(review["target_note_id"]),
            "extraction_model": review["extraction_model"],
            "review_id": str(review_id),
            "review_needed": True,
        }
        refusal = await apply_change(
            session,
            who,
            action=review["action"].upper(),
            target=Target(note_id=str(review["target_note_id"]), version=review["target_version"]),
            content=review["content"],
            reason=data.reason or review["reason"],
            proposal=proposal,
        )
        if refusal is not None:
            raise Conflict(STALE[refusal], code="review_stale", details={"reason": refusal})
        return ReviewDecided(review=await _decide(session, who, review, "approved", data))


async def reject(db: Database, who: Principal, *, review_id: UUID, data: ReviewDecision) -> ReviewDecided:
    """Leaves everything as it is."""
    async with db.tenant(who) as session:
        review = await queries.lock_review(session, tenant_id=who.tenant_id, review_id=str(review_id))
        _require_pending(review)
        assert review is not None
        if review["garden_id"] is not None:
            garden = UUID(str(review["garden_id"]))
            await gardens.require_writable(session, who, garden_id=garden, scope=review["scope"])
        return ReviewDecided(review=await _decide(session, who, review, "rejected", data))


def _require_pending(review: Row | None) -> None:
    if review is None:
        raise _review_not_found()
    if review["status"] != "pending":
        raise Conflict(f"This review was {review['status']} already.", code="review_already_decided")


async def _decide(session: Session, who: Principal, review: Row, status: str, data: ReviewDecision) -> ReviewRead:
    row = await queries.decide_review(
        session,
        tenant_id=who.tenant_id,
        review_id=str(review["review_id"]),
        status=status,
        decided_by=who.agent_id,
        decision_reason=data.reason,
        decided_at=datetime.now(UTC),
    )
    return _present(row)


def _review_not_found() -> NotFound:
    """The one answer for a review that is unknown, hidden or of another tenant."""
    return NotFound("There is no such review.", code="review_not_found")


async def read_usage(db: Database, who: Principal) -> UsageList:
    """What models have cost the project in the last month, day by day, and how much of its budget is left."""
    settings = await find_settings(db, who)
    today = datetime.now(UTC).date()
    place = {"tenant": who.tenant_id, "project": require_project(who)}
    days = {"since": today - timedelta(days=USAGE_DAYS), "until": today + timedelta(days=1)}
    rows = await db.query(who, queries.USAGE, {**place, **days})
    (spent,) = await db.query(who, queries.SPENT, {**place, "period": settings.extraction_budget_period})
    return UsageList(
        usage=[UsageRead(**row) for row in rows],
        spent=spent["tokens"],
        budget=settings.extraction_token_budget,
        period=settings.extraction_budget_period,
    )
