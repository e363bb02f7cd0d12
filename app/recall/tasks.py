"""Recall's own upkeep: traces that have outlived their use, and words read anew in another language."""

from app.embeddings.tasks import refresh_lexicon
from app.jobs.registry import Job, JobContext, Registry
from app.recall import queries

KEEP_DAYS = 30
AT_ONCE = 5000
# Notes of 64 KB each among them, well within the time a statement has.
REINDEX_AT_ONCE = 100
FIRST = "00000000-0000-0000-0000-000000000000"


async def clear_traces(job: Job) -> None:
    """Removes a tenant's old traces, as part of its maintenance."""
    params = {"days": KEEP_DAYS, "limit": AT_ONCE}
    while True:
        (row,) = await job.db.query(job.scope, queries.CLEAR_TRACES, params)
        if row["cleared"] < AT_ONCE:
            return


async def reindex(job: Job) -> None:
    """Reads all notes, facts and objects of a project anew, after its language was changed; some at a time, and again
    from the start when it was interrupted."""
    for kind in ("note", "fact", "object"):
        after: str | None = FIRST
        while after is not None:
            params = {"kind": kind, "after": after, "limit": REINDEX_AT_ONCE}
            (row,) = await job.db.query(job.scope, queries.REINDEX_TERMS, params)
            after = None if row["last"] is None else str(row["last"])
        await refresh_lexicon(job.db, job.scope, kinds=(kind,))
    async with job.finishing():
        pass


def register_jobs(registry: Registry, _: JobContext) -> None:
    """Register the jobs of recall."""
    registry.register("reindex", reindex)
