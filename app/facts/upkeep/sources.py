"""Use cases of sources: who they are, and how far what they say is trusted."""

import time
from datetime import UTC, datetime
from typing import Any
from uuid import UUID
from weakref import WeakKeyDictionary

from app.access import Principal, new_id, require_project
from app.audit import recording as audit
from app.db.database import Database, Row
from app.db.scope import Scope
from app.facts.names import plain_text
from app.facts.upkeep import queries
from app.facts.upkeep.schemas import SourceList, SourcePut, SourceRead, SourceWritten
from app.jobs.queue import NewJob, enqueue
from app.jobs.registry import Job
from app.paging import Page
from app.retrieval.trust import Record, TrustMode, judge_source
from app.web.idempotency import Answer, Once

CACHED_SECONDS = 60.0
MAX_CACHED = 50_000
REFRESHED_AT_ONCE = 1000


class Judged:
    """How far a source is trusted when it speaks through these agents, and when somebody else uses its name."""

    __slots__ = ("agents", "mode", "otherwise", "trust", "until")

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
        self.otherwise = judge_source(Record(blocklisted=row["blocklisted"]), self.mode)
        self.until = time.monotonic() + CACHED_SECONDS

    def for_agent(self, agent_id: str) -> float:
        """What is trusted of it when this agent writes."""
        return self.trust if not self.agents or agent_id in self.agents else self.otherwise


_cache: WeakKeyDictionary[Database, dict[tuple[str, str | None, str], Judged]] = WeakKeyDictionary()


async def judge(db: Database, who: Principal, facts: list[Row]) -> None:
    """Gives drafts that name a source its trust; what was asked within a minute is not asked again."""
    names = {row["source"] for row in facts if row["source"] is not None}
    if not names:
        return
    known = _cache.setdefault(db, {})
    now = time.monotonic()
    # By itself: while the database is asked, others may clear what is remembered.
    judged = {name: found for name in names if (found := known.get(_key(who, name))) and found.until >= now}
    if missing := sorted(names - set(judged)):
        for row in await db.query(who, queries.JUDGE_SOURCES, {"sources": missing}):
            judged[row["source"]] = Judged(row)
        if len(known) > MAX_CACHED:
            known.clear()
        known.update({_key(who, name): judged[name] for name in missing})
    for row in facts:
        if row["source"] is not None:
            row["source_trust"] = judged[row["source"]].for_agent(who.agent_id)


def _key(who: Scope, source: str) -> tuple[str, str | None, str]:
    return (who.tenant_id, who.project_id, source)


async def put_source(db: Database, who: Principal, *, data: SourcePut, once: Once) -> Answer:
    """Registers a source or changes what is known of it; facts that name it follow in the background."""
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
    async with once.tenant(db, who) as step:
        if step.stored:
            return step.stored
        made, created = await queries.put_source(step.session, row=row)
        (judged,) = await step.session.query(queries.JUDGE_SOURCES, {"sources": [row["source"]]})
        job = NewJob(kind="trust", payload={"source_id": str(made["source_id"])}, dedupe_key=str(made["source_id"]))
        job_id = await enqueue(step.session, who, job=job)
        await audit.record(
            step.session, "admin_action", key_id=who.key_id, action="source_put", source_id=str(made["source_id"])
        )
        source = _present(made, Judged(judged))
        answer = await step.answer(
            201 if created else 200, SourceWritten(source=source, created=created, job_id=UUID(job_id))
        )
    _cache.pop(db, None)
    return answer


def _present(row: Row, judged: Judged) -> SourceRead:
    return SourceRead(
        source_id=UUID(str(row["source_id"])),
        source=row["source"],
        identity=row["identity"],
        authority=row["authority"],
        agents=list(row["agents"]),
        blocklisted=row["blocklisted"],
        trust=judged.trust,
        trust_mode=judged.mode,
        created_at=row["created_at"],
        updated_at=row["updated_at"],
    )


async def list_sources(db: Database, who: Principal, *, page: Page) -> SourceList:
    """Registered sources by name, with the trust each has now."""
    after = None if page.after is None else page.after[0]
    place = {"tenant_id": who.tenant_id, "project_id": require_project(who)}
    found = await db.fetch(who, queries.select_sources(**place, after=after, limit=page.limit + 1))
    rows, next_cursor = page.cut(found, key=lambda row: [row["source"]])
    judged: dict[str, Any] = {}
    if rows:
        names = [row["source"] for row in rows]
        judged = {row["source"]: row for row in await db.query(who, queries.JUDGE_SOURCES, {"sources": names})}
    shown = [_present(row, Judged(judged[row["source"]])) for row in rows]
    return SourceList(sources=shown, next_cursor=next_cursor)


class _Changed(Exception):
    """The source is not what it was when this began."""


async def refresh_trust(job: Job) -> None:
    """Gives every fact of a source, and its edge, the trust the source now has; also what it came to have meanwhile."""
    place = {
        "tenant_id": job.scope.tenant_id,
        "project_id": job.scope.project_id or "",
        "source_id": str(job.payload.get("source_id")),
    }
    while True:
        (source, *_) = [*await job.db.fetch(job.scope, queries.select_source(**place)), None]
        if source is not None:
            await _refresh(job, source["source"])
        try:
            async with job.finishing() as session:
                # Held until the job has ended: whoever changes the source afterwards makes a job of their own.
                now = await queries.lock_source(session, **place)
                if now is not None and (source is None or now["updated_at"] != source["updated_at"]):
                    raise _Changed
            return
        except _Changed:
            continue


async def _refresh(job: Job, source: str) -> None:
    (known,) = await job.db.query(job.scope, queries.JUDGE_SOURCES, {"sources": [source]})
    judged = Judged(known)
    after: str | None = queries.FIRST_ID
    while after is not None:
        arguments = {
            "source": source,
            "agents": judged.agents,
            "trust": judged.trust,
            "otherwise": judged.otherwise,
            "after": after,
            "limit": REFRESHED_AT_ONCE,
        }
        async with job.db.tenant(job.scope) as session:
            row = await session.row(queries.REFRESH_TRUST, arguments)
        after = None if row is None else str(row["fact_id"])
