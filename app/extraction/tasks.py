"""The jobs of extraction: extract a note, and link its relations into the graph.

Models are called between transactions, never within one. An extraction's writes, its completion and the creation of
its link job are one transaction: a worker that is killed repeats calls, but writes nothing twice.
"""

import asyncio
import time
from collections import deque
from datetime import UTC, datetime
from typing import Any

import msgspec

from app.access import Principal
from app.db.database import Database, Row
from app.db.retries import retried
from app.embeddings.redactions import BUILT_IN
from app.extraction import decisions, queries, statements
from app.extraction.calls import ModelCalls
from app.extraction.completions import NOT_JSON
from app.extraction.decisions import Candidate, Proposal
from app.extraction.graph_links import MAX_WARNINGS, link, plan_link, run_link
from app.extraction.models import Models
from app.extraction.proposals import ProposalBatch, apply_proposals
from app.extraction.source_notes import job_principal, read_note, show_note, source_note
from app.extraction.statements import Extraction, Statement
from app.extraction.trivial_notes import is_trivial
from app.jobs.registry import Job, JobContext, Postponed, Registry
from app.notes.derived_notes import LinkJob, SourceNote
from app.providers.base import UnusableResponse
from app.recall.query_vectors import ModelVectors, QueryVectors
from app.tenancy.settings import PipelineSettings, read_settings

MAX_CANDIDATES = 5
# Concurrent decisions about the statements of one note.
MAX_CONCURRENT = 4
# Seconds, doubling from one to thirty.
BACKOFF = (1.0, 2.0, 4.0, 8.0, 16.0, 30.0)
# A worker that extracts this many notes within a second is busy.
BUSY_NOTES = 10


class ExtractionTimedOut(Exception):
    """One attempt took longer than the project allows."""


class ExtractTask:
    """The handler of `extract`."""

    def __init__(self, models: Models, vectors: QueryVectors) -> None:
        self._models = models
        self._vectors = vectors
        self._ended: deque[float] = deque(maxlen=BUSY_NOTES)

    def is_busy(self) -> bool:
        """Return whether this process extracts many notes a second; waiting for a slow model is not busy."""
        return len(self._ended) == BUSY_NOTES and time.monotonic() - self._ended[0] < 1.0

    async def __call__(self, job: Job) -> None:
        await self._extract(job)
        self._ended.append(time.monotonic())

    async def _extract(self, job: Job) -> None:
        who = job_principal(job)
        job.scope = who
        row = await read_note(job, who)
        if row is None:
            await _skip(job, "note_gone")
            return
        settings = read_settings({"pipeline": row["pipeline"] or {}})
        if not settings.enabled:
            await _skip(job, "pipeline_disabled")
            return
        if is_trivial(row["content"]):
            await _skip(job, "trivial_note")
            return
        source = source_note(job, row)
        model = self._models.of(who.tenant_id, settings)
        calls = ModelCalls(job.db, who, job_id=job.job_id, model=model, settings=settings, spent=row["spent"])
        try:
            async with asyncio.timeout(settings.lease_timeout_ms / 1000):
                found = await _extract_statements(calls, await show_note(job, row))
                proposals, warnings = await self._decide_all(job.db, who, calls, source, found.statements)
        except TimeoutError as problem:
            raise ExtractionTimedOut(f"not done within {settings.lease_timeout_ms} ms (lease_timeout_ms)") from problem
        finally:
            await calls.flush()
        found = msgspec.structs.replace(found, warnings=[*found.warnings, *warnings])
        planned = plan_link(job, source, settings, found)
        # A lost transaction is written again with the same decisions.
        link_id = await retried(lambda: _write(job, who, source, settings, calls, found, proposals, planned))
        if link_id is not None and planned is not None:
            await run_link(job, source, planned, job_id=link_id, retry_seconds=BACKOFF[0])

    async def _decide_all(
        self, db: Database, who: Principal, calls: ModelCalls, source: SourceNote, found: list[Statement]
    ) -> tuple[list[Proposal], list[str]]:
        """Return a proposal for each statement, and warnings for those whose decision could not be used."""
        slots = asyncio.Semaphore(MAX_CONCURRENT)

        async def decide(index: int, statement: Statement) -> tuple[Proposal | None, str | None]:
            async with slots:
                proposal, problem = await self._decide(db, who, calls, source, statement)
                return proposal, None if problem is None else f"decision[{index}]: {problem}"

        try:
            async with asyncio.TaskGroup() as group:
                tasks = [group.create_task(decide(index, statement)) for index, statement in enumerate(found)]
        except ExceptionGroup as problems:
            # The job fails with the first of them.
            raise problems.exceptions[0] from None
        decided = [task.result() for task in tasks]
        proposals = [one for one, _ in decided if one is not None]
        problems = [problem for _, problem in decided if problem]
        if not proposals and any(problem.endswith(NOT_JSON) for problem in problems):
            raise _unusable(calls, problems)
        return proposals, problems

    async def _decide(
        self, db: Database, who: Principal, calls: ModelCalls, source: SourceNote, statement: Statement
    ) -> tuple[Proposal | None, str | None]:
        candidates = await self._find_candidates(db, who, source, statement)
        if not candidates:
            return decisions.propose_add(statement), None
        completion = await calls.complete(
            "decision",
            decisions.decision_prompt(statement, candidates),
            max_tokens=decisions.MAX_ANSWER_TOKENS,
            json_schema=decisions.ANSWER_SCHEMA,
        )
        return decisions.parse_decision(completion, statement, candidates)

    async def _find_candidates(
        self, db: Database, who: Principal, source: SourceNote, statement: Statement
    ) -> list[Candidate]:
        vector = await self._vectors.embed(who.tenant_id, statement.content)
        params: dict[str, Any] = {
            "tenant": who.tenant_id,
            "project": who.project_id,
            "text": statement.content,
            "model": None if vector is None else vector.model_id,
            "dimensions": None if vector is None else vector.model.dimensions,
            "vector": None if vector is None else vector.text,
            "scope": source.scope,
            "owner": source.owner_key,
            "skipped": [source.note_id],
            "patterns": list(BUILT_IN),
            "limit": MAX_CANDIDATES,
        }
        rows = await db.query(who, queries.SIMILAR, params)
        return [
            Candidate(
                note_id=str(row["note_id"]),
                type=row["type"],
                content=row["content"],
                version=row["version"],
                score=row["score"],
            )
            for row in rows
        ]


async def _extract_statements(calls: ModelCalls, row: Row) -> Extraction:
    messages, warnings = statements.extraction_prompt(
        row["content"], author=row["author"], occurred_at=row["occurred_at"]
    )
    completion = await calls.complete(
        "extraction", messages, max_tokens=statements.MAX_ANSWER_TOKENS, json_schema=statements.ANSWER_SCHEMA
    )
    found = statements.parse_extraction(completion)
    if found.is_unusable:
        raise _unusable(calls, found.warnings)
    return msgspec.structs.replace(found, warnings=[*warnings, *found.warnings])


def _unusable(calls: ModelCalls, warnings: list[str]) -> UnusableResponse:
    """Return the error of an attempt whose completions could not be read."""
    return UnusableResponse(
        f"{calls.model_name} did not return the JSON that was asked for: {'; '.join(warnings[:5])}."
    )


async def _write(
    job: Job,
    who: Principal,
    source: SourceNote,
    settings: PipelineSettings,
    calls: ModelCalls,
    found: Extraction,
    proposals: list[Proposal],
    planned: LinkJob | None,
) -> str | None:
    """Apply the proposals and complete the job; return the id of the link job when the caller holds its lease."""
    batch = ProposalBatch(
        source=source,
        settings=settings,
        model=calls.model_name,
        job_id=job.job_id,
        statements=len(found.statements),
        relations=len(found.relations),
    )
    async with job.finishing() as session:
        applied = await apply_proposals(session, who, batch, proposals, link=planned)
        if applied.changed:
            # The note has another version by now, which is extracted instead.
            raise Postponed(datetime.now(UTC))
        job.result = {
            "mode": settings.mode,
            "facts": batch.statements,
            "entities": batch.relations,
            "outcomes": {name: count for name, count in batch.outcomes.items() if count},
            "warnings": found.warnings[:MAX_WARNINGS],
            "model": batch.model,
            "usage": calls.as_dict(),
            **({} if applied.link_job is None else {"graph_job_id": str(applied.link_job)}),
        }
    return None if applied.link_job is None or applied.waits else str(applied.link_job)


async def _skip(job: Job, reason: str) -> None:
    """Complete a job that has nothing to do, and settle the status of its note, even of one that is hidden."""
    async with job.finishing() as session:
        await job.update_subject(session, "cancelled")
        job.result = {"skipped": reason}


def register_jobs(registry: Registry, context: JobContext) -> None:
    """Register extraction and linking."""
    vectors = ModelVectors(context.db, context.embedders)
    registry.register("extract", ExtractTask(Models(context.settings), vectors), backoff=BACKOFF)
    registry.register("graph_link", link, backoff=BACKOFF)
