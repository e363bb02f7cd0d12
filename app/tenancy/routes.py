"""HTTP of tenancy: administration, whoami, gardens."""

from collections.abc import Awaitable
from typing import Annotated, Any
from uuid import UUID

from litestar import Response, Router, delete, get, patch, post, put
from litestar.di import NamedDependency
from litestar.params import FromPath, JSONBody, QueryParameter, SkipValidation

from app.access import Work, acting_scope
from app.db.database import Session
from app.db.scope import Scope
from app.errors import BadRequest
from app.outcomes import Outcome
from app.paging import Page
from app.tenancy import gardens, keys, settings, tenants
from app.tenancy.schemas import (
    GardenCreate,
    GardenList,
    GardenPatch,
    GardenRead,
    GardenWritten,
    KeyCreate,
    KeyIssued,
    KeyList,
    KeyRotate,
    MemberList,
    MemberPut,
    MemberSet,
    ProjectCreate,
    ProjectList,
    ProjectPatch,
    ProjectWritten,
    TenantCreate,
    TenantCreated,
    TenantList,
    Whoami,
    is_agent_id,
)
from app.tenancy.settings import PipelineSettings
from app.web.auth import Access
from app.web.idempotency import encode_outcome
from app.web.reference import also
from app.web.requests import Cursor, Cursors, Db, Idempotent, IncludeTotal, Limit, Who, respond

PLATFORM = Access(work="admin", kinds=("platform",), project=False)
ADMIN = Access(work="admin", kinds=("admin", "platform"), scopes=("admin",), project=False)
SETTINGS_READ = Access(work="read", scopes=("notes:read", "facts:read", "admin"), project=False)
SETTINGS = Access(work="admin", kinds=("admin",), scopes=("admin",), project=False)
ANY_KEY = Access(work="read", kinds=("agent", "admin", "platform"), project=False)
READ = Access(work="read", scopes=("notes:read", "facts:read", "admin"))
WRITE = Access(work="write", scopes=("notes:write", "facts:write", "admin"))

Limits = NamedDependency[SkipValidation[dict[Work, int]]]
TenantFilter = Annotated[
    str | None,
    QueryParameter(
        pattern=r"^[a-z0-9][a-z0-9_-]{0,62}$(?!\n)",
        description="The tenant; only for the platform key, which belongs to none.",
    ),
]


@get("/whoami", opt={"access": ANY_KEY}, summary="Identify the caller", tags=["tenancy"])
async def whoami(who: Who) -> Whoami:
    """Return the tenant, project, agent and scopes of the key."""
    return keys.whoami(who)


@post(
    "/admin/tenants",
    opt={"access": PLATFORM},
    summary="Create a tenant",
    tags=["administration"],
    responses=also(200, TenantCreated, "It already existed."),
)
async def create_tenant(
    db: Db, who: Who, idempotent: Idempotent, data: JSONBody[TenantCreate]
) -> Response[TenantCreated]:
    """Create a tenant, with the platform key. 201 when it was created, 200 when it already existed."""
    scope = Scope(tenant_id=data.tenant_id)
    return respond(await idempotent.run(db, scope, lambda session: tenants.create_tenant(session, who, data=data)))


@get("/admin/tenants", opt={"access": PLATFORM}, summary="List tenants", tags=["administration"])
async def list_tenants(
    db: Db, who: Who, cursors: Cursors, limit: Limit = 50, cursor: Cursor = None, include_total: IncludeTotal = False
) -> TenantList:
    """List all tenants, with the platform key."""
    return await tenants.list_tenants(
        db, page=Page(cursors, who, "tenants", limit=limit, cursor=cursor, include_total=include_total)
    )


@post(
    "/admin/projects",
    opt={"access": ADMIN},
    summary="Create a project",
    tags=["administration"],
    responses=also(200, ProjectWritten, "It already existed."),
)
async def create_project(
    db: Db, who: Who, idempotent: Idempotent, data: JSONBody[ProjectCreate]
) -> Response[ProjectWritten]:
    """Create a project. 201 when it was created, 200 when it already existed. An admin key bound to a project cannot
    create another."""
    scope = acting_scope(who, data.tenant_id)
    return respond(await idempotent.run(db, scope, lambda session: tenants.create_project(session, who, data=data)))


@get("/admin/projects", opt={"access": ADMIN}, summary="List projects", tags=["administration"])
async def list_projects(
    db: Db,
    who: Who,
    cursors: Cursors,
    tenant_id: TenantFilter = None,
    limit: Limit = 50,
    cursor: Cursor = None,
    include_total: IncludeTotal = False,
) -> ProjectList:
    """List the projects the key can reach."""
    page = Page(cursors, who, "projects", limit=limit, cursor=cursor, include_total=include_total, tenant_id=tenant_id)
    return await tenants.list_projects(db, who, tenant_id=tenant_id, page=page)


@patch("/admin/projects/{project_id:str}", opt={"access": ADMIN}, summary="Change a project", tags=["administration"])
async def patch_project(db: Db, who: Who, project_id: FromPath[str], data: JSONBody[ProjectPatch]) -> ProjectWritten:
    """Change its name, how far back its history can be read, its language, and how source trust is used."""
    return await tenants.patch_project(db, who, project_id=project_id, data=data)


@get(
    "/projects/{project_id:str}/settings",
    opt={"access": SETTINGS_READ},
    summary="Read pipeline settings",
    tags=["pipeline"],
)
async def get_settings(db: Db, who: Who, project_id: FromPath[str]) -> PipelineSettings:
    """Return every pipeline setting of a project, defaults included."""
    return await settings.get_settings(db, who, project_id=project_id)


@put(
    "/projects/{project_id:str}/settings",
    opt={"access": SETTINGS},
    summary="Change pipeline settings",
    tags=["pipeline"],
)
async def put_settings(db: Db, who: Who, project_id: FromPath[str], data: JSONBody[dict[str, Any]]) -> PipelineSettings:
    """Change any of the settings that GET returns; settings that are not sent stay, null restores a default. Applies at
    once, without a restart. Returns all settings."""
    return await settings.put_settings(db, who, project_id=project_id, changes=data)


@post("/admin/keys", opt={"access": ADMIN}, summary="Issue a key", tags=["administration"])
async def create_key(
    db: Db, who: Who, idempotent: Idempotent, limits: Limits, data: JSONBody[KeyCreate]
) -> Response[KeyIssued]:
    """Issue a key. Only this response contains its secret. A key can grant only scopes that it has itself, and rate
    limits up to the defaults of the deployment."""
    scope = acting_scope(who, data.tenant_id)

    def create(session: Session) -> Awaitable[Outcome[KeyIssued]]:
        return keys.create_key(session, who, data=data, limits=limits)

    return respond(await idempotent.run(db, scope, create, sealed=True))


@get("/admin/keys", opt={"access": ADMIN}, summary="List keys", tags=["administration"])
async def list_keys(
    db: Db,
    who: Who,
    cursors: Cursors,
    tenant_id: TenantFilter = None,
    limit: Limit = 50,
    cursor: Cursor = None,
    include_total: IncludeTotal = False,
) -> KeyList:
    """List the keys the caller can reach, revoked ones included. Secrets are not stored and never returned."""
    page = Page(cursors, who, "keys", limit=limit, cursor=cursor, include_total=include_total, tenant_id=tenant_id)
    return await keys.list_keys(db, who, tenant_id=tenant_id, page=page)


@delete("/admin/keys/{key_id:uuid}", opt={"access": ADMIN}, summary="Revoke a key", tags=["administration"])
async def revoke_key(db: Db, who: Who, key_id: FromPath[UUID], tenant_id: TenantFilter = None) -> None:
    """Revoke a key. Every replica refuses it from the next request on."""
    await keys.revoke_key(db, who, tenant_id=tenant_id, key_id=key_id)


@post(
    "/admin/keys/{key_id:uuid}/rotate",
    opt={"access": ADMIN},
    status_code=200,
    summary="Rotate a key",
    tags=["administration"],
)
async def rotate_key(
    db: Db,
    who: Who,
    idempotent: Idempotent,
    key_id: FromPath[UUID],
    data: JSONBody[KeyRotate | None] = None,
    tenant_id: TenantFilter = None,
) -> Response[KeyIssued]:
    """Give a key a new secret. The old one is refused at once, or after `grace_seconds`."""
    change = data or KeyRotate()
    scope = acting_scope(who, tenant_id)

    def rotate(session: Session) -> Awaitable[Outcome[KeyIssued]]:
        return keys.rotate_key(session, who, tenant_id=tenant_id, key_id=key_id, data=change)

    return respond(await idempotent.run(db, scope, rotate, sealed=True))


@post("/gardens", opt={"access": WRITE}, summary="Create a garden", tags=["gardens"])
async def create_garden(
    db: Db, who: Who, idempotent: Idempotent, data: JSONBody[GardenCreate]
) -> Response[GardenWritten]:
    """Create a garden. The caller becomes its first admin. Its scope cannot be changed later."""
    return respond(await idempotent.run(db, who, lambda session: gardens.create_garden(session, who, data=data)))


@get("/gardens", opt={"access": READ}, summary="List gardens", tags=["gardens"])
async def list_gardens(
    db: Db, who: Who, cursors: Cursors, limit: Limit = 50, cursor: Cursor = None, include_total: IncludeTotal = False
) -> GardenList:
    """List the gardens the agent is a member of, or all gardens of the project for an admin key."""
    return await gardens.list_gardens(
        db, who, page=Page(cursors, who, "gardens", limit=limit, cursor=cursor, include_total=include_total)
    )


@get("/gardens/{garden_id:uuid}", opt={"access": READ}, summary="Read a garden", tags=["gardens"])
async def get_garden(db: Db, who: Who, garden_id: FromPath[UUID]) -> GardenRead:
    """Return a garden. 403 for an agent that is not a member."""
    return await gardens.get_garden(db, who, garden_id=garden_id)


@patch("/gardens/{garden_id:uuid}", opt={"access": WRITE}, summary="Change a garden", tags=["gardens"])
async def patch_garden(db: Db, who: Who, garden_id: FromPath[UUID], data: JSONBody[GardenPatch]) -> GardenWritten:
    """Change its name or description. Only for admins of the garden."""
    return await gardens.patch_garden(db, who, garden_id=garden_id, data=data)


@get("/gardens/{garden_id:uuid}/members", opt={"access": READ}, summary="List members", tags=["gardens"])
async def list_members(
    db: Db,
    who: Who,
    cursors: Cursors,
    garden_id: FromPath[UUID],
    limit: Limit = 50,
    cursor: Cursor = None,
    include_total: IncludeTotal = False,
) -> MemberList:
    """List the members of a garden with their roles."""
    page = Page(cursors, who, "members", limit=limit, cursor=cursor, include_total=include_total, garden_id=garden_id)
    return await gardens.list_members(db, who, garden_id=garden_id, page=page)


@put(
    "/gardens/{garden_id:uuid}/members/{agent:str}",
    opt={"access": WRITE},
    summary="Set a member",
    tags=["gardens"],
    responses=also(201, MemberSet, "The agent was not a member before."),
)
async def put_member(
    db: Db, who: Who, garden_id: FromPath[UUID], agent: FromPath[str], data: JSONBody[MemberPut]
) -> Response[MemberSet]:
    """Add a member (201) or change their role (200). The last admin cannot be demoted (403)."""
    outcome = await gardens.put_member(db, who, garden_id=garden_id, agent_id=_agent_id(agent), data=data)
    return respond(encode_outcome(outcome))


@delete(
    "/gardens/{garden_id:uuid}/members/{agent:str}", opt={"access": WRITE}, summary="Remove a member", tags=["gardens"]
)
async def remove_member(db: Db, who: Who, garden_id: FromPath[UUID], agent: FromPath[str]) -> None:
    """Remove a member. Admins can remove anybody, members themselves. The last admin cannot be removed (403)."""
    await gardens.remove_member(db, who, garden_id=garden_id, agent_id=_agent_id(agent))


def _agent_id(agent: str) -> str:
    if not is_agent_id(agent):
        raise BadRequest("agent: use letters, digits and _ . : @ -, at most 128 characters.")
    return agent


handlers: list[Any] = [
    whoami, create_tenant, list_tenants, create_project, list_projects, patch_project, get_settings, put_settings,
    create_key, list_keys,
    revoke_key, rotate_key, create_garden, list_gardens, get_garden, patch_garden, list_members, put_member,
    remove_member,
]  # fmt: skip
router = Router(path="/", route_handlers=handlers)
