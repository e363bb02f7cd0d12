"""Use cases of relationships: link, read, change, delete, restore, list."""

from datetime import UTC, datetime
from typing import Any, Literal
from uuid import UUID

import msgspec

from app.access import Principal, new_id, require_project
from app.db.database import Database, Row, Session
from app.db.retries import retried
from app.errors import AppError, BadRequest, Conflict, NotFound, Unprocessable
from app.objects import queries
from app.objects.diff import hash_content, same, summarize
from app.objects.drafts import MAX_EVIDENCE_BYTES, check_json, check_period, choose_project, moment
from app.objects.schemas import (
    Linked,
    RelationshipAsk,
    RelationshipCreate,
    RelationshipCreated,
    RelationshipList,
    RelationshipPatch,
    RelationshipRead,
    RelationshipVersions,
)
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

Outcome = Literal["created", "updated", "unchanged"]
SIDES = ("src", "dst")
ATTEMPTS = 4


def read_ask(ask: RelationshipAsk) -> RelationshipCreate:
    """What is to be linked, each end under its one name."""
    ends: dict[str, UUID] = {}
    for side in SIDES:
        given = [end for name in (f"{side}_id", side, f"{side}_object_id") if (end := getattr(ask, name)) is not None]
        if len(given) != 1:
            raise BadRequest(f"{side}_id: name the object by {side}_id, once.")
        ends[side] = given[0]
    kept: dict[str, Any] = {name: getattr(ask, name) for name in Linked.__struct_fields__}
    return RelationshipCreate(**kept, src_id=ends["src"], dst_id=ends["dst"])


async def create_relationship(db: Database, who: Principal, *, ask: RelationshipAsk, once: Once) -> Answer:
    """Links two objects; the same link again takes on what is new of it, and is no second one."""
    data = read_ask(ask)
    await refuse_foreign(db, who, [data.src_id, data.dst_id])

    async def write() -> Answer:
        async with once.tenant(db, who) as step:
            if step.stored:
                return step.stored
            with alone():
                ((row, outcome, warnings),) = await store_relationships(step.session, who, [data])
            body = RelationshipCreated(
                relationship=RelationshipRead(**present(row)),
                created=outcome == "created",
                warnings=warnings or msgspec.UNSET,
            )
            return await step.answer(201 if outcome == "created" else 200, body)

    return await retried(write)


async def refuse_foreign(db: Database, who: Principal, ids: list[UUID]) -> None:
    """Tells a caller who may read all projects that an object belongs to another one; to all others it is unknown."""
    wide = who.across_projects()
    if wide is who or not ids:
        return
    given = {"tenant": who.tenant_id, "ids": [str(found) for found in ids]}
    for row in await db.query(wide, queries.FIND_ENDS, given):
        if row["project_id"] not in (None, who.project_id):
            raise _mismatch(
                f"The object {row['given']} belongs to project {row['project_id']}, this request works in "
                f"{who.project_id}."
            )


async def store_relationships(
    session: Session, who: Principal, items: list[RelationshipCreate]
) -> list[tuple[Row, Outcome, list[str]]]:
    """Stores relationships, all or none; an error names the place it stands at by `index`."""
    branches = {wanted: await find_branches(session, who, branch_id=wanted) for wanted in {i.branch_id for i in items}}
    ids = sorted({str(end) for item in items for end in (item.src_id, item.dst_id)})
    ends: dict[str, list[Row]] = {}
    for row in await session.rows(queries.HOLD_ENDS, {"tenant": who.tenant_id, "ids": ids}):
        ends.setdefault(str(row["given"]), []).append(row)
    asked = [(item.type, item.schema_version) for item in items if item.schema_version is not None]
    types = await read_types(session, who, "relationship", names=[item.type for item in items], versions=asked)
    shared: str | None = None
    rows: list[Row] = []
    for index, item in enumerate(items):
        try:
            row = _new_row(who, item, branches[item.branch_id], types, ends)
            if row["project_id"] is None and item.branch_id is None:
                shared = shared or await shared_branch(session)
                row["branch_id"] = shared
            rows.append(row)
        except AppError as problem:
            problem.details.setdefault("index", index)
            raise
    return await _link(session, who, items, rows, types)


async def _link(
    session: Session, who: Principal, items: list[RelationshipCreate], rows: list[Row], types: Types
) -> list[tuple[Row, Outcome, list[str]]]:
    now = datetime.now(UTC)
    linked: dict[int, tuple[Row, Outcome]] = {}
    left = list(range(len(rows)))
    for _ in range(ATTEMPTS):
        linked |= await _link_once(session, who, items, rows, left, now)
        left = [index for index in left if index not in linked]
        if not left:
            break
    if left:
        raise Conflict("Others change the same relationships right now; try again.", code="write_contention")
    made = [rows[index] for index, (_, outcome) in linked.items() if outcome == "created"]
    if made:
        told = {} if len(made) > 1 else audited(made[0]["change_summary"], types.declared(made[0]["type"]))
        await record_made(session, who, "relationship", ids=[row["canonical_id"] for row in made], told=told)
    return [(*linked[index], _warnings(types, row)) for index, row in enumerate(rows)]


async def _link_once(
    session: Session, who: Principal, items: list[RelationshipCreate], rows: list[Row], left: list[int], now: datetime
) -> dict[int, tuple[Row, Outcome]]:
    """What became of those that are left; what stood in the way of one may be gone when we look at it."""
    given = {"tenant": who.tenant_id, "agent": who.agent_id, "rows": encode_row([rows[i] for i in left]), "now": now}
    found = {str(row["canonical_id"]): row for row in await session.rows(queries.LINK_OBJECTS, given)}
    linked: dict[int, tuple[Row, Outcome]] = {}
    # In the order of those that were there, so that two batches do not wait for each other.
    for index in sorted(left, key=lambda index: str(found[rows[index]["canonical_id"]]["existing_id"] or "")):
        row, outcome = rows[index], found[rows[index]["canonical_id"]]
        try:
            if outcome["outcome"] == "created":
                observe(row["change_summary"])
                linked[index] = (as_made(row, now), "created")
            elif outcome["outcome"] == "exists":
                linked[index] = await _take_on(session, who, outcome["existing_id"], items[index])
            elif outcome["outcome"] != "again":
                raise queries.multiplicity_violated(outcome["outcome"], row["type"])
        except AppError as problem:
            if problem.code != "already_deleted":
                problem.details.setdefault("index", index)
                raise
    return linked


async def _take_on(session: Session, who: Principal, known: Any, item: RelationshipCreate) -> tuple[Row, Outcome]:
    """The relationship that was there, with what a create says of it anew."""
    head = await lock_head(session, who, "relationship", thing_id=UUID(str(known)), if_match=None)
    said = ("weight", "role_src", "role_dst", "valid_from", "valid_to", "evidence", "schema_version")
    given = {name: value for name in said if (value := getattr(item, name)) is not None}
    try:
        patch = RelationshipPatch(properties=item.properties, **given)
        return await _patch(session, who, head, patch, replaced=item.properties is not msgspec.UNSET), "updated"
    except Conflict as problem:
        if problem.code != "no_effective_change":
            raise
        return head, "unchanged"


def _new_row(
    who: Principal,
    data: RelationshipCreate,
    branches: Branches,
    types: Types,
    ends: dict[str, list[Row]],
) -> Row:
    properties: dict[str, Any] = {} if data.properties is msgspec.UNSET else data.properties
    check_json(properties, "properties")
    check_json(data.evidence, "evidence", most=MAX_EVIDENCE_BYTES)
    begin, end = moment(data.valid_from, "valid_from"), moment(data.valid_to, "valid_to")
    check_period(begin, end, names=("valid_from", "valid_to"))
    project = choose_project(who, data.project_id, require_project(who))
    branches.check_project(project)
    given = {"src": str(data.src_id), "dst": str(data.dst_id)}
    linked = {side: _end_of(side, given[side], ends, branches) for side in SIDES}
    if linked["src"]["canonical_id"] == linked["dst"]["canonical_id"]:
        raise BadRequest("dst_id: an object cannot be linked to itself.", code="self_loop_not_allowed")
    if project is None and any(found["project_id"] is not None for found in linked.values()):
        raise _mismatch("A relationship of every project links objects of every project.")
    found = types.find(data.type, data.schema_version)
    for side in SIDES:
        allowed: list[str] = [] if found is None else found[f"allowed_{side}_types"]
        if allowed and linked[side]["type"] not in allowed:
            raise _not_allowed(side, data.type, linked[side]["type"], allowed)
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


def _end_of(side: str, given: str, ends: dict[str, list[Row]], branches: Branches) -> Row:
    """The object at one end: on the relationship's branch, or of every project."""
    heads = ends.get(given, [])
    if not heads:
        raise NotFound(f"{side}_id: there is no such object.", code=f"{side}_object_not_found")
    for head in heads:
        if str(head["branch_id"]) in (branches.target, branches.shared):
            if head["deleted_at"] is not None:
                raise Conflict(f"{side}_id: this object is deleted; restore it first.", code=f"{side}_object_deleted")
            return head
    raise BadRequest(f"{side}_id: this object is on another branch.", code="relationship_branch_mismatch")


def _mismatch(message: str) -> BadRequest:
    return BadRequest(message, code="relationship_project_mismatch")


def _not_allowed(side: str, name: str, given: str, allowed: list[str]) -> Unprocessable:
    return Unprocessable(
        f"{side}_id: relationships of type {name} take objects of type {', '.join(allowed[:10])} here, not {given}.",
        code="relationship_schema_validation_failed",
        details={"side": side, "type": name, "object_type": given, "allowed": allowed},
    )


def _warnings(types: Types, row: Row) -> list[str]:
    if types.find(row["type"]) is not None:
        return []
    return [f"type: {row['type']} is not registered; neither its ends nor its properties were checked."]


async def get_relationship(
    db: Database, who: Principal, *, relationship_id: UUID, as_of: datetime | None, deleted: bool
) -> RelationshipRead:
    """A relationship as it is now or was at a time, or one of its earlier versions by that version's id."""
    if as_of is not None:
        past = await read_version_at(db, who, "relationship", thing_id=relationship_id, as_of=as_of, deleted=deleted)
        return RelationshipRead(**present(past))
    found = await read_version(db, who, "relationship", thing_id=relationship_id, branch_id=None, deleted=deleted)
    return RelationshipRead(**present(found))


async def patch_relationship(
    db: Database, who: Principal, *, relationship_id: UUID, data: RelationshipPatch, if_match: str | None
) -> RelationshipRead:
    """Makes the next version; what changes nothing makes none."""

    async def write() -> Row:
        async with db.tenant(who) as session:
            head = await lock_head(session, who, "relationship", thing_id=relationship_id, if_match=if_match)
            return await _patch(session, who, head, data)

    return RelationshipRead(**present(await retried(write)))


async def _patch(
    session: Session, who: Principal, head: Row, data: RelationshipPatch, *, replaced: bool = False
) -> Row:
    state = patched("relationship", head, data)
    if replaced:
        state["properties"] = data.properties
    for name in ("valid_from", "valid_to"):
        state[name] = moment(state[name], name)
    check_period(state["valid_from"], state["valid_to"], names=("valid_from", "valid_to"))
    check_json(state["properties"], "properties")
    check_json(state["evidence"], "evidence", most=MAX_EVIDENCE_BYTES)
    fields = changed_fields("relationship", head, state)
    asked = state["asked_version"]
    if not fields and same(head["properties"], state["properties"]) and asked in (None, head["schema_version"]):
        raise no_effective_change("relationship", head)
    versions = [] if asked is None else [(head["type"], asked)]
    types = await read_types(session, who, "relationship", names=[head["type"]], versions=versions)
    state["schema_version"] = types.check(head["type"], state["properties"], version=asked)
    content = hash_content(properties=state["properties"], status=None, key=None, labels=[])
    return await advance(
        session,
        who,
        "relationship",
        head=head,
        state=state,
        described={"content_hash": content.hex()},
        summary=summarize(head["properties"], state["properties"], fields=fields),
        declared=types.declared(head["type"]),
    )


async def delete_relationship(db: Database, who: Principal, *, relationship_id: UUID, if_match: str | None) -> None:
    """Deletes a relationship by a new version; it can be restored."""

    async def write() -> None:
        async with db.tenant(who) as session:
            head = await lock_head(session, who, "relationship", thing_id=relationship_id, if_match=if_match)
            await _end(session, who, head, deleted_at=datetime.now(UTC))

    await retried(write)


async def restore_relationship(db: Database, who: Principal, *, relationship_id: UUID) -> RelationshipRead:
    """Brings a deleted relationship back by a new version, where both objects live and its place is free."""

    async def write() -> Row:
        async with db.tenant(who) as session:
            head = await lock_head(session, who, "relationship", thing_id=relationship_id, if_match=None, deleted=True)
            await _require_ends(session, who, head)
            return await _end(session, who, head, deleted_at=None)

    return RelationshipRead(**present(await retried(write)))


async def _require_ends(session: Session, who: Principal, head: Row) -> None:
    ids = [str(head["src_id"]), str(head["dst_id"])]
    held = {
        str(row["canonical_id"]): row["deleted_at"]
        for row in await session.rows(queries.HOLD_ENDS, {"tenant": who.tenant_id, "ids": ids})
    }
    for side in SIDES:
        end = str(head[f"{side}_id"])
        if end not in held:
            raise NotFound("There is no such object any more.", code=f"{side}_object_not_found")
        if held[end] is not None:
            raise Conflict(f"{side}_id: this object is deleted; restore it first.", code=f"{side}_object_deleted")


async def _end(session: Session, who: Principal, head: Row, *, deleted_at: datetime | None) -> Row:
    types = await read_types(session, who, "relationship", names=[head["type"]])
    return await advance(
        session,
        who,
        "relationship",
        head=head,
        state=head,
        described={"content_hash": bytes(head["content_hash"]).hex()},
        summary=ended(head["properties"], deleted=deleted_at is not None),
        declared=types.declared(head["type"]),
        deleted_at=deleted_at,
    )


async def list_relationships(db: Database, who: Principal, *, filters: dict[str, Any], page: Page) -> RelationshipList:
    """Live relationships of the project and those of every project, newest first."""
    async with db.tenant(who) as session:
        branches = await find_branches(session, who)
        after = None if page.after is None else page.after[0]
        given = {name for name, value in {**filters, "after": after}.items() if value not in (None, False)}
        place = {"tenant": who.tenant_id, "branch": branches.own, "shared": branches.shared}
        params = {**filters, **place, "after": after, "limit": page.limit + 1}
        found = await session.query(queries.select_heads("relationship", given=given, contained=False), params)
    rows, next_cursor = page.cut(found, key=lambda row: [str(row["canonical_id"])])
    return RelationshipList(relationships=[RelationshipRead(**present(row)) for row in rows], next_cursor=next_cursor)


async def list_relationship_versions(
    db: Database, who: Principal, *, relationship_id: UUID, summaries: bool, page: Page
) -> RelationshipVersions:
    """All versions of a relationship, newest first, also of a deleted one."""
    rows, next_cursor = await list_versions(db, who, "relationship", thing_id=relationship_id, page=page)
    shown = [RelationshipRead(**present(row, summary=summaries)) for row in rows]
    return RelationshipVersions(versions=shown, next_cursor=next_cursor)
