"""Use cases of tenants and projects."""

from datetime import UTC, datetime

import msgspec

from app.access import Principal, acting_scope
from app.audit import events as audit
from app.db.counts import COUNT_LIMIT
from app.db.database import Database, Row, Session
from app.db.scope import Scope
from app.errors import BadRequest, Forbidden, NotFound
from app.inputs import as_utc
from app.jobs.queue import NewJob, enqueue
from app.outcomes import Outcome
from app.paging import Page
from app.tenancy import queries
from app.tenancy.schemas import (
    ProjectCreate,
    ProjectList,
    ProjectPatch,
    ProjectRead,
    ProjectSettings,
    ProjectWritten,
    TenantCreate,
    TenantCreated,
    TenantList,
    TenantRead,
)

# Pipeline settings have their own path; diagnostics report how far back notes are complete.
INTERNAL_SETTINGS = ("pipeline", "notes_complete_since")


async def create_tenant(session: Session, who: Principal, *, data: TenantCreate) -> Outcome[TenantCreated]:
    """Create a tenant, or return the one that has this id."""
    created = await queries.insert_tenant(session, tenant_id=data.tenant_id, name=data.name, now=datetime.now(UTC))
    found = created or await queries.find_tenant(session, tenant_id=data.tenant_id)
    assert found is not None
    if created:
        await audit.record(session, "admin_action", key_id=who.key_id, action="tenant_create")
    is_new = created is not None
    return Outcome(TenantCreated(tenant=TenantRead(**found), created=is_new), created=is_new)


async def list_tenants(db: Database, *, page: Page) -> TenantList:
    """Return a page of all tenants, by id."""
    after = None if page.after is None else page.after[0]
    rows, next_cursor = page.cut(
        await db.call(queries.LIST_TENANTS, (after, page.limit + 1)), key=lambda row: [row["tenant_id"]]
    )
    total = await page.count(lambda: db.call(queries.COUNT_TENANTS, (None, COUNT_LIMIT)))
    return TenantList(tenants=[TenantRead(**row) for row in rows], next_cursor=next_cursor, total=total)


async def create_project(session: Session, who: Principal, *, data: ProjectCreate) -> Outcome[ProjectWritten]:
    """Create a project, or return the one that has this id; a key bound to a project can create no other."""
    if who.key_project is not None and data.project_id != who.key_project:
        raise Forbidden(f"This key is bound to project {who.key_project}.", code="project_forbidden")
    address = {"tenant_id": acting_scope(who, data.tenant_id).tenant_id, "project_id": data.project_id}
    created = await queries.insert_project(session, **address, name=data.name, now=datetime.now(UTC))
    found = created or await queries.find_project(session, **address)
    assert found is not None
    if created:
        details = {"action": "project_create", "project_id": data.project_id}
        await audit.record(session, "admin_action", key_id=who.key_id, **details)
    is_new = created is not None
    return Outcome(ProjectWritten(project=present_project(found), created=is_new), created=is_new)


def present_project(row: Row) -> ProjectRead:
    """Return a project as callers see it."""
    settings = {name: value for name, value in row["settings"].items() if name not in INTERNAL_SETTINGS}
    fields: Row = {**row, "settings": msgspec.convert(settings, ProjectSettings)}
    return ProjectRead(**fields)


async def patch_project(db: Database, who: Principal, *, project_id: str, data: ProjectPatch) -> ProjectWritten:
    """Change the name and settings of a project that are given, or raise NotFound."""
    scope = acting_scope(who, data.tenant_id)
    if who.key_project not in (None, project_id):
        raise Forbidden(f"This key is bound to project {who.key_project}.", code="project_forbidden")
    changes = {
        name: value
        for name in ("as_of_floor", "trust_mode", "language", "trace_days", "require_user", "name")
        if (value := getattr(data, name)) is not msgspec.UNSET
    }
    if not changes:
        raise BadRequest("Send at least one of name, as_of_floor, trust_mode, language, trace_days and require_user.")
    address = {"tenant_id": scope.tenant_id, "project_id": project_id}
    async with db.tenant(scope) as session:
        found = await queries.lock_project(session, **address)
        if found is None:
            raise NotFound("There is no such project.", code="project_not_found")
        settings = {**found["settings"], **{name: changes[name] for name in changes if name != "name"}}
        if isinstance(floor := settings.get("as_of_floor"), datetime):
            if floor > datetime.now(UTC):
                raise BadRequest("as_of_floor must not be in the future.")
            settings["as_of_floor"] = as_utc(floor, "as_of_floor").isoformat()
        settings = {name: value for name, value in settings.items() if value is not None}
        row = await queries.update_project(
            session, **address, settings=settings, name=changes.get("name", found["name"])
        )
        place = Scope(tenant_id=scope.tenant_id, project_id=project_id)
        if settings.get("trust_mode", "off") != found["settings"].get("trust_mode", "off"):
            # The mode is part of the trust that facts carry.
            await enqueue(session, place, job=NewJob(kind="trust", payload={}, dedupe_key="trust"))
        if settings.get("language") != found["settings"].get("language"):
            await enqueue(session, place, job=NewJob(kind="reindex", payload={}, dedupe_key="reindex"))
        details = {"action": "project_change", "project_id": project_id, "changed": sorted(changes)}
        await audit.record(session, "admin_action", key_id=who.key_id, **details)
    return ProjectWritten(project=present_project(row), created=False)


async def list_projects(db: Database, who: Principal, *, tenant_id: str | None, page: Page) -> ProjectList:
    """Return a page of the projects the caller can reach, by id."""
    scope = acting_scope(who, tenant_id)
    after = None if page.after is None else page.after[0]
    place = {"tenant_id": scope.tenant_id}
    found = await db.fetch(scope, queries.select_projects(**place, after=after, limit=page.limit + 1))
    rows, next_cursor = page.cut(found, key=lambda row: [row["project_id"]])
    total = await page.count_rows(db, scope, queries.select_projects(**place, after=None, limit=COUNT_LIMIT))
    return ProjectList(projects=[present_project(row) for row in rows], next_cursor=next_cursor, total=total)
