"""Versions of objects and relationships: find and lock a head, write its next version, read earlier ones."""

from collections.abc import Generator
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import Any, NoReturn
from uuid import UUID

import msgspec
from msgspec import UnsetType

from app.access import Principal, new_id, require_project
from app.audit import events as audit
from app.branches.service import Branches, find_branches
from app.db.counts import COUNT_LIMIT, count_query
from app.db.database import Database, Row, Session
from app.errors import AppError, BadRequest, Conflict, NotFound
from app.facts.as_of import HELD, check_held, look_back
from app.objects import queries
from app.objects.content import require_writer
from app.objects.diff import encode_canonical, is_elided, merge_patch, same, summarize
from app.objects.json_patch import PatchOperation, apply_operations
from app.objects.json_pointer import escape, parse_pointer
from app.objects.queries import Kind
from app.paging import Page, Total
from app.read_context import ReadContext
from app.telemetry.metrics import CHANGE_PATHS, CHANGE_SUMMARY_BYTES, CHANGES_TRUNCATED

IDS = ("branch_id", "canonical_id", "src_id", "dst_id", "supersedes_id")
# Columns that are no field of a response.
INTERNAL = frozenset(
    {
        "version_id",
        "given_version",
        "given_id",
        "given_branch",
        "change_summary",
        "requested_schema",
        "suppression",
    }
)
# Fields beside the properties whose change makes a version and is shown in its summary.
FIELDS: dict[Kind, tuple[str, ...]] = {
    "object": ("subtype", "key", "title", "status", "labels", "effective_from", "effective_to", "evidence"),
    "relationship": ("weight", "role_src", "role_dst", "valid_from", "valid_to", "evidence"),
}


class VersionPage(msgspec.Struct, frozen=True):
    """A page of heads or versions, the cursor of the next page, and the total where it was asked for."""

    rows: list[Row]
    next_cursor: str | None
    total: Total | UnsetType


def not_found(kind: Kind) -> NotFound:
    """Return the one error for what is unknown, hidden or of another tenant."""
    return NotFound(f"There is no such {kind}.", code=f"{kind}_not_found")


def choose_head(kind: Kind, rows: list[Row], branches: Branches) -> Row:
    """Return the head on the first of the branches that has one; raise NotFound when it is on none of them."""
    if not rows:
        raise not_found(kind)
    for branch in branches.readable:
        for row in rows:
            if str(row["branch_id"]) == branch:
                return row
    raise NotFound(f"There is no such {kind} on this branch.", code=f"{kind}_not_found_on_branch")


async def lock_head(
    session: Session, who: Principal, kind: Kind, *, item_id: UUID, if_match: str | None, deleted: bool = False
) -> Row:
    """Return the head of an id, locked; raise Conflict for an older version, a failed If-Match or the wrong state.

    `deleted` says whether the head has to be deleted or has to be live.
    """
    branches = await find_branches(session, ReadContext.of(who))
    rows = await session.rows(queries.LOCK_HEADS[kind], {"tenant": who.tenant_id, "id": str(item_id)})
    head = choose_head(kind, rows, branches)
    require_writer(who, head["project_id"])
    # The canonical id is the id of the first version, and names the head as well.
    if str(head["given_id"]) not in (str(head["canonical_id"]), str(head["version_id"])):
        _stale(kind, head, f"This is the id of version {head['given_version']}")
    if if_match is not None:
        _check_match(kind, head, if_match)
    if not deleted and head["deleted_at"] is not None:
        raise Conflict(f"This {kind} is deleted; restore it first.", code="already_deleted")
    if deleted and head["deleted_at"] is None:
        raise Conflict(f"This {kind} is not deleted.", code="not_deleted")
    return head


def _stale(kind: Kind, head: Row, reason: str) -> NoReturn:
    raise Conflict(
        f"{reason}; the {kind} is at version {head['version']}: read it and send the change again.",
        code="cannot_patch_non_head_version",
        details={"version": head["version"], "head_id": str(head["version_id"])},
    )


def _check_match(kind: Kind, head: Row, if_match: str) -> None:
    if if_match.strip() == "*":
        return
    tags = [tag.strip().removeprefix("W/").strip('"') for tag in if_match.split(",")]
    known = {str(head["version"]), str(head["version_id"]), bytes(head["content_hash"]).hex()}
    if not all(tags):
        raise BadRequest('If-Match: a version such as "3", or *.', code="invalid_if_match")
    if known.isdisjoint(tag.lower() for tag in tags):
        _stale(kind, head, f"If-Match: {if_match[:80]} is not the head")


def apply_patch(kind: Kind, head: Row, data: msgspec.Struct | list[PatchOperation], form: type[msgspec.Struct]) -> Row:
    """Return the state after a merge patch or a JSON Patch, with `requested_schema`: the version to check it by.

    `form` is the struct of a merge patch, which says which values the fields can have.
    """
    if isinstance(data, list):
        return _apply_operations(kind, head, data, form)
    state = {name: head[name] for name in (*queries.OWN[kind], "properties", "evidence")}
    given = {name: value for name, value in msgspec.structs.asdict(data).items() if value is not msgspec.UNSET}
    if not given:
        raise no_effective_change(kind, head)
    requested = given.pop("schema_version", None)
    for name, value in given.items():
        if name == "properties":
            state["properties"] = merge_patch(head["properties"], value)
        elif name == "labels":
            state["labels"] = list(dict.fromkeys(value or []))
        else:
            state[name] = value
    return state | {"requested_schema": requested}


def _apply_operations(kind: Kind, head: Row, operations: list[PatchOperation], form: type[msgspec.Struct]) -> Row:
    names = ("properties", *FIELDS[kind])
    document: Any = apply_operations({name: _plain(head[name]) for name in names}, operations)
    try:
        made = msgspec.structs.asdict(msgspec.convert(document, form))
    except msgspec.ValidationError as problem:
        raise BadRequest(f"patch: it leaves what is not valid: {problem}.", code="patch_invalid") from problem
    state = {name: None if (value := made[name]) is msgspec.UNSET else value for name in names}
    state["properties"] = state["properties"] or {}
    if kind == "object":
        state["labels"] = list(dict.fromkeys(state["labels"] or []))
    requested = made["schema_version"]
    ends = {name: head[name] for name in queries.OWN[kind] if name not in state}
    return ends | state | {"requested_schema": None if requested is msgspec.UNSET else requested}


def changed_fields(kind: Kind, head: Row, state: Row) -> dict[str, Any]:
    """Return the fields beside the properties that differ, each with its old and new value."""
    return {
        name: {"from": _plain(head[name]), "to": _plain(state[name])}
        for name in FIELDS[kind]
        if not same(_plain(head[name]), _plain(state[name]))
    }


def require_change(kind: Kind, head: Row, state: Row) -> dict[str, Any]:
    """Return the changed fields; raise Conflict when neither they, the properties nor the schema version change."""
    fields = changed_fields(kind, head, state)
    schema_kept = state["requested_schema"] in (None, head["schema_version"])
    if not fields and same(head["properties"], state["properties"]) and schema_kept:
        raise no_effective_change(kind, head)
    return fields


def _plain(value: Any) -> Any:
    if isinstance(value, datetime):
        return value.astimezone(UTC).isoformat().replace("+00:00", "Z")
    return value


def no_effective_change(kind: Kind, head: Row) -> Conflict:
    """Return the error for a change that changes nothing."""
    return Conflict(
        f"The {kind} has these values already; no version was created.",
        code="no_effective_change",
        details={"version": head["version"]},
    )


async def write_next_version(
    session: Session,
    who: Principal,
    kind: Kind,
    *,
    head: Row,
    state: Row,
    described: Row,
    summary: dict[str, Any],
    declared: frozenset[str],
    deleted_at: datetime | None = None,
) -> Row:
    """Write the next version with its audit record and return it as the head."""
    now = datetime.now(UTC)
    row: Row = {
        **{name: head[name] for name in ("branch_id", "canonical_id", "project_id", "type", "created_at")},
        **{name: state[name] for name in (*queries.OWN[kind], "properties", "evidence", "schema_version")},
        "version_id": new_id(),
        "version": head["version"] + 1,
        "supersedes_id": head["version_id"],
        "deleted_at": deleted_at,
    }
    encoded = encode_row(row | described | {"change_summary": summary})
    place = {"tenant": who.tenant_id, "agent": who.agent_id}
    await queries.change(session, kind, type_name=head["type"], **place, row=encoded, now=now)
    observe_change(summary)
    details = {"kind": kind, "version": row["version"], **audit_details(summary, declared)}
    await audit.record(session, "object_write", key_id=who.key_id, canonical_id=str(row["canonical_id"]), **details)
    written = {"updated_at": now, "written_by": who.agent_id, "is_head": True}
    return row | {"content_hash": bytes.fromhex(described["content_hash"])} | written


async def record_created(
    session: Session, who: Principal, kind: Kind, *, rows: list[Row], declared: frozenset[str]
) -> None:
    """Write one audit record for rows that were created together; it has details where there is only one row."""
    details = audit_details(rows[0]["change_summary"], declared) if len(rows) == 1 else {}
    ids = sorted(row["canonical_id"] for row in rows)
    await audit.record(session, "object_write", key_id=who.key_id, kind=kind, version=1, made=ids, **details)


def audit_details(summary: dict[str, Any], declared: frozenset[str]) -> dict[str, Any]:
    """Return how much changed, and where; only names that the type declares, since others may be personal data."""
    names = dict.fromkeys(parse_pointer(path)[0] for path in summary["paths"] if path)
    return {"meta": summary["meta"], "paths": [f"/{escape(name)}" for name in names if name in declared][:100]}


def first_version(who: Principal, row: Row, now: datetime) -> Row:
    """Return a new row as the head it became."""
    left_out = ("searched", "embed_text", "change_summary")
    return {name: value for name, value in row.items() if name not in left_out} | {
        "created_at": now,
        "updated_at": now,
        "deleted_at": None,
        "version_id": row["canonical_id"],
        "version": 1,
        "written_by": who.agent_id,
        "is_head": True,
        "supersedes_id": None,
        "content_hash": bytes.fromhex(row["content_hash"]),
    }


@contextmanager
def error_index(index: int) -> Generator[None]:
    """Add the index of a batch's item to the details of its error."""
    try:
        yield
    except AppError as problem:
        problem.details.setdefault("index", index)
        raise


@contextmanager
def no_error_index() -> Generator[None]:
    """Remove the index from the error of a single item, which is no batch."""
    try:
        yield
    except AppError as problem:
        problem.details.pop("index", None)
        raise


def summarize_deletion(properties: Any, *, deleted: bool) -> dict[str, Any]:
    """Return the summary of a version that deletes or restores."""
    summary = summarize(properties, {}) if deleted else summarize({}, properties)
    return {**summary, "meta": {**summary["meta"], "deleted" if deleted else "restored": True}}


def observe_change(summary: dict[str, Any]) -> None:
    """Record the size of a change in the metrics."""
    CHANGE_PATHS.observe(len(summary["paths"]))
    CHANGE_SUMMARY_BYTES.observe(len(encode_canonical(summary)))
    if is_elided(summary):
        CHANGES_TRUNCATED.inc()


def encode_row(row: Any) -> str:
    """Return a row, or a list of them, as JSON for the SQL functions."""
    return msgspec.json.encode(row).decode()


def present(row: Row, *, summary: bool = False) -> Row:
    """Return the fields of a version as the response has them."""
    shown = {
        name: UUID(str(value)) if name in IDS and value is not None else value
        for name, value in row.items()
        if name not in INTERNAL
    }
    shown["id"] = UUID(str(row["version_id"]))
    shown["content_hash"] = bytes(row["content_hash"]).hex()
    if summary:
        shown["change_summary"] = row["change_summary"]
    return shown


async def read_version(
    db: Database, context: ReadContext, kind: Kind, *, item_id: UUID, branch_id: UUID | None, deleted: bool
) -> Row:
    """Return the head or the version of an id, at the context's time; raise NotFound for deleted ones unless asked."""
    if context.as_of is not None:
        return await _read_version_at(db, context, kind, item_id=item_id, deleted=deleted)
    who = context.who
    async with db.tenant(who) as session:
        branches = await find_branches(session, context, branch_id=branch_id)
        rows = await session.rows(queries.HEADS[kind], {"tenant": who.tenant_id, "id": str(item_id)})
        head = choose_head(kind, rows, branches)
        if head["given_id"] in (head["canonical_id"], head["version_id"]):
            if head["deleted_at"] is not None and not deleted:
                raise not_found(kind)
            return head
        place = {"tenant": who.tenant_id, "canonical": head["canonical_id"], "branch": head["given_branch"]}
        found = await session.query(
            queries.select_versions(kind, by_number=True), {**place, "version": head["given_version"], "limit": 1}
        )
        return found[0] if found else head


async def _read_version_at(db: Database, context: ReadContext, kind: Kind, *, item_id: UUID, deleted: bool) -> Row:
    who = context.who
    async with db.tenant(who) as session:
        branches = await find_branches(session, context)
    place = {"tenant": who.tenant_id, "project": require_project(who), "own": branches.own, "shared": branches.shared}
    given = {**place, "id": str(item_id), "as_of": context.as_of}
    found = await look_back(db, who, queries.select_version_at(kind), given)
    if not found or (found[0]["deleted_at"] is not None and not deleted):
        raise not_found(kind)
    await _check_held(db, context, kind, found)
    return found[0]


async def _check_held(db: Database, context: ReadContext, kind: Kind, rows: list[Row]) -> None:
    held = [row for row in rows if row["suppression"] == HELD]
    about = [row[name] for row in held for name in ("canonical_id", "src_id", "dst_id") if name in row]
    await check_held(db, context, about=about, **{f"{kind}_ids": [row["canonical_id"] for row in held]})


async def list_heads(
    db: Database, context: ReadContext, kind: Kind, *, filters: dict[str, Any], page: Page
) -> VersionPage:
    """Return a page of heads of the project and of every project, newest first.

    At a past time they are the versions that were recorded then.
    """
    who = context.who
    after = None if page.after is None else page.after[0]
    given = {name for name, value in {**filters, "after": after}.items() if value not in (None, False)}
    async with db.tenant(who) as session:
        branches = await find_branches(session, context, branch_id=filters.get("branch_id"))
        params = {
            **filters,
            "tenant": who.tenant_id,
            "project": require_project(who),
            "as_of": context.as_of,
            "branch": branches.target,
            "shared": None if branches.named else branches.shared,
            "after": after,
            "limit": page.limit + 1,
        }
        select = queries.select_heads if context.as_of is None else queries.select_heads_at
        found = await session.query(select(kind, given=given), params) if context.as_of is None else []
    if context.as_of is not None:
        found = await look_back(db, who, select(kind, given=given), params)
    rows, next_cursor = page.cut(found, key=lambda row: [str(row["canonical_id"])])
    if context.as_of is not None:
        await _check_held(db, context, kind, rows)
    every = count_query(select(kind, given=given - {"after"}))
    total = await page.count(lambda: look_back(db, who, every, {**params, "after": None, "limit": COUNT_LIMIT}))
    return VersionPage(rows, next_cursor, total)


async def list_versions(db: Database, context: ReadContext, kind: Kind, *, item_id: UUID, page: Page) -> VersionPage:
    """Return a page of versions, newest first, also of what is deleted."""
    who = context.who
    async with db.tenant(who) as session:
        branches = await find_branches(session, context)
        rows = await session.rows(queries.HEADS[kind], {"tenant": who.tenant_id, "id": str(item_id)})
        head = choose_head(kind, rows, branches)
        place = {"tenant": who.tenant_id, "canonical": head["canonical_id"], "branch": head["branch_id"]}
        after = None if page.after is None else page.after[0]
        query = queries.select_versions(kind)
        found = await session.query(query, {**place, "after": after, "limit": page.limit + 1})
    rows, next_cursor = page.cut(found, key=lambda row: [row["version"]])
    every = {**place, "after": None, "limit": COUNT_LIMIT}
    return VersionPage(rows, next_cursor, await page.count(lambda: db.query(who, count_query(query), every)))
