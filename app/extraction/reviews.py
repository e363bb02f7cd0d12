"""Use cases of reviews: list, read, approve and reject proposals that contradict a note."""

from datetime import UTC, datetime
from typing import Any
from uuid import UUID

from app.access import Principal, require_own, require_project
from app.audit import events as audit
from app.db.counts import COUNT_LIMIT
from app.db.database import Database, Row, Session
from app.db.retries import retried
from app.errors import Conflict, NotFound
from app.extraction import queries
from app.extraction.proposals import apply_change
from app.extraction.schemas import (
    ReviewDecided,
    ReviewDecision,
    ReviewList,
    ReviewRead,
    ReviewStatus,
    ReviewTarget,
)
from app.notes import service as notes
from app.notes.derived_notes import TargetNote
from app.paging import Page
from app.tenancy import gardens
from app.tenancy.settings import find_settings

STALE_REASONS = {
    "target_gone": "The target note no longer exists.",
    "target_changed": "The target note has changed since the proposal; reject the review.",
    "target_pinned": "The target note is pinned; unpin it first.",
    "duplicate_content": "Another live note already has this content.",
    "no_change": "The target note already has this content.",
}


def _present(row: Row, target: ReviewTarget | None = None) -> ReviewRead:
    fields = {name: row[name] for name in queries.REVIEW_COLUMNS if name != "content_type"}
    for name in ("review_id", "note_id", "target_note_id", "garden_id"):
        fields[name] = None if row[name] is None else UUID(str(row[name]))
    return ReviewRead(**fields, type=row["content_type"], target=target)


async def list_reviews(db: Database, who: Principal, *, status: ReviewStatus | None, page: Page) -> ReviewList:
    """Return a page of the reviews that the caller can see, newest first."""
    after = None if page.after is None else (datetime.fromisoformat(page.after[0]), page.after[1])
    place: dict[str, Any] = {"tenant_id": who.tenant_id, "project_id": require_project(who), "status": status}
    found = await db.fetch(who, queries.select_reviews(**place, after=after, limit=page.limit + 1))
    rows, next_cursor = page.cut(found, key=lambda row: [row["created_at"].isoformat(), str(row["review_id"])])
    targets = await _targets(db, who, rows)
    return ReviewList(
        reviews=[_present(row, targets.get(str(row["target_note_id"]))) for row in rows],
        next_cursor=next_cursor,
        total=await page.count_rows(db, who, queries.select_reviews(**place, after=None, limit=COUNT_LIMIT)),
    )


async def get_review(db: Database, who: Principal, *, review_id: UUID) -> ReviewRead:
    """Return a review with its target note, or raise NotFound."""
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
    """Apply a proposal as the caller; raise Conflict when it is decided already or its target has changed."""
    settings = await find_settings(db, who)
    if settings.mutations_frozen:
        raise Conflict(
            "The project setting mutations_frozen is on; turn it off to approve proposals.", code="mutations_frozen"
        )
    return await retried(lambda: _approve(db, who, review_id=review_id, data=data))


async def _approve(db: Database, who: Principal, *, review_id: UUID, data: ReviewDecision) -> ReviewDecided:
    async with db.tenant(who) as session:
        review = await queries.lock_review(session, tenant_id=who.tenant_id, review_id=str(review_id))
        _require_pending(review)
        assert review is not None
        require_own(who, review["user_id"], "The review")
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
            target=TargetNote(note_id=str(review["target_note_id"]), version=review["target_version"]),
            content=review["content"],
            reason=data.reason or review["reason"],
            proposal=proposal,
        )
        if refusal is not None:
            raise Conflict(STALE_REASONS[refusal], code="review_stale", details={"reason": refusal})
        return ReviewDecided(review=await _decide(session, who, review, "approved", data))


async def reject(db: Database, who: Principal, *, review_id: UUID, data: ReviewDecision) -> ReviewDecided:
    """Reject a proposal, which changes no note; raise Conflict when it is decided already."""
    async with db.tenant(who) as session:
        review = await queries.lock_review(session, tenant_id=who.tenant_id, review_id=str(review_id))
        _require_pending(review)
        assert review is not None
        require_own(who, review["user_id"], "The review")
        if review["garden_id"] is not None:
            garden = UUID(str(review["garden_id"]))
            await gardens.require_writable(session, who, garden_id=garden, existing=True)
        return ReviewDecided(review=await _decide(session, who, review, "rejected", data))


def _require_pending(review: Row | None) -> None:
    if review is None:
        raise _review_not_found()
    if review["status"] != "pending":
        raise Conflict(f"This review is already {review['status']}.", code="review_already_decided")


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
    await audit.record(
        session,
        "review_decide",
        key_id=who.key_id,
        action=status,
        review_id=str(review["review_id"]),
        target_note_id=str(review["target_note_id"]),
    )
    return _present(row)


def _review_not_found() -> NotFound:
    """Return the error for a review that is unknown, hidden or of another tenant."""
    return NotFound("There is no such review.", code="review_not_found")
