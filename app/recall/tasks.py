"""Jobs of recall: delete old traces, and index terms again after a change of language."""

from app.embeddings.tasks import refresh_lexicon
from app.jobs.registry import Job, JobContext, Registry
from app.recall import queries

KEEP_DAYS = 30
TRACE_BATCH = 5000
# Small enough for the statement timeout even if every note has 64 KB.
REINDEX_BATCH = 100
START = "00000000-0000-0000-0000-000000000000"


async def clear_traces(job: Job) -> None:
    """Delete the traces of a tenant that are older than KEEP_DAYS, in batches."""
    params = {"days": KEEP_DAYS, "limit": TRACE_BATCH}
    while True:
        (row,) = await job.db.query(job.scope, queries.CLEAR_TRACES, params)
        if row["cleared"] < TRACE_BATCH:
            return


async def reindex(job: Job) -> None:
    """Index the terms of all notes, facts and objects of a project again, in batches; an interrupted job restarts."""
    for kind in ("note", "fact", "object"):
        after: str | None = START
        while after is not None:
            params = {"kind": kind, "after": after, "limit": REINDEX_BATCH}
            (row,) = await job.db.query(job.scope, queries.REINDEX_TERMS, params)
            after = None if row["last"] is None else str(row["last"])
        await refresh_lexicon(job.db, job.scope, kinds=(kind,))
    async with job.finishing():
        pass


def register_jobs(registry: Registry, _: JobContext) -> None:
    """Register the jobs of recall."""
    registry.register("reindex", reindex)
