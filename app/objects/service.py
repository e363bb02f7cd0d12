"""Use cases of objects: create, read, patch, delete, restore, list."""

from datetime import UTC, datetime
from typing import Any
from uuid import UUID

import msgspec
import structlog

from app.access import Principal, new_id, require_project
from app.branches.service import Branches, find_write_branches, shared_branch
from app.db.database import Database, Row, Session
from app.db.retries import retried
from app.errors import Conflict
from app.objects import queries
from app.objects.content import check_content, choose_project, derive_title, describe, read_period
from app.objects.diff import summarize
from app.objects.json_patch import PatchOperation
from app.objects.schemas import ObjectCreate, ObjectList, ObjectPatch, ObjectRead, ObjectVersions, ObjectWritten
from app.objects.types.service import Types, read_types
from app.objects.versions import (
    apply_patch,
    encode_row,
    error_index,
    first_version,
    list_heads,
    list_versions,
    lock_head,
    no_error_index,
    observe_change,
    present,
    read_version,
    record_created,
    require_change,
    summarize_deletion,
    write_next_version,
)
from app.outcomes import Outcome
from app.paging import Page
from app.read_context import ReadContext

log: structlog.stdlib.BoundLogger = structlog.get_logger()

PERIOD = ("effective_from", "effective_to")


class StoredObject(msgspec.Struct, frozen=True):
    """An object that was created, and what to warn its writer of."""

    row: Row
    warnings: list[str]


async def create_object(session: Session, who: Principal, *, data: ObjectCreate) -> Outcome[ObjectWritten]:
    """Create an object; raise Conflict when a live one of its type has the same key."""
    with no_error_index():
        (stored,) = await store_objects(session, who, [data])
    made = ObjectRead(**present(stored.row))
    return Outcome(ObjectWritten(object=made, created=True, warnings=stored.warnings or msgspec.UNSET))


async def store_objects(session: Session, who: Principal, items: list[ObjectCreate]) -> list[StoredObject]:
    """Store all objects or none; errors have the `index` of their item in the details."""
    branches = {
        branch_id: await find_write_branches(session, who, branch_id=branch_id)
        for branch_id in {item.branch_id for item in items}
    }
    requested = [(item.type, item.schema_version) for item in items if item.schema_version is not None]
    types = await read_types(session, who, "object", names=[item.type for item in items], versions=requested)
    rows: list[Row] = []
    for index, item in enumerate(items):
        with error_index(index):
            rows.append(_new_row(who, item, branches[item.branch_id], types))
        await types.pause()
    if any(row["project_id"] is None for row in rows):
        shared = await shared_branch(session)
        for row, item in zip(rows, items, strict=True):
            if row["project_id"] is None and item.branch_id is None:
                row["branch_id"] = shared
    now = datetime.now(UTC)
    place = {"tenant": who.tenant_id, "agent": who.agent_id}
    made = await session.rows(queries.STORE_OBJECTS, {**place, "rows": encode_row(rows), "now": now})
    _require_stored(rows, {str(row["canonical_id"]) for row in made})
    await record_created(session, who, "object", rows=rows, declared=types.declared(rows[0]["type"]))
    return [StoredObject(first_version(who, row, now), _warnings(types, row)) for row in rows]


def _require_stored(rows: list[Row], stored: set[str]) -> None:
    for index, row in enumerate(rows):
        if row["canonical_id"] not in stored:
            raise Conflict(
                f"key: a live object of type {row['type']} has the key {row['key']} already.",
                code="object_key_exists",
                details={"index": index, "type": row["type"], "key": row["key"]},
            )


def _new_row(who: Principal, data: ObjectCreate, branches: Branches, types: Types) -> Row:
    check_content(properties=data.properties, evidence=data.evidence)
    begin, end = read_period(data.effective_from, data.effective_to, names=PERIOD)
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
    observe_change(summary)
    return row | describe(row, types.find(data.type, data.schema_version)) | {"change_summary": summary}


def _warnings(types: Types, row: Row) -> list[str]:
    if types.find(row["type"]) is not None:
        return []
    # Without its name, which is text of the caller.
    log.info("object_type_not_registered")
    return [f"type: {row['type']} is not registered; its properties were not checked."]


async def get_object(
    db: Database, context: ReadContext, *, object_id: UUID, branch_id: UUID | None, deleted: bool
) -> ObjectRead:
    """Return an object as it is or was, or the earlier version whose id is given; raise NotFound."""
    row = await read_version(db, context, "object", item_id=object_id, branch_id=branch_id, deleted=deleted)
    return ObjectRead(**present(row))


async def patch_object(
    db: Database, who: Principal, *, object_id: UUID, data: ObjectPatch | list[PatchOperation], if_match: str | None
) -> ObjectWritten:
    """Write the next version of an object; raise Conflict when the patch changes nothing."""

    async def write() -> Row:
        async with db.tenant(who) as session:
            head = await lock_head(session, who, "object", item_id=object_id, if_match=if_match)
            return await _patch(session, who, head, data)

    return ObjectWritten(object=ObjectRead(**present(await retried(write))), created=False)


async def _patch(session: Session, who: Principal, head: Row, data: ObjectPatch | list[PatchOperation]) -> Row:
    state = apply_patch("object", head, data, ObjectPatch)
    state["effective_from"], state["effective_to"] = read_period(
        state["effective_from"], state["effective_to"], names=PERIOD
    )
    given = state["title"] != head["title"] if isinstance(data, list) else data.title is not msgspec.UNSET
    _update_title(head, state, given=given)
    fields, requested = require_change("object", head, state), state["requested_schema"]
    check_content(properties=state["properties"], evidence=state["evidence"])
    versions = [] if requested is None else [(head["type"], requested)]
    types = await read_types(session, who, "object", names=[head["type"]], versions=versions)
    state["schema_version"] = types.check(head["type"], state["properties"], version=requested)
    return await write_next_version(
        session,
        who,
        "object",
        head=head,
        state=state,
        described=describe(state, types.find(head["type"], requested)),
        summary=summarize(head["properties"], state["properties"], fields=fields),
        declared=types.declared(head["type"]),
    )


def _update_title(head: Row, state: Row, *, given: bool) -> None:
    """Derive the title anew when it is removed, or when it was derived before."""
    derived = derive_title(properties=head["properties"], key=head["key"])
    if (given and state["title"] is None) or (not given and head["title"] == derived):
        state["title"] = derive_title(properties=state["properties"], key=state["key"])


async def delete_object(db: Database, who: Principal, *, object_id: UUID, if_match: str | None) -> None:
    """Delete an object and its relationships by new versions; both can be restored."""

    async def write() -> None:
        async with db.tenant(who) as session:
            head = await lock_head(session, who, "object", item_id=object_id, if_match=if_match)
            row = await _set_deleted(session, who, head, deleted_at=datetime.now(UTC))
            place = {"agent": who.agent_id, "id": str(row["canonical_id"]), "now": row["updated_at"]}
            await session.execute(queries.UNLINK_OBJECT, place)

    await retried(write)


async def restore_object(db: Database, who: Principal, *, object_id: UUID) -> ObjectWritten:
    """Restore a deleted object with those of its relationships that were deleted with it and can be live again."""

    async def write() -> Row:
        async with db.tenant(who) as session:
            head = await lock_head(session, who, "object", item_id=object_id, if_match=None, deleted=True)
            row = await _set_deleted(session, who, head, deleted_at=None)
            place = {"agent": who.agent_id, "id": str(row["canonical_id"]), "now": row["updated_at"]}
            await session.execute(queries.RELINK_OBJECT, place)
            return row

    return ObjectWritten(object=ObjectRead(**present(await retried(write))), created=False)


async def _set_deleted(session: Session, who: Principal, head: Row, *, deleted_at: datetime | None) -> Row:
    types = await read_types(session, who, "object", names=[head["type"]])
    described = describe(head, types.find(head["type"])) | {"content_hash": bytes(head["content_hash"]).hex()}
    if deleted_at is not None:
        described["embed_text"] = None
    return await write_next_version(
        session,
        who,
        "object",
        head=head,
        state=head,
        described=described,
        summary=summarize_deletion(head["properties"], deleted=deleted_at is not None),
        declared=types.declared(head["type"]),
        deleted_at=deleted_at,
    )


async def list_objects(db: Database, context: ReadContext, *, filters: dict[str, Any], page: Page) -> ObjectList:
    """Return a page of objects of the project and of every project, newest first."""
    found = await list_heads(db, context, "object", filters=filters, page=page)
    shown = [ObjectRead(**present(row)) for row in found.rows]
    return ObjectList(objects=shown, next_cursor=found.next_cursor, total=found.total)


async def list_object_versions(
    db: Database, context: ReadContext, *, object_id: UUID, summaries: bool, page: Page
) -> ObjectVersions:
    """Return a page of the versions of an object, newest first, also of a deleted one."""
    found = await list_versions(db, context, "object", item_id=object_id, page=page)
    shown = [ObjectRead(**present(row, summary=summaries)) for row in found.rows]
    return ObjectVersions(versions=shown, next_cursor=found.next_cursor, total=found.total)
