"""Use cases of sources: register, list, and keep the trust in their facts current."""

import time
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID
from weakref import WeakKeyDictionary

from app.access import Principal, new_id, require_project
from app.audit import events as audit
from app.db.database import Database, Row, Session
from app.db.scope import Scope
from app.facts.names import plain_text
from app.facts.queries import FIRST_ID
from app.facts.sources import queries
from app.facts.sources.schemas import SourceList, SourcePut, SourceRead, SourceWritten
from app.jobs.queue import NewJob, enqueue
from app.jobs.registry import Job
from app.outcomes import Outcome
from app.paging import Page
from app.retrieval.trust import Record, TrustMode, judge_source

CACHED_SECONDS = 60.0
MAX_CACHED = 50_000
REFRESHED_AT_ONCE = 1000
SOURCES_AT_ONCE = 100


class SourceTrust:
    """The trust in a source: when one of its agents writes in its name, and when another agent does."""

    __slots__ = ("agents", "mode", "other_trust", "trust", "until")

    def __init__(self, row: Row) -> None:
        self.mode: TrustMode = row["trust_mode"]
        self.agents: list[str] = row["agents"] or []
        standing = {
            "blocklisted": row["blocklisted"],
            "facts": row["facts"],
            "failures": row["failures"],
            **({} if row["known_for"] is None else {"known_for": row["known_for"]}),
        }
        registered = {name: row[name] for name in ("identity", "authority") if row[name] is not None}
        self.trust = judge_source(Record(**registered, **standing), self.mode)
        self.other_trust = judge_source(Record(blocklisted=row["blocklisted"]), self.mode)
        self.until = time.monotonic() + CACHED_SECONDS

    def for_agent(self, agent_id: str) -> float:
        """Return the trust when this agent writes."""
        return self.trust if not self.agents or agent_id in self.agents else self.other_trust


_cache: WeakKeyDictionary[Database, dict[tuple[str, str | None, str], SourceTrust]] = WeakKeyDictionary()


async def set_trust(db: Database, who: Principal, facts: list[Row]) -> None:
    """Set `source_trust` of the facts that name a source; trust is cached for a minute."""
    names = {row["source"] for row in facts if row["source"] is not None}
    if not names:
        return
    known = _cache.setdefault(db, {})
    now = time.monotonic()
    # A copy of its own: other tasks may clear the cache while this one waits for the database.
    judged = {name: found for name in names if (found := known.get(_key(who, name))) and found.until >= now}
    if missing := sorted(names - set(judged)):
        for row in await db.query(who, queries.JUDGE_SOURCES, {"sources": missing}):
            judged[row["source"]] = SourceTrust(row)
        if len(known) > MAX_CACHED:
            known.clear()
        known.update({_key(who, name): judged[name] for name in missing})
    for row in facts:
        if row["source"] is not None:
            row["source_trust"] = judged[row["source"]].for_agent(who.agent_id)


def _key(who: Scope, source: str) -> tuple[str, str | None, str]:
    return (who.tenant_id, who.project_id, source)


async def put_source(session: Session, who: Principal, *, data: SourcePut) -> Outcome[SourceWritten]:
    """Register or change a source; a job gives its existing facts the new trust."""
    now = datetime.now(UTC)
    row = {
        "tenant_id": who.tenant_id,
        "project_id": require_project(who),
        "source_id": new_id(),
        "source": plain_text(data.source, "source"),
        "identity": data.identity,
        "authority": data.authority,
        "agents": list(dict.fromkeys(data.agents)),
        "blocklisted": data.blocklisted,
        "created_at": now,
        "updated_at": now,
    }
    made, created = await queries.put_source(session, row=row)
    (judged,) = await session.query(queries.JUDGE_SOURCES, {"sources": [row["source"]]})
    source_id = str(made["source_id"])
    job = NewJob(kind="trust", payload={"source_id": source_id}, dedupe_key=source_id)
    job_id = await enqueue(session, who, job=job)
    await audit.record(session, "admin_action", key_id=who.key_id, action="source_put", source_id=source_id)
    session.after_commit(_cache.clear)
    source = _present(made, SourceTrust(judged))
    return Outcome(SourceWritten(source=source, created=created, job_id=UUID(job_id)), created=created)


def _present(row: Row, trust: SourceTrust) -> SourceRead:
    return SourceRead(
        source_id=UUID(str(row["source_id"])),
        source=row["source"],
        identity=row["identity"],
        authority=row["authority"],
        agents=list(row["agents"]),
        blocklisted=row["blocklisted"],
        trust=trust.trust,
        trust_mode=trust.mode,
        created_at=row["created_at"],
        updated_at=row["updated_at"],
    )


async def list_sources(db: Database, who: Principal, *, page: Page) -> SourceList:
    """Return the registered sources by name, with the trust each has now."""
    after = "" if page.after is None else page.after[0]
    place = {"tenant_id": who.tenant_id, "project_id": require_project(who)}
    found = await db.fetch(who, queries.select_sources(**place, after=after, limit=page.limit + 1))
    rows, next_cursor = page.cut(found, key=lambda row: [row["source"]])
    judged: dict[str, Any] = {}
    if rows:
        names = [row["source"] for row in rows]
        judged = {row["source"]: row for row in await db.query(who, queries.JUDGE_SOURCES, {"sources": names})}
    total = await page.count(lambda: db.fetch(who, queries.count_sources(**place)))
    shown = [_present(row, SourceTrust(judged[row["source"]])) for row in rows]
    return SourceList(sources=shown, next_cursor=next_cursor, total=total)


class _Changed(Exception):
    """The source, or the project's trust mode, changed while facts were refreshed."""


async def refresh_trust(job: Job) -> None:
    """Give facts and their edges the current trust of their sources; start over when that changes meanwhile.

    The payload names a source, a fact whose source is meant, or nothing for all sources of the project.
    """
    place = {"tenant_id": job.scope.tenant_id, "project_id": job.scope.project_id or ""}
    source_id = job.payload.get("source_id")
    while True:
        source: Row | None = None
        if source_id is not None:
            (source, *_) = [*await job.db.fetch(job.scope, queries.select_source(**place, source_id=source_id)), None]
            modes = [] if source is None else await _refresh(job, [source["source"]])
        else:
            modes = await _refresh_named(job)
        try:
            async with job.finishing() as session:
                # Locked until the job has ended: a later change enqueues a job of its own.
                if source_id is not None:
                    now = await queries.lock_source(session, **place, source_id=source_id)
                    if now is not None and (source is None or now["updated_at"] != source["updated_at"]):
                        raise _Changed
                (project,) = await session.query(
                    queries.LOCK_TRUST_MODE, {"tenant": place["tenant_id"], "project": place["project_id"]}
                )
                if any(mode != project["trust_mode"] for mode in modes):
                    raise _Changed
                await _repeat(session, job)
            return
        except _Changed:
            continue


async def _repeat(session: Session, job: Job) -> None:
    """Run the job once more when no process has the earlier trust in its cache."""
    if "repeated" not in job.payload:
        later = NewJob(
            kind="trust",
            payload={**job.payload, "repeated": True},
            dedupe_key=f"{job.payload.get('source_id') or job.payload.get('fact_id') or 'project'} repeated",
            available_at=datetime.now(UTC) + timedelta(seconds=CACHED_SECONDS + 5),
        )
        await enqueue(session, job.scope, job=later)


async def _refresh_named(job: Job) -> list[TrustMode]:
    """Refresh the sources that facts name; return the trust modes that were used."""
    modes: list[TrustMode] = []
    after = ""
    while True:
        asked = {"fact": job.payload.get("fact_id"), "after": after, "limit": SOURCES_AT_ONCE}
        names = [row["source"] for row in await job.db.query(job.scope, queries.FACT_SOURCES, asked)]
        if not names:
            return modes
        modes += await _refresh(job, names)
        after = names[-1]


async def _refresh(job: Job, names: list[str]) -> list[TrustMode]:
    modes: list[TrustMode] = []
    for known in await job.db.query(job.scope, queries.JUDGE_SOURCES, {"sources": names}):
        judged = SourceTrust(known)
        modes.append(judged.mode)
        after: str | None = FIRST_ID
        while after is not None:
            arguments = {
                "source": known["source"],
                "agents": judged.agents,
                "trust": judged.trust,
                "otherwise": judged.other_trust,
                "after": after,
                "limit": REFRESHED_AT_ONCE,
            }
            async with job.db.tenant(job.scope) as session:
                row = await session.row(queries.REFRESH_TRUST, arguments)
            after = None if row is None else str(row["fact_id"])
    return modes
