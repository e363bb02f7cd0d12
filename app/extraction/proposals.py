"""Applies proposals: checks each, writes or queues it for review, and records every one in the note's history."""

from collections import Counter
from datetime import UTC, datetime
from typing import Any

import msgspec

from app.access import Principal, new_id
from app.db.database import Session
from app.extraction import queries
from app.extraction.contradictions import contradicts
from app.extraction.decisions import Proposal
from app.notes.content import normalize_content
from app.notes.derived_notes import (
    AppliedExtraction,
    DerivedNote,
    LinkJob,
    ProposalRecord,
    SourceNote,
    TargetNote,
    apply_extraction,
    delete_target,
    lock_notes,
    update_target,
)
from app.tenancy.settings import PipelineSettings

LOW_CONFIDENCE = "low_fact_confidence"
REDACTED = "[REDACTED]"
EMPTY = "empty_fact_content"
BLOCKED = "destructive_mutations_disabled"
LOW_MUTATION_CONFIDENCE = "low_mutation_confidence"
CONTRADICTION = "contradiction_needs_review"


class ProposalBatch(msgspec.Struct, kw_only=True):
    """The proposals of one job, and what became of them so far."""

    source: SourceNote
    settings: PipelineSettings
    model: str
    job_id: str
    statements: int
    relations: int
    outcomes: Counter[str] = msgspec.field(default_factory=Counter)
    derived: list[DerivedNote] = msgspec.field(default_factory=list)
    records: list[ProposalRecord] = msgspec.field(default_factory=list)

    def describe(self, proposal: Proposal, outcome: str, reason: str | None = None, **more: Any) -> dict[str, Any]:
        """Return what the history keeps of a proposal."""
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

    def record(self, proposal: Proposal, outcome: str, reason: str | None = None, **more: Any) -> None:
        """Count and record a proposal that changes nothing."""
        self.outcomes[outcome] += 1
        described = self.describe(proposal, outcome, reason, **more)
        self.records.append(ProposalRecord(reason=proposal.reason, proposal=described))


async def apply_proposals(
    session: Session, who: Principal, batch: ProposalBatch, proposals: list[Proposal], *, link: LinkJob | None
) -> AppliedExtraction:
    """Apply the proposals that the project's mode allows and record all of them."""
    if not batch.settings.writes:
        for proposal in proposals:
            batch.record(proposal, "shadow", review_needed=_contradicts_target(proposal) or None)
    else:
        targets = [one.target.note_id for one in proposals if one.target is not None]
        if targets and batch.settings.allow_update_delete:
            await lock_notes(session, who, [batch.source.note_id, *targets])
        _derive_notes(batch, [one for one in proposals if one.action == "ADD"])
        for proposal in proposals:
            if proposal.action == "NONE":
                batch.record(proposal, "recorded")
            elif proposal.target is not None:
                await _change_target(session, who, batch, proposal)
    applied = await apply_extraction(
        session,
        batch.source,
        model=batch.model,
        derived=batch.derived,
        records=batch.records,
        link=link,
    )
    batch.outcomes += Counter(created=applied.created, deduped=applied.deduped)
    return applied


def _contradicts_target(proposal: Proposal) -> bool:
    target = proposal.target
    return target is not None and contradicts(proposal.statement.content, target.content)


def _derive_notes(batch: ProposalBatch, proposals: list[Proposal]) -> None:
    """Add a derived note for each statement that is confident enough, not empty and not a repetition.

    Whether a live note has the same content is checked by the database when the notes are written.
    """
    hashes: set[str] = set()
    for proposal in proposals:
        statement = proposal.statement
        content = normalize_content(statement.content)
        if statement.confidence < batch.settings.min_fact_confidence_for_write:
            batch.record(proposal, "skipped", LOW_CONFIDENCE)
        elif not content.normalized:
            batch.record(proposal, "skipped", EMPTY)
        elif content.hash in hashes:
            batch.record(proposal, "deduped", "said_twice")
        else:
            hashes.add(content.hash)
            batch.derived.append(
                DerivedNote(
                    note_id=new_id(),
                    content=content.stored,
                    hash=content.hash,
                    type=statement.type,
                    confidence=statement.confidence,
                    proposal=batch.describe(proposal, "created"),
                )
            )


def _block_reason(settings: PipelineSettings, proposal: Proposal) -> str | None:
    """Return the code of why an update or deletion must not be applied, or None."""
    if not settings.allow_update_delete:
        return BLOCKED
    if proposal.statement.confidence < settings.min_fact_confidence_for_write:
        return LOW_CONFIDENCE
    if proposal.confidence < settings.min_confidence_for_update_delete:
        return LOW_MUTATION_CONFIDENCE
    if REDACTED in proposal.statement.content:
        # The redacted text exists only in the source note and would be lost in the target.
        return "redacted_content"
    return None


async def _change_target(session: Session, who: Principal, batch: ProposalBatch, proposal: Proposal) -> None:
    """Update or delete the target of a proposal, unless it is blocked or contradicts it and needs a review."""
    assert proposal.target is not None
    contradicted = _contradicts_target(proposal)
    blocked = _block_reason(batch.settings, proposal)
    if blocked is not None:
        batch.record(proposal, "blocked", blocked, **({"review_needed": True} if contradicted else {}))
        return
    if contradicted:
        review_id = await _create_review(session, batch, proposal)
        batch.record(proposal, "review", CONTRADICTION, review_needed=True, review_id=review_id)
        return
    refusal = await apply_change(
        session,
        who,
        action=proposal.action,
        target=TargetNote(note_id=proposal.target.note_id, version=proposal.target.version),
        content=proposal.statement.content,
        reason=proposal.reason,
        proposal=batch.describe(proposal, "applied"),
    )
    if refusal is None:
        batch.outcomes["updated" if proposal.action == "UPDATE" else "deleted"] += 1
    else:
        batch.record(proposal, "blocked", refusal)


async def apply_change(
    session: Session,
    who: Principal,
    *,
    action: str,
    target: TargetNote,
    content: str,
    reason: str,
    proposal: dict[str, Any],
) -> str | None:
    """Update or delete a note; return None, or the code of why it cannot be done."""
    if action == "UPDATE":
        return await update_target(session, who, target, content=content, reason=reason, proposal=proposal)
    return await delete_target(session, who, target, reason=reason, proposal=proposal)


async def _create_review(session: Session, batch: ProposalBatch, proposal: Proposal) -> str:
    assert proposal.target is not None
    source = batch.source
    review_id = new_id()
    row = {
        "tenant_id": source.tenant_id,
        "review_id": review_id,
        "project_id": source.project_id,
        "agent_id": source.agent_id,
        "scope": source.scope,
        "garden_id": source.garden_id,
        "user_id": source.user_id,
        "note_id": source.note_id,
        "target_note_id": proposal.target.note_id,
        "target_version": proposal.target.version,
        "action": proposal.action.lower(),
        "content": proposal.statement.content,
        "content_type": proposal.statement.type,
        "confidence": proposal.confidence,
        "reason": proposal.reason,
        "extraction_model": batch.model,
        "created_at": datetime.now(UTC),
    }
    await queries.insert_reviews(session, rows=[row])
    return review_id
