"""Gardens: shared collections of memory with members and roles."""

from datetime import UTC, datetime
from typing import Any
from uuid import UUID

import msgspec

from app.access import Principal, new_id, require_project
from app.audit import events as audit
from app.db.counts import COUNT_LIMIT
from app.db.database import Database, Row, Session
from app.errors import BadRequest, Forbidden, NotFound, Unprocessable
from app.outcomes import Outcome
from app.paging import Page
from app.tenancy import queries
from app.tenancy.schemas import (
    SYNONYMS,
    GardenCreate,
    GardenList,
    GardenPatch,
    GardenRead,
    GardenWritten,
    MemberList,
    MemberPut,
    MemberRead,
    MemberSet,
)


def _present(row: Row) -> GardenRead:
    fields: dict[str, Any] = {name: row[name] for name in GardenRead.__struct_fields__}
    fields["garden_id"] = UUID(str(row["garden_id"]))
    return GardenRead(**fields)


async def create_garden(session: Session, who: Principal, *, data: GardenCreate) -> Outcome[GardenWritten]:
    """Create a garden whose first admin is the caller, or raise Conflict when its slug is taken."""
    now = datetime.now(UTC)
    place = {"tenant_id": who.tenant_id, "project_id": require_project(who), "garden_id": new_id()}
    row = {
        **place,
        "slug": data.slug,
        "name": data.name or data.slug,
        "scope": SYNONYMS.get(data.scope, data.scope),
        "description": data.description,
        "created_by": who.agent_id,
        "created_at": now,
    }
    garden = await queries.insert_garden(session, row=row)
    member = {**place, "agent_id": who.agent_id, "role": "admin", "added_by": who.agent_id, "added_at": now}
    await queries.upsert_member(session, row=member)
    await _record(session, who, "create", garden_id=place["garden_id"])
    return Outcome(GardenWritten(garden=_present(garden), created=True))


async def list_gardens(db: Database, who: Principal, *, page: Page) -> GardenList:
    """Return a page of the gardens an agent belongs to, or of all gardens for an admin key, by slug."""
    place: dict[str, Any] = {
        "tenant_id": who.tenant_id,
        "project_id": require_project(who),
        "member": None if who.is_admin else who.agent_id,
    }
    after = None if page.after is None else page.after[0]
    found = await db.fetch(who, queries.select_gardens(**place, after=after, limit=page.limit + 1))
    rows, next_cursor = page.cut(found, key=lambda row: [row["slug"]])
    total = await page.count_rows(db, who, queries.select_gardens(**place, after=None, limit=COUNT_LIMIT))
    return GardenList(gardens=[_present(row) for row in rows], next_cursor=next_cursor, total=total)


async def get_garden(db: Database, who: Principal, *, garden_id: UUID) -> GardenRead:
    """Return the garden, raise NotFound, or Forbidden unless the caller is a member or an admin key."""
    async with db.tenant(who) as session:
        garden, _ = await _garden_and_role(session, who, garden_id)
        return _present(garden)


async def patch_garden(db: Database, who: Principal, *, garden_id: UUID, data: GardenPatch) -> GardenWritten:
    """Change the name or description of a garden; its scope and slug cannot change."""
    changes: dict[str, Any] = msgspec.structs.asdict(data)
    changes = {name: value for name, value in changes.items() if value is not msgspec.UNSET}
    if not changes:
        raise BadRequest("Send name, description or both.")
    async with db.tenant(who) as session:
        garden, role = await _garden_and_role(session, who, garden_id, lock=True)
        _require_admin(role)
        row = await queries.update_garden(
            session, tenant_id=who.tenant_id, garden_id=str(garden["garden_id"]), **changes
        )
        await _record(session, who, "update", garden_id=garden_id, fields=sorted(changes))
        return GardenWritten(garden=_present(row), created=False)


async def list_members(db: Database, who: Principal, *, garden_id: UUID, page: Page) -> MemberList:
    """Return a page of a garden's members, by agent id."""
    place = {"tenant_id": who.tenant_id, "garden_id": str(garden_id)}
    after = None if page.after is None else page.after[0]
    async with db.tenant(who) as session:
        await _garden_and_role(session, who, garden_id)
        found = await session.rows(queries.select_members(**place, after=after, limit=page.limit + 1))
    rows, next_cursor = page.cut(found, key=lambda row: [row["agent_id"]])
    total = await page.count_rows(db, who, queries.select_members(**place, after=None, limit=COUNT_LIMIT))
    return MemberList(members=[MemberRead(**row) for row in rows], next_cursor=next_cursor, total=total)


async def put_member(
    db: Database, who: Principal, *, garden_id: UUID, agent_id: str, data: MemberPut
) -> Outcome[MemberSet]:
    """Add a member or change their role; raise Forbidden when that would leave no admin."""
    async with db.tenant(who) as session:
        _, role = await _garden_and_role(session, who, garden_id, lock=True)
        _require_admin(role)
        place = {"tenant_id": who.tenant_id, "garden_id": str(garden_id), "agent_id": agent_id}
        before = await queries.find_member(session, **place)
        if before is not None and before["role"] == "admin" and data.role != "admin":
            await _require_another_admin(session, who, garden_id)
        added = {"project_id": who.project_id, "added_by": who.agent_id, "added_at": datetime.now(UTC)}
        row = await queries.upsert_member(session, row={**place, **added, "role": data.role})
        was = None if before is None else before["role"]
        await _record(
            session, who, "set_member", garden_id=garden_id, member=agent_id, role=data.role, previous_role=was
        )
        return Outcome(MemberSet(member=MemberRead(**row), created=before is None), created=before is None)


async def remove_member(db: Database, who: Principal, *, garden_id: UUID, agent_id: str) -> None:
    """Remove a member: admins remove anybody, members themselves; raise Forbidden for the last admin."""
    async with db.tenant(who) as session:
        _, role = await _garden_and_role(session, who, garden_id, lock=True)
        if agent_id != who.agent_id:
            _require_admin(role)
        place = {"tenant_id": who.tenant_id, "garden_id": str(garden_id), "agent_id": agent_id}
        member = await queries.find_member(session, **place)
        if member is None:
            raise NotFound(f"{agent_id} is not a member of this garden.", code="member_not_found")
        if member["role"] == "admin":
            await _require_another_admin(session, who, garden_id)
        await queries.delete_member(session, **place)
        await _record(session, who, "remove_member", garden_id=garden_id, member=agent_id, previous_role=member["role"])


async def _record(session: Session, who: Principal, action: str, *, garden_id: UUID | str, **details: Any) -> None:
    await audit.record(session, "garden_write", key_id=who.key_id, action=action, garden_id=str(garden_id), **details)


async def delete_garden(session: Session, who: Principal, *, garden_id: UUID, **details: Any) -> None:
    """Delete a garden whose contents are dealt with; what stays in it is visible to its creator and to administrators.

    `details` go to the audit log.
    """
    garden, role = await _garden_and_role(session, who, garden_id, lock=True)
    _require_admin(role)
    place = {"tenant_id": who.tenant_id, "garden_id": str(garden_id)}
    now = datetime.now(UTC)
    await queries.delete_members(session, **place)
    owner = {"agent_id": garden["created_by"], "role": "admin", "added_by": who.agent_id, "added_at": now}
    await queries.upsert_member(session, row={**place, "project_id": who.project_id, **owner})
    await queries.update_garden(session, **place, deleted_at=now)
    await _record(session, who, "delete", garden_id=garden_id, **details)


async def require_deletable(session: Session, who: Principal, *, garden_id: UUID) -> None:
    """Lock a garden and raise NotFound, or Forbidden unless the caller is one of its admins."""
    _, role = await _garden_and_role(session, who, garden_id, lock=True)
    _require_admin(role)


async def _garden_and_role(
    session: Session, who: Principal, garden_id: UUID, *, lock: bool = False, deleted: bool = False
) -> tuple[Row, str]:
    """Return the garden and the caller's role in it, or raise NotFound or Forbidden; `deleted`: a deleted one too."""
    address = {"tenant_id": who.tenant_id, "garden_id": str(garden_id)}
    garden = await queries.find_garden(session, **address, lock=lock)
    if garden is None or (garden["deleted_at"] is not None and not deleted):
        raise NotFound("There is no such garden.", code="garden_not_found")
    if who.is_admin:
        return garden, "admin"
    member = await queries.find_member(session, **address, agent_id=who.agent_id)
    if member is None:
        raise Forbidden("You are not a member of this garden.", code="garden_forbidden")
    return garden, member["role"]


async def require_writable(
    session: Session, who: Principal, *, garden_id: UUID, scope: str | None = None, existing: bool = False
) -> None:
    """Raise Forbidden unless the caller may write to the garden, NotFound, or Unprocessable for another scope.

    `existing`: to what is there already, which its owner may change and delete in a deleted garden too.
    """
    garden, role = await _garden_and_role(session, who, garden_id, deleted=existing)
    if role == "reader":
        raise Forbidden("garden_id: readers of a garden cannot write to it.", code="garden_forbidden")
    if scope is not None and garden["scope"] != scope:
        raise Unprocessable(
            f"scope: this garden has scope {garden['scope']}; what is written to it must have the same.",
            code="garden_scope_mismatch",
        )


async def require_readable(session: Session, who: Principal, *, garden_id: UUID) -> None:
    """Raise NotFound for an unknown garden and Forbidden for one the caller is not a member of."""
    await _garden_and_role(session, who, garden_id, deleted=True)


def _require_admin(role: str) -> None:
    if role != "admin":
        raise Forbidden("Only admins of the garden can do this.", code="garden_forbidden")


async def _require_another_admin(session: Session, who: Principal, garden_id: UUID) -> None:
    if await queries.count_admins(session, tenant_id=who.tenant_id, garden_id=str(garden_id)) < 2:
        raise Forbidden(
            "A garden needs at least one admin; make another member an admin first.", code="garden_last_admin"
        )
