"""What a type says about search: how its objects are found, and the job that applies a change to existing ones."""

from hashlib import sha256
from uuid import UUID

import msgspec

from app.access import Principal
from app.db.database import Row, Session
from app.db.scope import CROSS_PROJECT, Scope
from app.jobs.queue import NewJob, enqueue
from app.objects.types import queries

JOB = "describe_objects"
# Of a type that is not registered.
SEARCH_DEFAULTS: Row = {"embedding_policy": "optional", "embedding_relevant_paths": None, "fts_enabled": True}


def hash_settings(object_type: Row | None) -> str:
    """Return the hash of what a version of a type says about search; None is a type that is not registered."""
    settings = [(SEARCH_DEFAULTS if object_type is None else object_type)[name] for name in SEARCH_DEFAULTS]
    return sha256(msgspec.json.encode(settings)).hexdigest()


async def find_type(session: Session, who: Scope, *, name: str) -> Row | None:
    """Return the version of a type of objects that counts for a tenant, or None."""
    return await session.row(queries.ACTIVE["object"], {"tenant": who.tenant_id, "types": [name]})


async def apply_change(session: Session, who: Principal, *, name: str, before: Row | None) -> UUID | None:
    """Queue the job for existing objects if a type says something else about search than `before`.

    Return its id, or None without a job that the caller can follow.
    """
    settings = hash_settings(await find_type(session, who, name=name))
    if settings == hash_settings(before):
        return None
    # Those who may change the type for one project only are the only ones to use it.
    scope = who
    if who.is_tenant_admin or who.project_id is None:
        scope = msgspec.structs.replace(who, project_id=None, reach=CROSS_PROJECT)
    await session.enter(scope)
    job_id = await enqueue(session, scope, job=NewJob(kind=JOB, payload={"type": name, "settings": settings}))
    await session.enter(who)
    return UUID(job_id) if who.is_admin or scope.project_id is not None else None
