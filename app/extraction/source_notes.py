"""The note that a job extracts: who the job acts as, and what it reads of the note."""

from app.access import AGENT_SCOPES, Principal
from app.db.database import Row
from app.embeddings.redactions import BUILT_IN, redacted
from app.extraction import queries
from app.jobs.registry import Job
from app.notes.derived_notes import PIPELINE, SourceNote
from app.prompt_text import visible


def job_principal(job: Job) -> Principal:
    """Return the caller that a job acts as: the note's agent, in the note's garden, for the note's user."""
    garden = job.payload.get("garden_id")
    return Principal(
        tenant_id=job.scope.tenant_id,
        project_id=job.scope.project_id,
        agent_id=job.scope.agent_id,
        user_id=job.user_id,
        gardens=() if garden is None else (str(garden),),
        key_id=PIPELINE,
        kind="agent",
        scopes=frozenset(AGENT_SCOPES),
    )


async def read_note(job: Job, who: Principal) -> Row | None:
    """Return the redacted note, its project's settings and spent tokens; None when the note is gone."""
    if "note_id" not in job.payload:
        # An erasure removed the payload.
        return None
    params = {
        "tenant": who.tenant_id,
        "project": who.project_id,
        "note": job.payload["note_id"],
        "patterns": list(BUILT_IN),
    }
    rows = await job.db.query(who, queries.READ_EXTRACTION, params)
    return rows[0] if rows else None


async def show_note(job: Job, row: Row) -> Row:
    """Return a row of `read_note` without invisible characters, redacted again where these hid a secret."""
    said = {"content": visible(row["content"]), "author": visible(row["author"] or "")}
    if said["content"] == row["content"] and said["author"] == (row["author"] or ""):
        return row
    content, author = await redacted(job.db, job.scope.tenant_id, list(said.values()))
    return {**row, "content": content, "author": author}


def source_note(job: Job, row: Row) -> SourceNote:
    """Return the source note of a row of `read_note`."""
    assert job.scope.project_id is not None
    return SourceNote(
        tenant_id=job.scope.tenant_id,
        project_id=job.scope.project_id,
        note_id=str(job.payload["note_id"]),
        garden_id=None if row["garden_id"] is None else str(row["garden_id"]),
        user_id=job.user_id,
        **{name: row[name] for name in ("agent_id", "scope", "owner_key", "occurred_at", "version")},
    )
