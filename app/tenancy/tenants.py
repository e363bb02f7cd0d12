"""Tenants and projects: use cases."""

from datetime import UTC, datetime

import msgspec

from app.access import Principal, acting_scope
from app.audit import events as audit
from app.db.database import Database, Row
from app.db.scope import Scope
from app.errors import BadRequest, Forbidden, NotFound
from app.inputs import as_utc
from app.jobs.queue import NewJob, enqueue
from app.paging import Page
from app.tenancy import queries
from app.tenancy.schemas import (
    ProjectCreate,
    ProjectCreated,
    ProjectList,
    ProjectPatch,
    ProjectRead,
    ProjectSettings,
    TenantCreate,
    TenantCreated,
    TenantList,
    TenantRead,
)
from app.web.idempotency import Answer, Once

# The pipeline's are read and set under a path of their own; the other is a mark of retention, told by diagnostics.
NOT_SHOWN = ("pipeline", "notes_complete_since")


async def create_tenant(db: Database, *, data: TenantCreate, once: Once) -> Answer:
    """Makes a tenant; one that is there already is answered as it is."""
    scope = Scope(tenant_id=data.tenant_id)
    async with once.tenant(db, scope) as step:
        if step.stored:
            return step.stored
        now = datetime.now(UTC)
        made = await queries.insert_tenant(step.session, tenant_id=data.tenant_id, name=data.name, now=now)
        found = made or await queries.find_tenant(step.session, tenant_id=data.tenant_id)
        assert found is not None
        if made:
            await audit.record(step.session, "admin_action", key_id=once.who.key_id, action="tenant_create")
        return await step.answer(
            201 if made else 200, TenantCreated(tenant=TenantRead(**found), created=made is not None)
        )


async def list_tenants(db: Database, *, page: Page) -> TenantList:
    """All tenants, by id."""
    after = None if page.after is None else page.after[0]
    rows, next_cursor = page.cut(
        await db.call(queries.LIST_TENANTS, (after, page.limit + 1)), key=lambda row: [row["tenant_id"]]
    )
    return TenantList(tenants=[TenantRead(**row) for row in rows], next_cursor=next_cursor)


async def create_project(db: Database, who: Principal, *, data: ProjectCreate, once: Once) -> Answer:
    """Makes a project; one that is there already is answered as it is."""
    scope = acting_scope(who, data.tenant_id)
    if who.key_project is not None and data.project_id != who.key_project:
        raise Forbidden(f"This key is bound to project {who.key_project}.", code="project_forbidden")
    async with once.tenant(db, scope) as step:
        if step.stored:
            return step.stored
        address = {"tenant_id": scope.tenant_id, "project_id": data.project_id}
        made = await queries.insert_project(step.session, **address, name=data.name, now=datetime.now(UTC))
        found = made or await queries.find_project(step.session, **address)
        assert found is not None
        if made:
            details = {"action": "project_create", "project_id": data.project_id}
            await audit.record(step.session, "admin_action", key_id=who.key_id, **details)
        return await step.answer(
            201 if made else 200, ProjectCreated(project=present_project(found), created=made is not None)
        )


def present_project(row: Row) -> ProjectRead:
    """A project as it goes out."""
    settings = {name: value for name, value in row["settings"].items() if name not in NOT_SHOWN}
    shown: Row = {**row, "settings": msgspec.convert(settings, ProjectSettings)}
    return ProjectRead(**shown)


async def patch_project(db: Database, who: Principal, *, project_id: str, data: ProjectPatch) -> ProjectRead:
    """Changes a project's name and settings; what is not named stays."""
    scope = acting_scope(who, data.tenant_id)
    if who.key_project not in (None, project_id):
        raise Forbidden(f"This key is bound to project {who.key_project}.", code="project_forbidden")
    changes = {
        name: value
        for name in ("as_of_floor", "trust_mode", "language", "trace_days", "name")
        if (value := getattr(data, name)) is not msgspec.UNSET
    }
    if not changes:
        raise BadRequest("Send at least one of name, as_of_floor, trust_mode, language and trace_days.")
    address = {"tenant_id": scope.tenant_id, "project_id": project_id}
    async with db.tenant(scope) as session:
        found = await queries.lock_project(session, **address)
        if found is None:
            raise NotFound("There is no such project.", code="project_not_found")
        settings = {**found["settings"], **{name: changes[name] for name in changes if name != "name"}}
        if isinstance(floor := settings.get("as_of_floor"), datetime):
            if floor > datetime.now(UTC):
                raise BadRequest("as_of_floor: lies in the future; nothing could be looked back at then.")
            settings["as_of_floor"] = as_utc(floor, "as_of_floor").isoformat()
        settings = {name: value for name, value in settings.items() if value is not None}
        row = await queries.update_project(
            session, **address, settings=settings, name=changes.get("name", found["name"])
        )
        if settings.get("language") != found["settings"].get("language"):
            place = Scope(tenant_id=scope.tenant_id, project_id=project_id)
            await enqueue(session, place, job=NewJob(kind="reindex", payload={}, dedupe_key="reindex"))
        details = {"action": "project_change", "project_id": project_id, "changed": sorted(changes)}
        await audit.record(session, "admin_action", key_id=who.key_id, **details)
    return present_project(row)


async def list_projects(db: Database, who: Principal, *, tenant_id: str | None, page: Page) -> ProjectList:
    """Projects in the caller's reach, by id."""
    scope = acting_scope(who, tenant_id)
    after = None if page.after is None else page.after[0]
    statement = queries.select_projects(tenant_id=scope.tenant_id, after=after, limit=page.limit + 1)
    rows, next_cursor = page.cut(await db.fetch(scope, statement), key=lambda row: [row["project_id"]])
    return ProjectList(projects=[present_project(row) for row in rows], next_cursor=next_cursor)
