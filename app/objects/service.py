"""Use cases of objects: make, read, change, delete, restore, list."""

from datetime import UTC, datetime
from typing import Any
from uuid import UUID

import msgspec
import structlog

from app.access import Principal, new_id, require_project
from app.db.database import Database, Row, Session
from app.db.retries import retried
from app.errors import AppError, Conflict
from app.objects import queries
from app.objects.diff import same, summarize
from app.objects.drafts import (
    MAX_EVIDENCE_BYTES,
    check_json,
    check_period,
    choose_project,
    derive_title,
    describe,
    moment,
)
from app.objects.schemas import ObjectCreate, ObjectCreated, ObjectList, ObjectPatch, ObjectRead, ObjectVersions
from app.objects.types.service import Types, read_types
from app.objects.versions import (
    Branches,
    advance,
    alone,
    as_made,
    audited,
    changed_fields,
    encode_row,
    ended,
    find_branches,
    list_versions,
    lock_head,
    no_effective_change,
    observe,
    patched,
    present,
    read_version,
    read_version_at,
    record_made,
    shared_branch,
)
from app.paging import Page
from app.web.idempotency import Answer, Once

log: structlog.stdlib.BoundLogger = structlog.get_logger()


async def create_object(db: Database, who: Principal, *, data: ObjectCreate, once: Once) -> Answer:
    """Makes an object; a live one of its type with the same key is refused."""

    async def write() -> Answer:
        async with once.tenant(db, who) as step:
            if step.stored:
                return step.stored
            with alone():
                ((row, warnings),) = await store_objects(step.session, who, [data])
            made = ObjectRead(**present(row))
            return await step.answer(201, ObjectCreated(object=made, created=True, warnings=warnings or msgspec.UNSET))

    return await retried(write)


async def store_objects(session: Session, who: Principal, items: list[ObjectCreate]) -> list[tuple[Row, list[str]]]:
    """Stores objects, all or none; an error names the place it stands at by `index`."""
    branches = {wanted: await find_branches(session, who, branch_id=wanted) for wanted in {i.branch_id for i in items}}
    asked = [(item.type, item.schema_version) for item in items if item.schema_version is not None]
    types = await read_types(session, who, "object", names=[item.type for item in items], versions=asked)
    shared: str | None = None
    rows: list[Row] = []
    for index, item in enumerate(items):
        try:
            row = _new_row(who, item, branches[item.branch_id], types)
            if row["project_id"] is None and item.branch_id is None:
                shared = shared or await shared_branch(session)
                row["branch_id"] = shared
            rows.append(row)
        except AppError as problem:
            problem.details.setdefault("index", index)
            raise
    now = datetime.now(UTC)
    place = {"tenant": who.tenant_id, "agent": who.agent_id}
    made = await session.rows(queries.STORE_OBJECTS, {**place, "rows": encode_row(rows), "now": now})
    stored = {str(row["canonical_id"]) for row in made}
    for index, row in enumerate(rows):
        if row["canonical_id"] not in stored:
            raise Conflict(
                f"key: a live object of type {row['type']} has the key {row['key']} already.",
                code="object_key_exists",
                details={"index": index, "type": row["type"], "key": row["key"]},
            )
    told = {} if len(rows) > 1 else audited(rows[0]["change_summary"], types.declared(rows[0]["type"]))
    await record_made(session, who, "object", ids=sorted(stored), told=told)
    return [(as_made(row, now), _warnings(types, row)) for row in rows]


def _new_row(who: Principal, data: ObjectCreate, branches: Branches, types: Types) -> Row:
    check_json(data.properties, "properties")
    check_json(data.evidence, "evidence", most=MAX_EVIDENCE_BYTES)
    begin, end = moment(data.effective_from, "effective_from"), moment(data.effective_to, "effective_to")
    check_period(begin, end, names=("effective_from", "effective_to"))
    version = types.check(data.type, data.properties, version=data.schema_version)
    project = choose_project(who, data.project_id, require_project(who))
    branches.check_project(project)
    row: Row = {
        "branch_id": branches.target,
        "canonical_id": new_id(),
        "project_id": project,
        "type": data.type,
        "subtype": data.subtype,
        "key": data.key,
        "title": data.title or derive_title(properties=data.properties, key=data.key),
        "status": data.status,
        "labels": list(dict.fromkeys(data.labels)),
        "effective_from": begin,
        "effective_to": end,
        "properties": data.properties,
        "evidence": data.evidence,
        "schema_version": version,
    }
    summary = summarize({}, data.properties)
    observe(summary)
    return row | describe(row, types.find(data.type, data.schema_version)) | {"change_summary": summary}


def _warnings(types: Types, row: Row) -> list[str]:
    if types.find(row["type"]) is not None:
        return []
    log.info("object of a type that is not registered", type=row["type"])
    return [f"type: {row['type']} is not registered; its properties were not checked."]


async def get_object(
    db: Database, who: Principal, *, object_id: UUID, branch_id: UUID | None, as_of: datetime | None, deleted: bool
) -> ObjectRead:
    """An object as it is now or was at a time, or one of its earlier versions by that version's id."""
    if as_of is not None:
        found = await read_version_at(db, who, "object", thing_id=object_id, as_of=as_of, deleted=deleted)
        return ObjectRead(**present(found))
    return ObjectRead(
        **present(await read_version(db, who, "object", thing_id=object_id, branch_id=branch_id, deleted=deleted))
    )


async def patch_object(
    db: Database, who: Principal, *, object_id: UUID, data: ObjectPatch, if_match: str | None
) -> ObjectRead:
    """Makes the next version; what changes nothing makes none."""

    async def write() -> Row:
        async with db.tenant(who) as session:
            head = await lock_head(session, who, "object", thing_id=object_id, if_match=if_match)
            return await _patch(session, who, head, data)

    return ObjectRead(**present(await retried(write)))


async def _patch(session: Session, who: Principal, head: Row, data: ObjectPatch) -> Row:
    state = patched("object", head, data)
    _settle(head, state, titled=data.title is not msgspec.UNSET)
    fields, asked = changed_fields("object", head, state), state["asked_version"]
    if not fields and same(head["properties"], state["properties"]) and asked in (None, head["schema_version"]):
        raise no_effective_change("object", head)
    check_json(state["properties"], "properties")
    check_json(state["evidence"], "evidence", most=MAX_EVIDENCE_BYTES)
    versions = [] if asked is None else [(head["type"], asked)]
    types = await read_types(session, who, "object", names=[head["type"]], versions=versions)
    state["schema_version"] = types.check(head["type"], state["properties"], version=asked)
    return await advance(
        session,
        who,
        "object",
        head=head,
        state=state,
        described=describe(state, types.find(head["type"], asked)),
        summary=summarize(head["properties"], state["properties"], fields=fields),
        declared=types.declared(head["type"]),
    )


def _settle(head: Row, state: Row, *, titled: bool) -> None:
    """Times in UTC, and the title after what it was taken from."""
    for name in ("effective_from", "effective_to"):
        state[name] = moment(state[name], name)
    check_period(state["effective_from"], state["effective_to"], names=("effective_from", "effective_to"))
    derived = derive_title(properties=head["properties"], key=head["key"])
    if (titled and state["title"] is None) or (not titled and head["title"] == derived):
        state["title"] = derive_title(properties=state["properties"], key=state["key"])


async def delete_object(db: Database, who: Principal, *, object_id: UUID, if_match: str | None) -> None:
    """Deletes an object by a new version, and its relationships with it; both can be restored."""

    async def write() -> None:
        async with db.tenant(who) as session:
            head = await lock_head(session, who, "object", thing_id=object_id, if_match=if_match)
            row = await _end(session, who, head, deleted_at=datetime.now(UTC))
            place = {"agent": who.agent_id, "id": str(row["canonical_id"]), "now": row["updated_at"]}
            await session.execute(queries.UNLINK_OBJECT, place)

    await retried(write)


async def restore_object(db: Database, who: Principal, *, object_id: UUID) -> ObjectRead:
    """Brings a deleted object back by a new version, with those relationships that went with it and have a place."""

    async def write() -> Row:
        async with db.tenant(who) as session:
            head = await lock_head(session, who, "object", thing_id=object_id, if_match=None, deleted=True)
            row = await _end(session, who, head, deleted_at=None)
            place = {"agent": who.agent_id, "id": str(row["canonical_id"]), "now": row["updated_at"]}
            await session.execute(queries.RELINK_OBJECT, place)
            return row

    return ObjectRead(**present(await retried(write)))


async def _end(session: Session, who: Principal, head: Row, *, deleted_at: datetime | None) -> Row:
    types = await read_types(session, who, "object", names=[head["type"]])
    described = describe(head, types.find(head["type"])) | {"content_hash": bytes(head["content_hash"]).hex()}
    if deleted_at is not None:
        described["embed_text"] = None
    return await advance(
        session,
        who,
        "object",
        head=head,
        state=head,
        described=described,
        summary=ended(head["properties"], deleted=deleted_at is not None),
        declared=types.declared(head["type"]),
        deleted_at=deleted_at,
    )


async def list_objects(db: Database, who: Principal, *, filters: dict[str, Any], page: Page) -> ObjectList:
    """Live objects of the project and those of every project, newest first."""
    async with db.tenant(who) as session:
        branches = await find_branches(session, who, branch_id=filters.get("branch_id"))
        contained = filters["labels"] is not None or filters["properties"] is not None
        after = None if page.after is None else page.after[0]
        given = {name for name, value in {**filters, "after": after}.items() if value not in (None, False)}
        params = {
            **filters,
            "tenant": who.tenant_id,
            "branch": branches.target,
            "shared": None if branches.named else branches.shared,
            "after": after,
            "limit": page.limit + 1,
        }
        found = await session.query(queries.select_heads("object", given=given, contained=contained), params)
    rows, next_cursor = page.cut(found, key=lambda row: [str(row["canonical_id"])])
    return ObjectList(objects=[ObjectRead(**present(row)) for row in rows], next_cursor=next_cursor)


async def list_object_versions(
    db: Database, who: Principal, *, object_id: UUID, summaries: bool, page: Page
) -> ObjectVersions:
    """All versions of an object, newest first, also of a deleted one."""
    rows, next_cursor = await list_versions(db, who, "object", thing_id=object_id, page=page)
    shown = [ObjectRead(**present(row, summary=summaries)) for row in rows]
    return ObjectVersions(versions=shown, next_cursor=next_cursor)
