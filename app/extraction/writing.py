"""What becomes of proposals: the gates in their order, writes, reviews, and a line of record for every one."""

from collections import Counter
from datetime import UTC, datetime
from typing import Any

import msgspec

from app.access import Principal, new_id
from app.db.database import Session
from app.extraction import queries
from app.extraction.contradiction import contradicts
from app.extraction.decision import Proposal
from app.facts import retractions
from app.notes.content import normalize_content
from app.notes.deriving import (
    Applied,
    Derived,
    Link,
    Record,
    Source,
    Target,
    apply_extraction,
    forget_note,
    lock_notes,
    replace_note,
)
from app.tenancy.settings import PipelineSettings

LOW_CONFIDENCE = "low_fact_confidence"
REDACTED = "[REDACTED]"
EMPTY = "empty_fact_content"
BLOCKED = "destructive_mutations_disabled"
LOW_MUTATION_CONFIDENCE = "low_mutation_confidence"
CONTRADICTION = "contradiction_needs_review"


class Writing(msgspec.Struct, kw_only=True):
    """One job's proposals on their way."""

    source: Source
    settings: PipelineSettings
    model: str
    job_id: str
    statements: int
    relations: int
    tally: Counter[str] = msgspec.field(default_factory=Counter)
    drafts: list[Derived] = msgspec.field(default_factory=list)
    records: list[Record] = msgspec.field(default_factory=list)

    def describe(self, proposal: Proposal, outcome: str, reason: str | None = None, **more: Any) -> dict[str, Any]:
        """What is kept of a proposal: enough to see later how it was decided."""
        kept: dict[str, Any] = {
            "action": proposal.action,
            "outcome": outcome,
            "outcome_reason": reason,
            "mode": self.settings.mode,
            "fact": proposal.statement.content,
            "type": proposal.statement.type,
            "fact_confidence": proposal.statement.confidence,
            "confidence": proposal.confidence,
            "reason": proposal.reason,
            "source_note_id": self.source.note_id,
            "target_note_id": None if proposal.target is None else proposal.target.note_id,
            "extraction_model": self.model,
            "fact_count": self.statements,
            "entity_count": self.relations,
            "job_id": self.job_id,
            **more,
        }
        return {name: value for name, value in kept.items() if value is not None}

    def note(self, proposal: Proposal, outcome: str, reason: str | None = None, **more: Any) -> None:
        """Counts a proposal that changed nothing, and keeps its line."""
        self.tally[outcome] += 1
        described = self.describe(proposal, outcome, reason, **more)
        self.records.append(Record(reason=proposal.reason, proposal=described))


async def write_proposals(
    session: Session, who: Principal, writing: Writing, proposals: list[Proposal], *, link: Link | None
) -> Applied:
    """Applies what may be applied, and puts all on record; one transaction."""
    if not writing.settings.writes:
        for proposal in proposals:
            writing.note(proposal, "shadow", review_needed=_flagged(proposal) or None)
    else:
        targets = [one.target.note_id for one in proposals if one.target is not None]
        if targets and writing.settings.allow_update_delete:
            await lock_notes(session, who, [writing.source.note_id, *targets])
        _gate(writing, [one for one in proposals if one.action == "ADD"])
        for proposal in proposals:
            if proposal.action == "NONE":
                writing.note(proposal, "recorded")
            elif proposal.target is not None:
                await _mutate(session, who, writing, proposal)
    applied = await apply_extraction(
        session,
        writing.source,
        model=writing.model,
        drafts=writing.drafts,
        records=writing.records,
        link=link,
    )
    writing.tally += Counter(created=applied.created, deduped=applied.deduped)
    return applied


def _flagged(proposal: Proposal) -> bool:
    target = proposal.target
    return target is not None and contradicts(proposal.statement.content, target.content)


def _gate(writing: Writing, proposals: list[Proposal]) -> None:
    """The gates in their order: sure enough, not empty, not said twice; whether it is there the database knows."""
    hashes: set[str] = set()
    for proposal in proposals:
        statement = proposal.statement
        content = normalize_content(statement.content)
        if statement.confidence < writing.settings.min_fact_confidence_for_write:
            writing.note(proposal, "skipped", LOW_CONFIDENCE)
        elif not content.normalized:
            writing.note(proposal, "skipped", EMPTY)
        elif content.hash in hashes:
            writing.note(proposal, "deduped", "said_twice")
        else:
            hashes.add(content.hash)
            writing.drafts.append(
                Derived(
                    note_id=new_id(),
                    content=content.stored,
                    hash=content.hash,
                    type=statement.type,
                    confidence=statement.confidence,
                    proposal=writing.describe(proposal, "created"),
                )
            )


async def _mutate(session: Session, who: Principal, writing: Writing, proposal: Proposal) -> None:
    """A change of what is there: only in full mode, only when sure, and never against what it says without a person."""
    assert proposal.target is not None
    settings = writing.settings
    flagged = _flagged(proposal)
    review = {"review_needed": True} if flagged else {}
    if not settings.allow_update_delete:
        writing.note(proposal, "blocked", BLOCKED, **review)
        return
    if proposal.statement.confidence < settings.min_fact_confidence_for_write:
        writing.note(proposal, "blocked", LOW_CONFIDENCE, **review)
        return
    if proposal.confidence < settings.min_confidence_for_update_delete:
        writing.note(proposal, "blocked", LOW_MUTATION_CONFIDENCE, **review)
        return
    if REDACTED in proposal.statement.content:
        # What it stands for is in the note, and nowhere else.
        writing.note(proposal, "blocked", "redacted_content", **review)
        return
    if flagged:
        review_id = await _ask_for_review(session, writing, proposal)
        writing.note(proposal, "review", CONTRADICTION, review_needed=True, review_id=review_id)
        return
    target = Target(note_id=proposal.target.note_id, version=proposal.target.version)
    record = writing.describe(proposal, "applied")
    refusal = await apply_change(
        session,
        who,
        action=proposal.action,
        target=target,
        content=proposal.statement.content,
        reason=proposal.reason,
        proposal=record,
    )
    if refusal is None:
        writing.tally["updated" if proposal.action == "UPDATE" else "deleted"] += 1
    else:
        writing.note(proposal, "blocked", refusal)


async def apply_change(
    session: Session,
    who: Principal,
    *,
    action: str,
    target: Target,
    content: str,
    reason: str,
    proposal: dict[str, Any],
) -> str | None:
    """Replaces or forgets a note; what rests on a forgotten one alone is taken back. Answers why not, if not."""
    if action == "UPDATE":
        return await replace_note(session, who, target, content=content, reason=reason, proposal=proposal)
    refusal = await forget_note(session, who, target, reason=reason, proposal=proposal)
    if refusal is None:
        await retractions.retract_supported_only_by(session, who, note_id=target.note_id, reason=reason)
    return refusal


async def _ask_for_review(session: Session, writing: Writing, proposal: Proposal) -> str:
    assert proposal.target is not None
    source = writing.source
    review_id = new_id()
    row = {
        "tenant_id": source.tenant_id,
        "review_id": review_id,
        "project_id": source.project_id,
        "agent_id": source.agent_id,
        "scope": source.scope,
        "garden_id": source.garden_id,
        "note_id": source.note_id,
        "target_note_id": proposal.target.note_id,
        "target_version": proposal.target.version,
        "action": proposal.action.lower(),
        "content": proposal.statement.content,
        "content_type": proposal.statement.type,
        "confidence": proposal.confidence,
        "reason": proposal.reason,
        "extraction_model": writing.model,
        "created_at": datetime.now(UTC),
    }
    await queries.insert_reviews(session, rows=[row])
    return review_id
