"""Use cases of types: register, read, activate and retire versions, and check properties against them."""

import asyncio
from collections.abc import Iterable
from datetime import UTC, datetime
from functools import lru_cache
from time import thread_time
from typing import Any, cast
from uuid import UUID

import msgspec

from app.access import Principal
from app.audit import events as audit
from app.db.counts import COUNT_LIMIT
from app.db.database import Database, Row, Session
from app.db.retries import retried
from app.errors import BadRequest, Conflict, Forbidden, NotFound, TooLarge
from app.objects.types import queries
from app.objects.types.queries import Kind
from app.objects.types.schemas import (
    Multiplicity,
    ObjectTypeCreate,
    ObjectTypeList,
    ObjectTypeRead,
    ObjectTypeWritten,
    RankingRule,
    RelationshipTypeCreate,
    RelationshipTypeList,
    RelationshipTypeRead,
    RelationshipTypeWritten,
    TypePatch,
)
from app.objects.types.search_settings import apply_change, find_type
from app.objects.types.validation import compile_schema, schema_failed, stored_checker
from app.outcomes import Outcome
from app.paging import Page

Written = ObjectTypeWritten | RelationshipTypeWritten
# Processor time of one request's checks: after how much others get their turn, and how much is allowed in all.
PAUSE_SECONDS = 0.02
MAX_SECONDS = 2.0
# How many existing objects are checked by a new version of their type, how many at once, and how many are named.
MAX_CHECKED = 1000
CHECKED_AT_ONCE = 50
SHOWN = 20
CODES: dict[Kind, str] = {
    "object": "object_schema_validation_failed",
    "relationship": "relationship_schema_validation_failed",
}


def type_row(kind: Kind, data: ObjectTypeCreate | RelationshipTypeCreate) -> Row:
    """Return the columns of a version of a type; raise BadRequest when its schema is not a valid JSON Schema."""
    compile_schema(data.json_schema)
    row: Row = {
        "type": data.type,
        "description": data.description,
        "json_schema": msgspec.json.encode(data.json_schema).decode(),
    }
    if kind == "object":
        made = cast(ObjectTypeCreate, data)
        return row | {
            "embedding_policy": made.embedding_policy,
            "embedding_relevant_paths": made.embedding_relevant_paths,
            "fts_enabled": made.fts_enabled,
        }
    relationship = cast(RelationshipTypeCreate, data)
    return row | {
        "allowed_src_types": sorted(set(relationship.allowed_src_types)),
        "allowed_dst_types": sorted(set(relationship.allowed_dst_types)),
        "multiplicity_src": relationship.multiplicity.src,
        "multiplicity_dst": relationship.multiplicity.dst,
        **msgspec.structs.asdict(relationship.ranking),
    }


async def register_type(
    session: Session, who: Principal, kind: Kind, *, data: ObjectTypeCreate | RelationshipTypeCreate
) -> Outcome[Written]:
    """Register a type or its next version, which becomes the active one; return an equal version as it is."""
    wanted = type_row(kind, data)
    await _lock_type(session, who, kind, data.type)
    found = await session.rows(queries.VERSIONS[kind], {"tenant": who.tenant_id, "types": [data.type]})
    own = [row for row in found if row["scope"] == "tenant"]
    known = _same_version(kind, own, wanted, data.version)
    if known is not None:
        return _outcome(kind, known, created=False)
    await _require_sole_user(session, who, kind, data.type)
    row = wanted | {
        "tenant_id": who.tenant_id,
        "version": data.version or max((row["version"] for row in own), default=0) + 1,
        "status": data.status,
        "created_by": who.agent_id or who.key_id,
        "created_at": datetime.now(UTC),
    }
    before = await find_type(session, who, name=data.type) if kind == "object" else None
    if data.status == "active":
        if isinstance(data, ObjectTypeCreate) and not data.force:
            await _require_fit(session, name=data.type, json_schema=wanted["json_schema"])
        await session.execute(queries.RETIRE[kind], {"tenant": who.tenant_id, "type": data.type})
    await queries.insert_version(session, kind, row=row)
    await _apply_multiplicity(session, kind, data.type)
    details = {"action": f"{kind}_type_register", "type": data.type, "version": row["version"]}
    await audit.record(session, "admin_action", key_id=who.key_id, **details)
    job_id = await apply_change(session, who, name=data.type, before=before) if kind == "object" else None
    return _outcome(kind, row | {"scope": "tenant"}, created=True, job_id=job_id)


def _same_version(kind: Kind, own: list[Row], wanted: Row, version: int | None) -> Row | None:
    """Return the active or the named version if it equals the wanted one; raise Conflict if the named one differs."""
    for row in own:
        if row["version"] == version if version is not None else row["status"] == "active":
            if type_content(kind, row) == type_content(kind, wanted):
                return row
            if version is not None:
                raise Conflict(
                    f"version: version {version} of {row['type']} exists and differs; leave version out to "
                    "register the next one.",
                    code="type_version_exists",
                )
    return None


def type_content(kind: Kind, row: Row) -> dict[str, Any]:
    """Return what makes two versions of a type equal."""
    content = {name: row[name] for name in queries.CONTENT[kind]}
    content["json_schema"] = msgspec.json.decode(row["json_schema"])
    return content


async def _lock_type(session: Session, who: Principal, kind: Kind, name: str) -> None:
    await session.execute(queries.LOCK_TYPE, {"tenant": who.tenant_id, "kind": kind, "type": name})


async def _require_sole_user(session: Session, who: Principal, kind: Kind, name: str) -> None:
    """Raise Forbidden when other projects use the type, and the caller is no administrator of all of them."""
    if who.is_tenant_admin:
        return
    row = await session.row(queries.USED_ELSEWHERE, {"kind": kind, "type": name})
    if row is not None and row["used"]:
        raise Forbidden(
            f"type: other projects use {name} too; only keys of kind admin that are bound to no project can change it.",
            code="type_used_elsewhere",
        )


async def _require_fit(session: Session, *, name: str, json_schema: str) -> None:
    """Raise Conflict when live objects of the type do not fit a schema; the newest are checked, within bounds."""
    checker, spent = stored_checker(json_schema), 0.0
    checked, failing, after = 0, list[str](), None
    while checked < MAX_CHECKED and spent < MAX_SECONDS:
        rows = await session.rows(queries.OBJECTS_OF_TYPE, {"type": name, "after": after, "limit": CHECKED_AT_ONCE})
        began = thread_time()
        failing += [str(row["canonical_id"]) for row in rows if checker.errors(row["properties"])]
        spent += thread_time() - began
        checked += len(rows)
        if len(rows) < CHECKED_AT_ONCE:
            break
        after = str(rows[-1]["canonical_id"])
    if failing:
        raise Conflict(
            f"json_schema: {len(failing)} of the {checked} newest objects of type {name} do not fit it; change them, "
            "or send force to register it anyway: they are checked when they next change.",
            code="objects_do_not_fit",
            details={"checked": checked, "failing": len(failing), "objects": failing[:SHOWN]},
        )


async def _apply_multiplicity(session: Session, kind: Kind, name: str) -> None:
    if kind != "relationship":
        return
    exceeding = await session.rows(queries.APPLY_MULTIPLICITY, {"type": name})
    if exceeding:
        listed = [{**row, "object_id": row["object_id"] and str(row["object_id"])} for row in exceeding]
        raise Conflict(
            f"multiplicity: some objects already have several live relationships of type {name}; delete all but one "
            "of each first.",
            code="multiplicity_exceeded",
            details={"objects": listed},
        )


async def set_type_status(db: Database, who: Principal, kind: Kind, *, name: str, data: TypePatch) -> Written:
    """Activate or retire a version of a tenant's type and return it; raise NotFound."""

    async def write() -> Written:
        async with db.tenant(who) as session:
            before = await find_type(session, who, name=name) if kind == "object" else None
            row = await _set_status(session, who, kind, name=name, data=data)
            job_id = await apply_change(session, who, name=name, before=before) if kind == "object" else None
            return _outcome(kind, row, created=False, job_id=job_id).value

    return await retried(write)


async def _set_status(session: Session, who: Principal, kind: Kind, *, name: str, data: TypePatch) -> Row:
    await _lock_type(session, who, kind, name)
    rows = await session.rows(queries.VERSIONS[kind], {"tenant": who.tenant_id, "types": [name]})
    found = next((row for row in rows if row["scope"] == "tenant" and row["version"] == data.version), None)
    if found is None:
        raise type_not_found(kind, name)
    if found["status"] != data.status:
        await _require_sole_user(session, who, kind, name)
        place = {"tenant": who.tenant_id, "type": name}
        if data.status == "active":
            if kind == "object" and not data.force:
                await _require_fit(session, name=name, json_schema=found["json_schema"])
            await session.execute(queries.RETIRE[kind], place)
        await session.execute(queries.SET_STATUS[kind], {**place, "version": data.version, "status": data.status})
        await _apply_multiplicity(session, kind, name)
        details = {"action": f"{kind}_type_{data.status}", "type": name, "version": data.version}
        await audit.record(session, "admin_action", key_id=who.key_id, **details)
    return found | {"status": data.status}


async def get_type(
    db: Database, who: Principal, kind: Kind, *, name: str, version: int | None
) -> ObjectTypeRead | RelationshipTypeRead:
    """Return the active version of a type, or the named one; raise NotFound."""
    async with db.tenant(who) as session:
        rows = await session.rows(queries.VERSIONS[kind], {"tenant": who.tenant_id, "types": [name]})
    chosen = [row for row in rows if (row["status"] == "active" if version is None else row["version"] == version)]
    if not chosen:
        raise type_not_found(kind, name)
    return present_type(kind, chosen[0])


async def list_types(
    db: Database, who: Principal, kind: Kind, *, name: str | None, status: str | None, page: Page
) -> ObjectTypeList | RelationshipTypeList:
    """Return a page of types by name, each with its versions, newest first."""
    place = {"tenant": who.tenant_id, "name": name, "status": status}
    async with db.tenant(who) as session:
        found = await session.rows(queries.LISTED[kind], {**place, **_position(page.after), "limit": page.limit + 1})
        every = {**place, **_position(None), "limit": COUNT_LIMIT}
        total = await page.count(lambda: session.rows(queries.COUNTED[kind], every))
    rows, next_cursor = page.cut(found, key=lambda row: [row["type"], row["scope"], row["version"]])
    shown: list[Any] = [present_type(kind, row) for row in rows]
    listed = ObjectTypeList if kind == "object" else RelationshipTypeList
    return listed(schemas=shown, next_cursor=next_cursor, total=total)


def _position(after: list[Any] | None) -> dict[str, Any]:
    return dict(zip(("after_type", "after_scope", "after_version"), after or [None, None, None], strict=True))


def type_not_found(kind: Kind, name: str) -> NotFound:
    """Return the error for a type that is not registered."""
    return NotFound(f"There is no such {kind} type: {name[:128]}.", code="type_not_found")


def present_type(kind: Kind, row: Row) -> ObjectTypeRead | RelationshipTypeRead:
    """Return a version of a type as the response has it."""
    shared = {
        name: row[name] for name in ("type", "version", "status", "scope", "description", "created_by", "created_at")
    }
    schema = msgspec.json.decode(row["json_schema"])
    if kind == "object":
        own = {name: row[name] for name in ("embedding_policy", "embedding_relevant_paths", "fts_enabled")}
        return ObjectTypeRead(**shared, json_schema=schema, **own)
    ranking = {name: row[name] for name in RankingRule.__struct_fields__}
    return RelationshipTypeRead(
        **shared,
        json_schema=schema,
        allowed_src_types=row["allowed_src_types"],
        allowed_dst_types=row["allowed_dst_types"],
        multiplicity=Multiplicity(src=row["multiplicity_src"], dst=row["multiplicity_dst"]),
        ranking=RankingRule(**ranking),
    )


def _outcome(kind: Kind, row: Row, *, created: bool, job_id: UUID | None = None) -> Outcome[Written]:
    shown = present_type(kind, row)
    if isinstance(shown, ObjectTypeRead):
        return Outcome(ObjectTypeWritten(schema=shown, created=created, job_id=job_id), created=created)
    return Outcome(RelationshipTypeWritten(schema=shown, created=created), created=created)


@lru_cache(maxsize=2000)
def _declared(text: str) -> frozenset[str]:
    schema = msgspec.json.decode(text)
    properties: Any = cast(dict[str, Any], schema).get("properties") if isinstance(schema, dict) else None
    return frozenset(cast(dict[str, Any], properties)) if isinstance(properties, dict) else frozenset()


class Types:
    """The types of a write as they are in its transaction; a type that is not registered allows everything."""

    def __init__(self, kind: Kind, rows: Iterable[Row], versions: dict[tuple[str, int], Row]) -> None:
        self._kind: Kind = kind
        self._active = {row["type"]: row for row in rows}
        self._versions = versions
        self._spent = 0.0
        self._paused_at = 0.0

    def find(self, name: str, version: int | None = None) -> Row | None:
        """Return the active version or the named one; None for an unregistered type; raise BadRequest."""
        if version is None:
            return self._active.get(name)
        found = self._versions.get((name, version))
        if found is None:
            raise BadRequest(f"schema_version: {name} has no version {version}.", code="schema_version_unknown")
        return found

    def declared(self, name: str) -> frozenset[str]:
        """Return the names of the properties that the type's schema declares."""
        found = self._active.get(name)
        return frozenset() if found is None else _declared(found["json_schema"])

    def check(self, name: str, properties: Any, *, version: int | None = None, field: str = "properties") -> int | None:
        """Check properties and return the version of the type that was used, or None; raise Unprocessable."""
        found = self.find(name, version)
        if found is None:
            return None
        began = thread_time()
        errors = stored_checker(found["json_schema"]).errors(properties)
        self._spent += thread_time() - began
        if errors:
            raise schema_failed(errors, code=CODES[self._kind], field=field, name=name, version=found["version"])
        return found["version"]

    async def pause(self) -> None:
        """Let other requests run when checks took a while; raise TooLarge when those of one request take too long."""
        if self._spent > MAX_SECONDS:
            raise TooLarge(
                "Checking these items against the JSON Schemas of their types takes too long; send fewer at once.",
                code="check_too_slow",
            )
        if self._spent - self._paused_at > PAUSE_SECONDS:
            self._paused_at = self._spent
            await asyncio.sleep(0)


async def read_types(
    session: Session, who: Principal, kind: Kind, *, names: Iterable[str], versions: Iterable[tuple[str, int]] = ()
) -> Types:
    """Return the types of these names, and those versions of them that are requested by number."""
    active = await session.rows(queries.ACTIVE[kind], {"tenant": who.tenant_id, "types": sorted(set(names))})
    chosen: dict[tuple[str, int], Row] = {}
    requested = set(versions)
    if requested:
        given = {"tenant": who.tenant_id, "types": sorted({name for name, _ in requested})}
        # Reversed, so that the tenant's own versions, which come first, replace the installation's.
        for row in reversed(await session.rows(queries.VERSIONS[kind], given)):
            chosen[row["type"], row["version"]] = row
    return Types(kind, active, chosen)
