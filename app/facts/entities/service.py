"""Use cases of entities: create, find, add aliases, merge."""

from datetime import datetime
from typing import Any
from uuid import UUID

import msgspec
from msgspec import UNSET, UnsetType

from app.access import Principal, new_id, require_project
from app.audit import events as audit
from app.db.counts import COUNT_LIMIT, count_query
from app.db.database import Database, Row, Session
from app.db.retries import retried
from app.errors import AppError, BadRequest, Conflict, NotFound
from app.facts.as_of import HELD, hold_notices, look_back
from app.facts.entities import queries
from app.facts.names import Name, as_id, entity_name, normalize_entity_name, plain_text
from app.facts.schemas import (
    AliasCreate,
    AliasCreated,
    AliasRead,
    EntityCounts,
    EntityCreate,
    EntityList,
    EntityMerge,
    EntityMerged,
    EntityRead,
    EntityWritten,
    MergeAccepted,
    TombstoneNotice,
)
from app.jobs.queue import NewJob, enqueue
from app.jobs.registry import Job, PermanentFailure
from app.outcomes import Outcome
from app.paging import Page
from app.read_context import ReadContext

# Merges of more facts than this are done by a job: a request may take a minute.
MERGED_AT_ONCE = 5000
# Higher numbers are not counted out.
MAX_COUNT = 10_000


def present_entity(row: Row) -> EntityRead:
    """Return an entity as responses show it."""
    return EntityRead(
        entity_id=UUID(str(row["entity_id"])),
        canonical=row["canonical"],
        kind=row["kind"],
        aliases=list(row["aliases"]),
        user_id=row["user_id"] or None,
        object_canonical_id=row["object_canonical_id"],
        created_at=row["created_at"],
        updated_at=row["updated_at"],
        tombstone_status="legal_hold" if row["suppression"] == HELD else UNSET,
    )


def entity_not_found(field: str | None = None) -> NotFound:
    """Return the error for an entity that is unknown, hidden or of another tenant."""
    return NotFound(
        f"{field}: there is no such entity." if field else "There is no such entity.", code="entity_not_found"
    )


def ambiguous(rows: list[Row], field: str) -> Conflict:
    """Return the error for a name that several entities share, with the candidates."""
    candidates: list[dict[str, Any]] = [
        {"entity_id": str(row["entity_id"]), "canonical": row["canonical"], "kind": row["kind"]} for row in rows
    ]
    names = ", ".join(row["canonical"] for row in rows[:5])
    return Conflict(
        f"{field}: several entities have this name ({names}); use a canonical name or an id.",
        code="entity_ambiguous",
        details={"candidates": candidates},
    )


async def create_entity(session: Session, who: Principal, *, data: EntityCreate) -> Outcome[EntityWritten]:
    """Create an entity, or return the one of that name with the given kind and aliases added to it."""
    name = entity_name(data.canonical, "canonical")
    kind = plain_text(data.kind, "kind")
    aliases = [entity_name(alias, f"aliases[{index}]") for index, alias in enumerate(data.aliases)]
    made = await session.row(
        queries.PUT_ENTITY,
        {
            "id": new_id(),
            "canonical": name.shown,
            "norm": name.norm,
            "kind": kind,
            "aliases": msgspec.json.encode(_alias_rows(aliases)).decode(),
        },
    )
    assert made is not None
    if made["hidden"] is not None:
        return Outcome(_decoy(who, made, name=name, kind=kind, aliases=aliases))
    entity = await _read(session, who, str(made["entity_id"]))
    return Outcome(EntityWritten(entity=entity, created=made["created"]), created=made["created"])


def _decoy(who: Principal, made: Row, *, name: Name, kind: str | None, aliases: list[Name]) -> EntityWritten:
    """Return what an agent sees for a name that a tombstone hides: an entity as new as for an unused name."""
    if who.is_admin:
        raise tombstoned("canonical")
    names = {alias.norm: alias.shown for alias in aliases if alias.norm != name.norm}
    entity = EntityRead(
        entity_id=UUID(str(made["hidden"])),
        canonical=name.shown,
        kind=kind,
        aliases=[names[norm] for norm in sorted(names)],
        user_id=who.owner_user or None,
        object_canonical_id=None,
        created_at=made["created_at"],
        updated_at=made["created_at"],
    )
    return EntityWritten(entity=entity, created=True)


def tombstoned(field: str) -> Conflict:
    """Return the error for administrators who write about an entity that a tombstone hides."""
    return Conflict(
        f"{field}: this entity is under a tombstone; revoke it before writing about it.", code="entity_tombstoned"
    )


def _alias_rows(aliases: list[Name]) -> list[dict[str, str]]:
    return [{"new_id": new_id(), "alias": alias.shown, "norm": alias.norm} for alias in aliases]


async def read_entities(session: Session, who: Principal, *, ids: list[UUID]) -> list[Row]:
    """Return those of these entities that the caller can see."""
    return await session.query(queries.ENTITIES_BY_ID, {"tenant": who.tenant_id, "ids": [str(found) for found in ids]})


async def _read(session: Session, who: Principal, entity_id: str) -> EntityRead:
    rows = await read_entities(session, who, ids=[UUID(entity_id)])
    if not rows:
        raise entity_not_found()
    return present_entity(rows[0])


async def find_named(
    db: Database, who: Principal, text: str, field: str, *, as_of: datetime | None = None
) -> list[Row]:
    """Return the entities that a canonical name, alias, URI or id refers to."""
    entity_id = as_id(text)
    params = {
        "tenant": who.tenant_id,
        "project": require_project(who),
        "reference": entity_id or entity_name(text, field).norm,
        "as_of": as_of,
    }
    statement = queries.select_referenced(by_id=entity_id is not None, at_past=as_of is not None)
    return await look_back(db, who, statement, params)


async def get_entity(db: Database, context: ReadContext, *, reference: str) -> EntityRead:
    """Return one entity by id, canonical name, alias or URI (of a merged one, what it was merged into)."""
    rows = await find_named(db, context.who, reference, "entity", as_of=context.as_of)
    if not rows:
        raise entity_not_found()
    notices = await notices_of(db, context.who, rows, context.hold_denied)
    if len(rows) > 1:
        raise ambiguous(rows, "entity")
    counts = UNSET if context.as_of is not None else await _count(db, context.who, str(rows[0]["entity_id"]))
    return msgspec.structs.replace(present_entity(rows[0]), counts=counts, tombstone_notices=notices)


async def _count(db: Database, who: Principal, entity_id: str) -> EntityCounts:
    params = {"tenant": who.tenant_id, "project": require_project(who), "entity": entity_id, "limit": MAX_COUNT}
    (row,) = await db.query(who, queries.COUNTS, params)
    return EntityCounts(facts=row["facts"], mentions=row["mentions"])


async def notices_of(
    db: Database, who: Principal, rows: list[Row], denied: frozenset[str]
) -> list[TombstoneNotice] | UnsetType:
    """Return the legal holds on these entities after recording the read in the audit log; UNSET if there are none."""
    held = {row["entity_id"] for row in rows if row["suppression"] == HELD}
    if not held:
        return UNSET
    return await hold_notices(
        db, who, entities={(found, None) for found in held}, denied=denied, entity_ids=sorted(held)
    )


async def list_entities(
    db: Database, context: ReadContext, *, filters: dict[str, str | None], page: Page
) -> EntityList:
    """Return entities in the order of their names; the filter `name` finds those that a name refers to."""
    who = context.who
    if (name := filters["name"]) is not None:
        rows, next_cursor = await find_named(db, who, name, "name", as_of=context.as_of), None
        total = page.total_of(len(rows))
    else:
        prefix = filters["prefix"]
        values = {
            "prefix": None if prefix is None else _normal_prefix(prefix),
            "kind": filters["kind"],
            "after": None if page.after is None else page.after[0],
            "after_id": None if page.after is None else page.after[1],
        }
        given = {name: value for name, value in values.items() if value}
        statement = queries.select_entities(set(given) - {"after_id"}, at_past=context.as_of is not None)
        found = await look_back(db, who, statement, {**context.parameters(), **given, "limit": page.limit + 1})
        rows, next_cursor = page.cut(found, key=lambda row: [row["canonical_norm"], str(row["entity_id"])])
        every = queries.select_entities(set(given) - {"after", "after_id"}, at_past=context.as_of is not None)
        params = {**context.parameters(), **given, "limit": COUNT_LIMIT}
        total = await page.count(lambda: look_back(db, who, count_query(every), params))
    notices = await notices_of(db, who, rows, context.hold_denied)
    return EntityList(
        entities=[present_entity(row) for row in rows],
        next_cursor=next_cursor,
        total=total,
        tombstone_notices=notices,
    )


def _normal_prefix(prefix: str) -> str:
    norm = normalize_entity_name(prefix)
    # "alice " must not find "alicent": a trailing space is part of the prefix.
    return f"{norm} " if norm and prefix[-1:].isspace() and ":" not in norm else norm


async def add_alias(session: Session, who: Principal, *, entity_id: UUID, data: AliasCreate) -> Outcome[AliasCreated]:
    """Give an entity one more name, or raise NotFound."""
    name = entity_name(data.alias, "alias")
    arguments = {"entity": str(entity_id), "id": new_id(), "alias": name.shown, "norm": name.norm}
    row = await session.row(queries.PUT_ALIAS, arguments)
    if row is None:
        raise entity_not_found()
    if row["alias_id"] is None:
        raise Conflict("alias: this is already the entity's canonical name.", code="alias_is_name")
    alias = AliasRead(
        alias_id=row["alias_id"], entity_id=row["entity_id"], alias=row["alias"], created_at=row["created_at"]
    )
    if row["created"]:
        await audit.record(
            session,
            "fact_write",
            key_id=who.key_id,
            action="alias_create",
            entity_id=str(row["entity_id"]),
            alias_id=str(row["alias_id"]),
        )
    return Outcome(AliasCreated(alias=alias, created=row["created"]), created=row["created"])


async def merge_entity(
    session: Session, who: Principal, *, entity_id: UUID, data: EntityMerge
) -> Outcome[EntityMerged] | Outcome[MergeAccepted]:
    """Merge two entities into one, with the facts, edges, mentions and aliases of both; by a job if they are many."""
    if (data.into is None) == (data.source is None):
        raise BadRequest("into: give either into (the entity that stays) or from (the entity to merge), not both.")
    source, target = (entity_id, data.into) if data.into is not None else (data.source, entity_id)
    pair = {"source": str(source), "target": str(target)}
    measured = await session.row(queries.MEASURE_MERGE, {**pair, "most": MERGED_AT_ONCE + 1})
    assert measured is not None
    _check_merge(measured["refused"])
    if measured["facts"] > MERGED_AT_ONCE:
        job = NewJob(
            kind="entity_merge",
            payload={**pair, "key": who.key_id},
            # The same two, whichever of them stays: the second merge would be of an entity that is gone.
            dedupe_key=":".join(sorted(pair.values())),
        )
        job_id = await enqueue(session, who, job=job)
        accepted = MergeAccepted(
            entity=await _read(session, who, str(target)), merging=UUID(str(source)), job_id=UUID(job_id)
        )
        return Outcome(accepted, created=False, accepted=True)
    row = await session.row(queries.MERGE_ENTITIES, {**pair, "key": who.key_id})
    assert row is not None
    _check_merge(row["refused"])
    merged = EntityMerged(
        entity=await _read(session, who, str(target)),
        merged=UUID(str(source)),
        facts_moved=row["facts_moved"],
        facts_folded=row["facts_folded"],
    )
    return Outcome(merged, created=False)


async def run_merge_job(job: Job) -> None:
    """Merge two entities with many facts in one transaction; fail for good when they cannot be merged any more."""
    if "source" not in job.payload:
        # An erasure removed the payload.
        async with job.finishing():
            job.result = {"skipped": "entity_gone"}
        return

    async def merge() -> None:
        async with job.finishing() as session:
            await session.execute(queries.NO_TIMEOUT)
            row = await session.row(queries.MERGE_ENTITIES, job.payload)
            assert row is not None
            try:
                _check_merge(row["refused"])
            except AppError as problem:
                raise PermanentFailure(f"{problem.code}: {problem.message}") from problem
            # Without counts: everybody in the project can read the job, and not every fact.
            job.result = {"entity_id": job.payload["target"], "merged": job.payload["source"]}

    await retried(merge)


def _check_merge(refused: str | None) -> None:
    if refused == "same_entity":
        raise Conflict("into: an entity cannot be merged into itself.", code="same_entity")
    if refused == "entity_merged":
        raise Conflict(
            "One of the two has been merged already; read it by its id to see into which entity.", code="entity_merged"
        )
    if refused == "different_users":
        raise Conflict(
            "into: the two belong to different users, or one of them to all; their names must stay apart.",
            code="different_users",
        )
    if refused is not None:
        raise entity_not_found()
