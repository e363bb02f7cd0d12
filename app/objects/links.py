"""Creation of relationships: check their ends, store them, or update those that exist already."""

from datetime import UTC, datetime
from typing import Any, Literal
from uuid import UUID

import msgspec

from app.access import Principal, new_id, require_project
from app.branches.service import Branches, find_write_branches, shared_branch
from app.db.database import Database, Row, Session
from app.errors import AppError, BadRequest, Conflict, NotFound, Unprocessable
from app.objects import queries
from app.objects.content import check_content, choose_project, read_period
from app.objects.diff import hash_content, summarize
from app.objects.json_patch import PatchOperation
from app.objects.schemas import RelationshipCreate, RelationshipPatch
from app.objects.types.service import Types, read_types
from app.objects.versions import (
    apply_patch,
    encode_row,
    error_index,
    first_version,
    lock_head,
    observe_change,
    record_created,
    require_change,
    write_next_version,
)

Result = Literal["created", "updated", "unchanged"]
SIDES = ("src", "dst")
PERIOD = ("valid_from", "valid_to")
ATTEMPTS = 4
# Fields that a repeated creation updates where it gives them.
UPDATED = ("weight", "role_src", "role_dst", "valid_from", "valid_to", "evidence", "schema_version")


class StoredRelationship(msgspec.Struct, frozen=True):
    """A relationship that was created or existed already, and what to warn its writer of."""

    row: Row
    result: Result
    warnings: list[str]


async def check_end_projects(db: Database, who: Principal, ids: list[UUID]) -> None:
    """Raise BadRequest when an end belongs to another project that the caller may read; others get NotFound later."""
    wide = who.across_projects()
    if wide is who or not ids:
        return
    given = {"tenant": who.tenant_id, "ids": [str(found) for found in ids]}
    for row in await db.query(wide, queries.ENDS_PROJECTS, given):
        if row["project_id"] not in (None, who.project_id):
            raise _project_mismatch(
                f"The object {row['given']} belongs to project {row['project_id']}, but this request works in "
                f"{who.project_id}."
            )


async def store_relationships(
    session: Session, who: Principal, items: list[RelationshipCreate]
) -> list[StoredRelationship]:
    """Store all relationships or none; errors have the `index` of their item in the details."""
    branches = {
        branch_id: await find_write_branches(session, who, branch_id=branch_id)
        for branch_id in {item.branch_id for item in items}
    }
    ids = sorted({str(end) for item in items for end in (item.src_id, item.dst_id)})
    ends: dict[str, list[Row]] = {}
    for row in await session.rows(queries.LOCK_ENDS, {"tenant": who.tenant_id, "ids": ids}):
        ends.setdefault(str(row["given"]), []).append(row)
    requested = [(item.type, item.schema_version) for item in items if item.schema_version is not None]
    types = await read_types(session, who, "relationship", names=[item.type for item in items], versions=requested)
    rows: list[Row] = []
    for index, item in enumerate(items):
        with error_index(index):
            rows.append(_new_row(who, item, branches[item.branch_id], types, ends))
        await types.pause()
    if any(row["project_id"] is None for row in rows):
        shared = await shared_branch(session)
        for row, item in zip(rows, items, strict=True):
            if row["project_id"] is None and item.branch_id is None:
                row["branch_id"] = shared
    return await _link(session, who, items, rows, types)


async def _link(
    session: Session, who: Principal, items: list[RelationshipCreate], rows: list[Row], types: Types
) -> list[StoredRelationship]:
    now = datetime.now(UTC)
    linked: dict[int, tuple[Row, Result]] = {}
    left = list(range(len(rows)))
    for _ in range(ATTEMPTS):
        linked |= await _link_once(session, who, items, rows, left, now)
        left = [index for index in left if index not in linked]
        if not left:
            break
    if left:
        raise Conflict("Other writers are changing the same relationships; try again.", code="write_contention")
    made = [rows[index] for index, (_, result) in linked.items() if result == "created"]
    if made:
        await record_created(session, who, "relationship", rows=made, declared=types.declared(made[0]["type"]))
    return [StoredRelationship(*linked[index], _warnings(types, row)) for index, row in enumerate(rows)]


async def _link_once(
    session: Session, who: Principal, items: list[RelationshipCreate], rows: list[Row], left: list[int], now: datetime
) -> dict[int, tuple[Row, Result]]:
    """Return the results by index; an item is missing when the relationship in its way was deleted meanwhile."""
    given = {"tenant": who.tenant_id, "agent": who.agent_id, "rows": encode_row([rows[i] for i in left]), "now": now}
    found = {str(row["canonical_id"]): row for row in await session.rows(queries.LINK_OBJECTS, given)}
    linked: dict[int, tuple[Row, Result]] = {}
    # In the order of the existing ids, so that two batches do not deadlock.
    for index in sorted(left, key=lambda index: str(found[rows[index]["canonical_id"]]["existing_id"] or "")):
        row, outcome = rows[index], found[rows[index]["canonical_id"]]
        try:
            if outcome["outcome"] == "created":
                observe_change(row["change_summary"])
                linked[index] = (first_version(who, row, now), "created")
            elif outcome["outcome"] == "exists":
                linked[index] = await _update_existing(session, who, outcome["existing_id"], items[index])
            elif outcome["outcome"] != "again":
                raise queries.multiplicity_violated(outcome["outcome"], row["type"])
        except AppError as problem:
            if problem.code != "already_deleted":
                problem.details.setdefault("index", index)
                raise
    return linked


async def _update_existing(
    session: Session, who: Principal, existing_id: Any, item: RelationshipCreate
) -> tuple[Row, Result]:
    head = await lock_head(session, who, "relationship", item_id=UUID(str(existing_id)), if_match=None)
    given = {name: value for name in UPDATED if (value := getattr(item, name)) is not None}
    try:
        patch = RelationshipPatch(properties=item.properties, **given)
        replace = item.properties is not msgspec.UNSET
        return await patch_head(session, who, head, patch, replace_properties=replace), "updated"
    except Conflict as problem:
        if problem.code != "no_effective_change":
            raise
        return head, "unchanged"


async def patch_head(
    session: Session,
    who: Principal,
    head: Row,
    data: RelationshipPatch | list[PatchOperation],
    *,
    replace_properties: bool = False,
) -> Row:
    """Write the next version of a locked relationship; raise Conflict when the patch changes nothing."""
    state = apply_patch("relationship", head, data, RelationshipPatch)
    if replace_properties and isinstance(data, RelationshipPatch):
        state["properties"] = data.properties
    state["valid_from"], state["valid_to"] = read_period(state["valid_from"], state["valid_to"], names=PERIOD)
    check_content(properties=state["properties"], evidence=state["evidence"])
    fields, requested = require_change("relationship", head, state), state["requested_schema"]
    versions = [] if requested is None else [(head["type"], requested)]
    types = await read_types(session, who, "relationship", names=[head["type"]], versions=versions)
    state["schema_version"] = types.check(head["type"], state["properties"], version=requested)
    content = hash_content(properties=state["properties"], status=None, key=None, labels=[])
    return await write_next_version(
        session,
        who,
        "relationship",
        head=head,
        state=state,
        described={"content_hash": content.hex()},
        summary=summarize(head["properties"], state["properties"], fields=fields),
        declared=types.declared(head["type"]),
    )


def _new_row(
    who: Principal, data: RelationshipCreate, branches: Branches, types: Types, ends: dict[str, list[Row]]
) -> Row:
    properties: dict[str, Any] = {} if data.properties is msgspec.UNSET else data.properties
    check_content(properties=properties, evidence=data.evidence)
    begin, end = read_period(data.valid_from, data.valid_to, names=PERIOD)
    project = choose_project(who, data.project_id, require_project(who))
    branches.check_project(project)
    linked = _ends_of(data, ends, branches, project)
    _check_end_types(data, linked, types)
    version = types.check(data.type, properties, version=data.schema_version)
    content = hash_content(properties=properties, status=None, key=None, labels=[])
    return {
        "branch_id": branches.target,
        "canonical_id": new_id(),
        "project_id": project,
        "type": data.type,
        "src_id": str(linked["src"]["canonical_id"]),
        "dst_id": str(linked["dst"]["canonical_id"]),
        "weight": data.weight,
        "role_src": data.role_src,
        "role_dst": data.role_dst,
        "valid_from": begin,
        "valid_to": end,
        "properties": properties,
        "evidence": data.evidence,
        "content_hash": content.hex(),
        "schema_version": version,
        "change_summary": summarize({}, properties),
    }


def _ends_of(
    data: RelationshipCreate, ends: dict[str, list[Row]], branches: Branches, project: str | None
) -> dict[str, Row]:
    given = {"src": str(data.src_id), "dst": str(data.dst_id)}
    linked = {side: _end_of(side, ends.get(given[side], []), branches) for side in SIDES}
    if linked["src"]["canonical_id"] == linked["dst"]["canonical_id"]:
        raise BadRequest("dst_id: an object cannot be linked to itself.", code="self_loop_not_allowed")
    if project is None and any(found["project_id"] is not None for found in linked.values()):
        raise _project_mismatch("A relationship of every project can only link objects of every project.")
    return linked


def _end_of(side: str, heads: list[Row], branches: Branches) -> Row:
    """Return the object at one end: on the relationship's branch, or on the shared one."""
    if not heads:
        raise NotFound(f"{side}_id: there is no such object.", code=f"{side}_object_not_found")
    for head in heads:
        if str(head["branch_id"]) in (branches.target, branches.shared):
            if head["deleted_at"] is not None:
                raise end_deleted(side)
            return head
    raise BadRequest(f"{side}_id: this object is on another branch.", code="relationship_branch_mismatch")


def end_deleted(side: str) -> Conflict:
    """Return the error for a relationship whose end is deleted."""
    return Conflict(f"{side}_id: this object is deleted; restore it first.", code=f"{side}_object_deleted")


def _project_mismatch(message: str) -> BadRequest:
    return BadRequest(message, code="relationship_project_mismatch")


def _check_end_types(data: RelationshipCreate, linked: dict[str, Row], types: Types) -> None:
    found = types.find(data.type, data.schema_version)
    for side in SIDES:
        allowed: list[str] = [] if found is None else found[f"allowed_{side}_types"]
        given: str = linked[side]["type"]
        if allowed and given not in allowed:
            raise Unprocessable(
                f"{side}_id: relationships of type {data.type} allow objects of type {', '.join(allowed[:10])} here, "
                f"not {given}.",
                code="relationship_schema_validation_failed",
                details={"side": side, "type": data.type, "object_type": given, "allowed": allowed},
            )


def _warnings(types: Types, row: Row) -> list[str]:
    if types.find(row["type"]) is not None:
        return []
    return [f"type: {row['type']} is not registered; neither its ends nor its properties were checked."]
