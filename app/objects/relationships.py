"""Use cases of relationships: create, read, patch, delete, restore, list."""

from datetime import UTC, datetime
from typing import Any
from uuid import UUID

import msgspec

from app.access import Principal
from app.db.database import Database, Row, Session
from app.db.retries import retried
from app.errors import BadRequest, NotFound
from app.objects import queries
from app.objects.json_patch import PatchOperation
from app.objects.links import SIDES, check_end_projects, end_deleted, patch_head, store_relationships
from app.objects.schemas import (
    RelationshipCreate,
    RelationshipFields,
    RelationshipList,
    RelationshipPatch,
    RelationshipRead,
    RelationshipRequest,
    RelationshipVersions,
    RelationshipWritten,
)
from app.objects.types.service import read_types
from app.objects.versions import (
    list_heads,
    list_versions,
    lock_head,
    no_error_index,
    present,
    read_version,
    summarize_deletion,
    write_next_version,
)
from app.outcomes import Outcome
from app.paging import Page
from app.read_context import ReadContext


async def prepare_relationship(db: Database, who: Principal, *, data: RelationshipRequest) -> RelationshipCreate:
    """Return what is to be linked; raise BadRequest for an end that is not named once or is of another project."""
    ends = {side: _end_id(data, side) for side in SIDES}
    await check_end_projects(db, who, list(ends.values()))
    fields: dict[str, Any] = {name: getattr(data, name) for name in RelationshipFields.__struct_fields__}
    return RelationshipCreate(**fields, src_id=ends["src"], dst_id=ends["dst"])


def _end_id(data: RelationshipRequest, side: str) -> UUID:
    given = [end for name in (f"{side}_id", side, f"{side}_object_id") if (end := getattr(data, name)) is not None]
    if len(given) != 1:
        raise BadRequest(f"{side}_id: name the object by {side}_id, once.")
    return given[0]


async def create_relationship(
    session: Session, who: Principal, *, data: RelationshipCreate
) -> Outcome[RelationshipWritten]:
    """Link two objects, or update the live relationship of the same type between them."""
    with no_error_index():
        (stored,) = await store_relationships(session, who, [data])
    created = stored.result == "created"
    body = RelationshipWritten(
        relationship=RelationshipRead(**present(stored.row)),
        created=created,
        warnings=stored.warnings or msgspec.UNSET,
    )
    return Outcome(body, created=created)


async def get_relationship(
    db: Database, context: ReadContext, *, relationship_id: UUID, deleted: bool
) -> RelationshipRead:
    """Return a relationship as it is or was, or the earlier version whose id is given; raise NotFound."""
    row = await read_version(db, context, "relationship", item_id=relationship_id, branch_id=None, deleted=deleted)
    return RelationshipRead(**present(row))


async def patch_relationship(
    db: Database,
    who: Principal,
    *,
    relationship_id: UUID,
    data: RelationshipPatch | list[PatchOperation],
    if_match: str | None,
) -> RelationshipWritten:
    """Write the next version of a relationship; raise Conflict when the patch changes nothing."""

    async def write() -> Row:
        async with db.tenant(who) as session:
            head = await lock_head(session, who, "relationship", item_id=relationship_id, if_match=if_match)
            return await patch_head(session, who, head, data)

    return RelationshipWritten(relationship=RelationshipRead(**present(await retried(write))), created=False)


async def delete_relationship(db: Database, who: Principal, *, relationship_id: UUID, if_match: str | None) -> None:
    """Delete a relationship by a new version; it can be restored."""

    async def write() -> None:
        async with db.tenant(who) as session:
            head = await lock_head(session, who, "relationship", item_id=relationship_id, if_match=if_match)
            await _set_deleted(session, who, head, deleted_at=datetime.now(UTC))

    await retried(write)


async def restore_relationship(db: Database, who: Principal, *, relationship_id: UUID) -> RelationshipWritten:
    """Restore a deleted relationship; raise Conflict when an end is deleted or another live one is in its way."""

    async def write() -> Row:
        async with db.tenant(who) as session:
            head = await lock_head(session, who, "relationship", item_id=relationship_id, if_match=None, deleted=True)
            await _require_ends(session, who, head)
            return await _set_deleted(session, who, head, deleted_at=None)

    return RelationshipWritten(relationship=RelationshipRead(**present(await retried(write))), created=False)


async def _require_ends(session: Session, who: Principal, head: Row) -> None:
    ids = [str(head["src_id"]), str(head["dst_id"])]
    locked = {
        str(row["canonical_id"]): row["deleted_at"]
        for row in await session.rows(queries.LOCK_ENDS, {"tenant": who.tenant_id, "ids": ids})
    }
    for side in SIDES:
        end = str(head[f"{side}_id"])
        if end not in locked:
            raise NotFound(f"{side}_id: this object no longer exists.", code=f"{side}_object_not_found")
        if locked[end] is not None:
            raise end_deleted(side)


async def _set_deleted(session: Session, who: Principal, head: Row, *, deleted_at: datetime | None) -> Row:
    types = await read_types(session, who, "relationship", names=[head["type"]])
    return await write_next_version(
        session,
        who,
        "relationship",
        head=head,
        state=head,
        described={"content_hash": bytes(head["content_hash"]).hex()},
        summary=summarize_deletion(head["properties"], deleted=deleted_at is not None),
        declared=types.declared(head["type"]),
        deleted_at=deleted_at,
    )


async def list_relationships(
    db: Database, context: ReadContext, *, filters: dict[str, Any], page: Page
) -> RelationshipList:
    """Return a page of relationships of the project and of every project, newest first."""
    found = await list_heads(db, context, "relationship", filters=filters, page=page)
    shown = [RelationshipRead(**present(row)) for row in found.rows]
    return RelationshipList(relationships=shown, next_cursor=found.next_cursor, total=found.total)


async def list_relationship_versions(
    db: Database, context: ReadContext, *, relationship_id: UUID, summaries: bool, page: Page
) -> RelationshipVersions:
    """Return a page of the versions of a relationship, newest first, also of a deleted one."""
    found = await list_versions(db, context, "relationship", item_id=relationship_id, page=page)
    shown = [RelationshipRead(**present(row, summary=summaries)) for row in found.rows]
    return RelationshipVersions(versions=shown, next_cursor=found.next_cursor, total=found.total)
