"""What objects and relationships have in common: finding the head that is meant, guarding it, and its next version."""

from collections.abc import Generator
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import Any, NoReturn
from uuid import UUID

import msgspec

from app.access import Principal, new_id, require_project
from app.audit import events as audit
from app.db.database import Database, Row, Session
from app.errors import AppError, BadRequest, Conflict, NotFound
from app.facts.as_of import look_back
from app.objects import queries
from app.objects.diff import encode_canonical, is_elided, merge_patch, same, summarize
from app.objects.drafts import require_shared
from app.objects.json_pointer import escape, parse_pointer
from app.objects.queries import Kind
from app.paging import Page
from app.read_context import reader
from app.telemetry.metrics import CHANGE_PATHS, CHANGE_SUMMARY_BYTES, CHANGES_TRUNCATED

IDS = ("branch_id", "canonical_id", "version_id", "src_id", "dst_id", "supersedes_id", "meant_id", "meant_branch")
# Fields beside the properties whose change makes a version, and is told.
FIELDS: dict[Kind, tuple[str, ...]] = {
    "object": ("subtype", "key", "title", "status", "labels", "effective_from", "effective_to", "evidence"),
    "relationship": ("weight", "role_src", "role_dst", "valid_from", "valid_to", "evidence"),
}


class Branches(msgspec.Struct, frozen=True):
    """The branches a request works in."""

    own: str
    shared: str | None
    named: str | None = None
    """The one it named, and whose that is."""
    named_project: str | None = None

    @property
    def target(self) -> str:
        return self.named or self.own

    def check_project(self, project: str | None) -> None:
        """Refuses to write what belongs to a project on a branch of every project, and the other way round."""
        if self.named is not None and self.named_project != project:
            raise BadRequest(
                "branch_id: this branch is of another project, or of none; leave it out for the right one.",
                code="branch_mismatch",
            )


def not_found(kind: Kind) -> NotFound:
    """The one answer for what is unknown, hidden or of another tenant."""
    return NotFound(f"There is no such {kind}.", code=f"{kind}_not_found")


async def find_branches(session: Session, who: Principal, *, branch_id: UUID | None = None) -> Branches:
    """The project's main branch, and the one that is named instead."""
    place = {"tenant": who.tenant_id, "project": require_project(who)}
    row = await session.row(queries.BRANCHES, place)
    assert row is not None
    named = project = None
    if branch_id is not None:
        found = await session.row(queries.FIND_BRANCH, {"tenant": who.tenant_id, "branch": str(branch_id)})
        if found is None or found["project_id"] not in (None, who.project_id):
            raise NotFound("branch_id: there is no such branch.", code="branch_not_found")
        named, project = str(found["branch_id"]), found["project_id"]
    return Branches(str(row["own"]), None if row["shared"] is None else str(row["shared"]), named, project)


async def shared_branch(session: Session) -> str:
    """The branch of what belongs to every project."""
    row = await session.row(queries.SHARED_BRANCH)
    assert row is not None
    return str(row["shared"])


def choose_head(kind: Kind, rows: list[Row], branches: Branches) -> Row:
    """Of the heads of one thing the one on the branch that is meant; one that is elsewhere is not found there."""
    if not rows:
        raise not_found(kind)
    for branch in [branches.named] if branches.named else [branches.own, branches.shared]:
        for row in rows:
            if str(row["branch_id"]) == branch:
                return row
    raise NotFound(f"There is no such {kind} on this branch.", code=f"{kind}_not_found_on_branch")


async def lock_head(
    session: Session, who: Principal, kind: Kind, *, thing_id: UUID, if_match: str | None, deleted: bool | None = False
) -> Row:
    """The head that an id names, held; refuses an id of an older version, another version than `If-Match` says, and
    what is deleted, or is not."""
    branches = await find_branches(session, who)
    rows = await session.rows(queries.LOCK_HEADS[kind], {"tenant": who.tenant_id, "id": str(thing_id)})
    head = choose_head(kind, rows, branches)
    require_shared(who, head["project_id"])
    # The id of the first version is the object's own.
    if str(head["meant_id"]) != str(head["canonical_id"]) and str(head["meant_id"]) != str(head["version_id"]):
        _stale(kind, head, f"This is the id of version {head['meant']}")
    if if_match is not None:
        _check_match(kind, head, if_match)
    if deleted is False and head["deleted_at"] is not None:
        raise Conflict(f"This {kind} is deleted; restore it first.", code="already_deleted")
    if deleted is True and head["deleted_at"] is None:
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


def patched(kind: Kind, head: Row, data: msgspec.Struct) -> Row:
    """The state after a patch, and `asked_version`, the version of its type by which it is to be checked."""
    state = {name: head[name] for name in (*queries.OWN[kind], "properties", "evidence")}
    given = {name: value for name, value in msgspec.structs.asdict(data).items() if value is not msgspec.UNSET}
    if not given:
        raise no_effective_change(kind, head)
    asked = given.pop("schema_version", None)
    for name, value in given.items():
        if name == "properties":
            state["properties"] = merge_patch(head["properties"], value)
        elif name == "labels":
            state["labels"] = list(dict.fromkeys(value or []))
        else:
            state[name] = value
    return state | {"asked_version": asked}


def changed_fields(kind: Kind, head: Row, state: Row) -> dict[str, Any]:
    """Which fields beside the properties differ, and how."""
    return {
        name: {"from": _plain(head[name]), "to": _plain(state[name])}
        for name in FIELDS[kind]
        if not same(_plain(head[name]), _plain(state[name]))
    }


def _plain(value: Any) -> Any:
    if isinstance(value, datetime):
        return value.astimezone(UTC).isoformat().replace("+00:00", "Z")
    return value


def no_effective_change(kind: Kind, head: Row) -> Conflict:
    """The error for a change that changes nothing: no version is made."""
    return Conflict(
        f"The {kind} says this already; no version was made.",
        code="no_effective_change",
        details={"version": head["version"]},
    )


async def advance(
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
    """Writes the next version and answers it as the head it is now."""
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
    await queries.change(session, kind, name=head["type"], **place, row=encoded, now=now)
    observe(summary)
    details = {"kind": kind, "version": row["version"], **audited(summary, declared)}
    await audit.record(session, "object_write", key_id=who.key_id, canonical_id=str(row["canonical_id"]), **details)
    return row | {"content_hash": bytes.fromhex(described["content_hash"]), "updated_at": now, "is_head": True}


async def record_made(session: Session, who: Principal, kind: Kind, *, ids: list[str], told: dict[str, Any]) -> None:
    """One line of the audit log for what was made together."""
    await audit.record(session, "object_write", key_id=who.key_id, kind=kind, version=1, made=ids, **told)


def audited(summary: dict[str, Any], declared: frozenset[str]) -> dict[str, Any]:
    """How much changed, and which of the fields that the type declares; other names may be anybody's words."""
    names = dict.fromkeys(parse_pointer(path)[0] for path in summary["paths"] if path)
    return {"meta": summary["meta"], "paths": [f"/{escape(name)}" for name in names if name in declared][:100]}


def as_made(row: Row, now: datetime) -> Row:
    """A new row as the head it is."""
    left_out = ("searched", "embed_text", "change_summary")
    return {name: value for name, value in row.items() if name not in left_out} | {
        "created_at": now,
        "updated_at": now,
        "deleted_at": None,
        "version_id": row["canonical_id"],
        "version": 1,
        "is_head": True,
        "supersedes_id": None,
        "content_hash": bytes.fromhex(row["content_hash"]),
    }


@contextmanager
def alone() -> Generator[None]:
    """For one item that is no batch: its error has no index."""
    try:
        yield
    except AppError as problem:
        problem.details.pop("index", None)
        raise


def ended(properties: Any, *, deleted: bool) -> dict[str, Any]:
    """The summary of a version that deletes, or that restores."""
    summary = summarize(properties, {}) if deleted else summarize({}, properties)
    return {**summary, "meta": {**summary["meta"], "deleted" if deleted else "restored": True}}


def observe(summary: dict[str, Any]) -> None:
    """Counts how large a change was."""
    CHANGE_PATHS.observe(len(summary["paths"]))
    CHANGE_SUMMARY_BYTES.observe(len(encode_canonical(summary)))
    if is_elided(summary):
        CHANGES_TRUNCATED.inc()


def encode_row(row: Any) -> str:
    """Rows as the database's functions take them."""
    return msgspec.json.encode(row).decode()


def present(row: Row, *, summary: bool = False) -> Row:
    """The fields of a version as they go out."""
    shown = {
        name: UUID(str(value)) if name in IDS and value is not None else value
        for name, value in row.items()
        if name
        not in ("version_id", "meant", "meant_id", "meant_branch", "written_by", "change_summary", "asked_version")
    }
    shown["id"] = UUID(str(row["version_id"]))
    shown["content_hash"] = bytes(row["content_hash"]).hex()
    if summary:
        shown["change_summary"] = row["change_summary"]
    return shown


async def read_version(
    db: Database, who: Principal, kind: Kind, *, thing_id: UUID, branch_id: UUID | None, deleted: bool
) -> Row:
    """The head that an id names, or the older version; what is deleted only where that is asked for."""
    async with db.tenant(who) as session:
        branches = await find_branches(session, who, branch_id=branch_id)
        rows = await session.rows(queries.HEADS[kind], {"tenant": who.tenant_id, "id": str(thing_id)})
        head = choose_head(kind, rows, branches)
        if head["meant_id"] in (head["canonical_id"], head["version_id"]):
            if head["deleted_at"] is not None and not deleted:
                raise not_found(kind)
            return head
        place = {"tenant": who.tenant_id, "canonical": head["canonical_id"], "branch": head["meant_branch"]}
        found = await session.query(
            queries.select_versions(kind, by_number=True), {**place, "version": head["meant"], "limit": 1}
        )
        return found[0] if found else head


async def read_version_at(
    db: Database, who: Principal, kind: Kind, *, thing_id: UUID, as_of: datetime, deleted: bool
) -> Row:
    """What stood at that time; what was deleted then only where that is asked for."""
    reader(who, as_of)
    async with db.tenant(who) as session:
        branches = await find_branches(session, who)
    place = {"tenant": who.tenant_id, "project": require_project(who), "own": branches.own, "shared": branches.shared}
    asked = {**place, "id": str(thing_id), "as_of": as_of}
    found = await look_back(db, who, queries.select_version_at(kind), asked)
    if not found or (found[0]["deleted_at"] is not None and not deleted):
        raise not_found(kind)
    return found[0]


async def list_versions(
    db: Database, who: Principal, kind: Kind, *, thing_id: UUID, page: Page
) -> tuple[list[Row], str | None]:
    """All versions, newest first; also of what is deleted."""
    async with db.tenant(who) as session:
        branches = await find_branches(session, who)
        rows = await session.rows(queries.HEADS[kind], {"tenant": who.tenant_id, "id": str(thing_id)})
        head = choose_head(kind, rows, branches)
        place = {"tenant": who.tenant_id, "canonical": head["canonical_id"], "branch": head["branch_id"]}
        after = None if page.after is None else page.after[0]
        found = await session.query(queries.select_versions(kind), {**place, "after": after, "limit": page.limit + 1})
    return page.cut(found, key=lambda row: [row["version"]])
