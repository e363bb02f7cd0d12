"""Jobs of the pipeline: extract a note, and link what it says into the graph.

Models are asked between transactions, never within one. What an extraction writes and its completion are one
transaction, and so is the job that links: a worker killed at any line repeats calls, and writes nothing twice.
"""

import asyncio
import time
from collections import deque
from datetime import UTC, datetime
from typing import Any, cast
from uuid import UUID

import msgspec
import structlog

from app.access import AGENT_SCOPES, Principal
from app.db.database import Database, Row
from app.db.retries import retried
from app.embeddings.redactions import BUILT_IN
from app.extraction import decision, extraction, queries
from app.extraction.decision import Candidate, Proposal
from app.extraction.extraction import Extraction, Statement
from app.extraction.models import Calls, Models
from app.extraction.writing import Writing, write_proposals
from app.facts import writes as facts
from app.facts.schemas import FactCreate, ObjectIn
from app.jobs.registry import Job, JobContext, LeaseLost, Postponed, Registry
from app.notes.deriving import PIPELINE, Link, Source
from app.recall.query_vectors import ModelVectors, QueryVectors
from app.telemetry.logs import describe_failure
from app.tenancy.schemas import Visibility
from app.tenancy.settings import PipelineSettings, read_settings

log: structlog.stdlib.BoundLogger = structlog.get_logger()

CANDIDATES = 5
# Questions of one note that a model is asked at the same time.
AT_ONCE = 4
MAX_WARNINGS = 50
# Seconds: doubling from one to thirty.
BACKOFF = (1.0, 2.0, 4.0, 8.0, 16.0, 30.0)
LINK_ATTEMPTS = 8
# Notes a second.
BUSY = 10
LINK_LEASE_SECONDS = 30.0


def acting(job: Job) -> Principal:
    """As whom a job works: the note's agent, and in its garden."""
    garden = job.payload.get("garden_id")
    return Principal(
        tenant_id=job.scope.tenant_id,
        project_id=job.scope.project_id,
        agent_id=job.scope.agent_id,
        gardens=() if garden is None else (str(garden),),
        key_id=PIPELINE,
        kind="agent",
        scopes=frozenset(AGENT_SCOPES),
    )


class ExtractTask:
    """The handler of `extract`."""

    def __init__(self, models: Models, vectors: QueryVectors) -> None:
        self._models = models
        self._vectors = vectors
        self._ended: deque[float] = deque(maxlen=BUSY)

    def is_busy(self) -> bool:
        """Whether notes go through this process one after the other; waiting for a slow model is not work."""
        return len(self._ended) == BUSY and time.monotonic() - self._ended[0] < 1.0

    async def __call__(self, job: Job) -> None:
        await self._extract(job)
        self._ended.append(time.monotonic())

    async def _extract(self, job: Job) -> None:
        who = acting(job)
        job.scope = who
        row = await _read(job, who)
        if row is None:
            await _end(job, "note_gone")
            return
        settings = read_settings({"pipeline": row["pipeline"] or {}})
        source = _source(job, row)
        if not settings.enabled:
            await _end(job, "pipeline_disabled")
            return
        calls = Calls(
            job.db,
            who,
            job_id=job.job_id,
            model=self._models.of(who.tenant_id, settings),
            settings=settings,
            spent=row["spent"],
        )
        try:
            async with asyncio.timeout(settings.lease_timeout_ms / 1000):
                found = await _extract(calls, row)
                proposals, warnings = await self._decide(job.db, who, calls, source, found.statements)
        except TimeoutError as problem:
            raise ExtractionTimedOut(f"not done within {settings.lease_timeout_ms} ms (lease_timeout_ms)") from problem
        finally:
            await calls.flush()
        warnings = [*found.warnings, *warnings]
        # One that met others at the same notes is written anew, not decided anew.
        link_made = _link(job, source, settings, found)
        linked = await retried(
            lambda: _write(job, who, _begin(job, source, settings, calls, found), link_made, proposals, calls, warnings)
        )
        if linked is not None and link_made is not None:
            await _link_now(job, source, link_made, linked)

    async def _decide(
        self, db: Database, who: Principal, calls: Calls, source: Source, statements: list[Statement]
    ) -> tuple[list[Proposal], list[str]]:
        """What to do with each statement, by itself; warnings of answers that could not be used."""
        slots = asyncio.Semaphore(AT_ONCE)

        async def one(index: int, statement: Statement) -> tuple[Proposal | None, str | None]:
            async with slots:
                candidates = await self._candidates(db, who, source, statement)
                if not candidates:
                    return decision.add(statement), None
                messages = decision.decision_prompt(statement, candidates)
                answer = await calls.ask(
                    "decision",
                    messages,
                    max_tokens=decision.MAX_ANSWER_TOKENS,
                    json_schema=decision.ANSWER_SCHEMA,
                )
                proposal, problem = decision.read_decision(answer, statement, candidates)
                return proposal, None if problem is None else f"decision[{index}]: {problem}"

        try:
            async with asyncio.TaskGroup() as group:
                tasks = [group.create_task(one(index, statement)) for index, statement in enumerate(statements)]
        except ExceptionGroup as problems:
            # The first of them is the job's.
            raise problems.exceptions[0] from None
        decided = [task.result() for task in tasks]
        return [one for one, _ in decided if one is not None], [problem for _, problem in decided if problem]

    async def _candidates(self, db: Database, who: Principal, source: Source, statement: Statement) -> list[Candidate]:
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
            "limit": CANDIDATES,
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


class ExtractionTimedOut(Exception):
    """One attempt took longer than the project allows."""


async def _read(job: Job, who: Principal) -> Row | None:
    if "note_id" not in job.payload:
        # Erased meanwhile.
        return None
    params = {
        "tenant": who.tenant_id,
        "project": who.project_id,
        "note": job.payload["note_id"],
        "patterns": list(BUILT_IN),
    }
    rows = await job.db.query(who, queries.READ_EXTRACTION, params)
    return rows[0] if rows else None


def _source(job: Job, row: Row) -> Source:
    assert job.scope.project_id is not None
    return Source(
        tenant_id=job.scope.tenant_id,
        project_id=job.scope.project_id,
        note_id=str(job.payload["note_id"]),
        garden_id=None if row["garden_id"] is None else str(row["garden_id"]),
        **{name: row[name] for name in ("agent_id", "scope", "owner_key", "occurred_at", "version")},
    )


async def _extract(calls: Calls, row: Row) -> Extraction:
    messages, warnings = extraction.extraction_prompt(
        row["content"], author=row["author"], occurred_at=row["occurred_at"]
    )
    answer = await calls.ask(
        "extraction", messages, max_tokens=extraction.MAX_ANSWER_TOKENS, json_schema=extraction.ANSWER_SCHEMA
    )
    found = extraction.read_extraction(answer)
    return msgspec.structs.replace(found, warnings=[*warnings, *found.warnings])


def _begin(job: Job, source: Source, settings: PipelineSettings, calls: Calls, found: Extraction) -> Writing:
    return Writing(
        source=source,
        settings=settings,
        model=calls.name,
        job_id=job.job_id,
        statements=len(found.statements),
        relations=len(found.relations),
    )


async def _write(
    job: Job,
    who: Principal,
    writing: Writing,
    link_made: Link | None,
    proposals: list[Proposal],
    calls: Calls,
    warnings: list[str],
) -> str | None:
    """One transaction; answers the job that is now ours to do, if there is one."""
    async with job.finishing() as session:
        applied = await write_proposals(session, who, writing, proposals, link=link_made)
        if applied.changed:
            # Changed or deleted meanwhile: what was read is not what it says, so it is read again.
            raise Postponed(datetime.now(UTC))
        job.result = {
            "mode": writing.settings.mode,
            "facts": writing.statements,
            "entities": writing.relations,
            "outcomes": {name: count for name, count in writing.tally.items() if count},
            "warnings": warnings[:MAX_WARNINGS],
            "model": writing.model,
            "usage": calls.as_dict(),
            **({} if applied.link_job is None else {"graph_job_id": str(applied.link_job)}),
        }
    return None if applied.link_job is None or applied.waits else str(applied.link_job)


async def _link_now(job: Job, source: Source, made: Link, job_id: str) -> None:
    """Does the job that was just made, which saves it the way through the queue; it goes there when this fails."""
    linking = job.follow_up(job_id, "graph_link", payload=made.payload, max_attempts=made.attempts)
    try:
        await _link_facts(linking, source)
    except LeaseLost:
        pass
    except Exception as problem:  # noqa: BLE001 - what was extracted is written; the queue tries this again
        log.warning("graph_link_failed", job_id=job_id, **describe_failure(problem))
        await linking.return_to_queue(problem, seconds=BACKOFF[0])


def _link(job: Job, source: Source, settings: PipelineSettings, found: Extraction) -> Link | None:
    if not (settings.writes and settings.graph_enabled and found.relations):
        return None
    payload: dict[str, Any] = {
        "note_id": source.note_id,
        "garden_id": source.garden_id,
        "relations": msgspec.to_builtins(found.relations),
    }
    return Link(payload=payload, attempts=LINK_ATTEMPTS, owner=job.owner, lease_seconds=LINK_LEASE_SECONDS)


async def _end(job: Job, reason: str) -> None:
    """Ends a job that has nothing to do; its note waits no longer, also one that cannot be seen."""
    async with job.finishing() as session:
        await job.update_subject(session, "cancelled")
        job.result = {"skipped": reason}


async def link(job: Job) -> None:
    """Writes the facts that a note's relations say, with the note as evidence; a transaction of its own."""
    job.scope = acting(job)
    row = await _read(job, acting(job))
    settings = PipelineSettings() if row is None else read_settings({"pipeline": row["pipeline"] or {}})
    if row is None or not (settings.writes and settings.graph_enabled):
        async with job.finishing():
            job.result = {"skipped": "note_gone" if row is None else f"mode_{settings.mode}"}
        return
    await _link_facts(job, _source(job, row))


async def _link_facts(job: Job, source: Source) -> None:
    who = acting(job)
    job.scope = who
    relations = msgspec.convert(job.payload["relations"], list[extraction.Relation])
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


def _fact(source: Source, relation: extraction.Relation) -> FactCreate:
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


def register_jobs(registry: Registry, context: JobContext) -> None:
    """Register extraction and linking."""
    vectors = ModelVectors(context.db, context.embedders)
    registry.register("extract", ExtractTask(Models(context.settings), vectors), backoff=BACKOFF)
    registry.register("graph_link", link, backoff=BACKOFF)
