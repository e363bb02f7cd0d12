"""The graph_link job: writes the relations of a note as facts, with the note as their evidence."""

from typing import Any, cast
from uuid import UUID

import msgspec
import structlog

from app.db.retries import retried
from app.extraction.source_notes import job_principal, read_note, source_note
from app.extraction.statements import Extraction, Relation
from app.facts import writes as facts
from app.facts.schemas import FactCreate, ObjectIn
from app.jobs.registry import Job, LeaseLost
from app.notes.derived_notes import PIPELINE, LinkJob, SourceNote
from app.telemetry.logs import describe_failure
from app.tenancy.schemas import Visibility
from app.tenancy.settings import PipelineSettings, read_settings

log: structlog.stdlib.BoundLogger = structlog.get_logger()

ATTEMPTS = 8
LEASE_SECONDS = 30.0
MAX_WARNINGS = 50


def plan_link(job: Job, source: SourceNote, settings: PipelineSettings, found: Extraction) -> LinkJob | None:
    """Return the link job of an extraction, leased to the same worker; None when there is nothing to link."""
    if not (settings.writes and settings.graph_enabled and found.relations):
        return None
    payload: dict[str, Any] = {
        "note_id": source.note_id,
        "garden_id": source.garden_id,
        "relations": msgspec.to_builtins(found.relations),
    }
    return LinkJob(payload=payload, attempts=ATTEMPTS, owner=job.owner, lease_seconds=LEASE_SECONDS)


async def link(job: Job) -> None:
    """Handle graph_link: write the facts of a note's relations in one transaction."""
    who = job_principal(job)
    job.scope = who
    row = await read_note(job, who)
    settings = PipelineSettings() if row is None else read_settings({"pipeline": row["pipeline"] or {}})
    if row is None or not (settings.writes and settings.graph_enabled):
        async with job.finishing():
            job.result = {"skipped": "note_gone" if row is None else f"mode_{settings.mode}"}
        return
    await _write_facts(job, source_note(job, row))


async def run_link(job: Job, source: SourceNote, planned: LinkJob, *, job_id: str, retry_seconds: float) -> None:
    """Run a link job that was just created, without the queue; return it to the queue when it fails."""
    link_job = job.follow_up(job_id, "graph_link", payload=planned.payload, max_attempts=planned.attempts)
    try:
        await _write_facts(link_job, source)
    except LeaseLost:
        pass
    except Exception as problem:  # noqa: BLE001 - the extraction itself is committed, and the queue retries this
        log.warning("graph_link_failed", job_id=job_id, **describe_failure(problem))
        await link_job.return_to_queue(problem, seconds=retry_seconds)


async def _write_facts(job: Job, source: SourceNote) -> None:
    who = job_principal(job)
    job.scope = who
    relations = msgspec.convert(job.payload["relations"], list[Relation])
    drafts, refused = facts.draft_all(who, [_fact(source, relation) for relation in relations])
    await facts.set_trust(job.db, who, drafts)

    async def write() -> None:
        async with job.finishing() as session:
            written = await facts.write_drafts(session, who, drafts)
            warnings = [*refused, *(f"entities[{index}]: {code}" for index, code in written.refused)]
            if warnings:
                log.warning("graph_link_partial", job_id=job.job_id, refused=len(warnings))
            job.result = {
                "facts_created": written.created,
                "facts_confirmed": written.reused,
                "warnings": warnings[:MAX_WARNINGS],
            }

    await retried(write)


def _fact(source: SourceNote, relation: Relation) -> FactCreate:
    return FactCreate(
        subject=relation.source,
        predicate=relation.relationship,
        object=ObjectIn(entity=relation.target),
        scope=cast("Visibility", source.scope),
        garden_id=None if source.garden_id is None else UUID(source.garden_id),
        source=PIPELINE,
        confidence=relation.confidence,
        valid_from=source.occurred_at,
        evidence=[UUID(source.note_id)],
    )
