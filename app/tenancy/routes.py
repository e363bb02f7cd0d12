"""HTTP of the room tenancy: administration, whoami, gardens."""

from typing import Annotated, Any
from uuid import UUID

from litestar import Response, Router, delete, get, patch, post, put
from litestar.di import NamedDependency
from litestar.params import FromPath, JSONBody, QueryParameter, SkipValidation

from app.errors import BadRequest
from app.paging import Page
from app.tenancy import gardens, keys, settings, tenants
from app.tenancy.schemas import (
    GardenCreate,
    GardenCreated,
    GardenList,
    GardenPatch,
    GardenRead,
    KeyCreate,
    KeyIssued,
    KeyList,
    KeyRotate,
    MemberList,
    MemberPut,
    MemberSet,
    ProjectCreate,
    ProjectCreated,
    ProjectList,
    ProjectPatch,
    ProjectRead,
    TenantCreate,
    TenantCreated,
    TenantList,
    Whoami,
    is_agent_id,
)
from app.tenancy.settings import PipelineSettings
from app.web.auth import Access, Work
from app.web.reference import also
from app.web.requests import Cursor, Cursors, Db, Idempotent, Limit, Who, respond

PLATFORM = Access(work="admin", kinds=("platform",), project=False)
ADMIN = Access(work="admin", kinds=("admin", "platform"), scopes=("admin",), project=False)
SETTINGS_READ = Access(work="read", scopes=("notes:read", "facts:read", "admin"), project=False)
SETTINGS = Access(work="admin", kinds=("admin",), scopes=("admin",), project=False)
ANYBODY = Access(work="read", kinds=("agent", "admin", "platform"), project=False)
READ = Access(work="read", scopes=("notes:read", "facts:read", "admin"))
WRITE = Access(work="write", scopes=("notes:write", "facts:write", "admin"))

Limits = NamedDependency[SkipValidation[dict[Work, int]]]
TenantFilter = Annotated[
    str | None,
    QueryParameter(
        pattern=r"^[a-z0-9][a-z0-9_-]{0,62}$(?!\n)",
        description="Which tenant; only for the platform key, which has none.",
    ),
]


@get("/whoami", opt={"access": ANYBODY}, summary="Who am I?", tags=["tenancy"])
async def whoami(who: Who) -> Whoami:
    """Tenant, project, agent and scopes of the key that was sent."""
    return keys.whoami(who)


@post(
    "/admin/tenants",
    opt={"access": PLATFORM},
    summary="Make a tenant",
    tags=["administration"],
    responses=also(200, TenantCreated, "It was there already."),
)
async def create_tenant(db: Db, idempotent: Idempotent, data: JSONBody[TenantCreate]) -> Response[TenantCreated]:
    """Platform key only. 201 when it was made, 200 when it was there already."""
    return respond(await tenants.create_tenant(db, data=data, once=idempotent))


@get("/admin/tenants", opt={"access": PLATFORM}, summary="List tenants", tags=["administration"])
async def list_tenants(db: Db, who: Who, cursors: Cursors, limit: Limit = 50, cursor: Cursor = None) -> TenantList:
    """Platform key only."""
    return await tenants.list_tenants(db, page=Page(cursors, who, "tenants", limit=limit, cursor=cursor))


@post(
    "/admin/projects",
    opt={"access": ADMIN},
    summary="Make a project",
    tags=["administration"],
    responses=also(200, ProjectCreated, "It was there already."),
)
async def create_project(
    db: Db, who: Who, idempotent: Idempotent, data: JSONBody[ProjectCreate]
) -> Response[ProjectCreated]:
    """201 when it was made, 200 when it was there already. An admin key bound to a project can make no other."""
    return respond(await tenants.create_project(db, who, data=data, once=idempotent))


@get("/admin/projects", opt={"access": ADMIN}, summary="List projects", tags=["administration"])
async def list_projects(
    db: Db, who: Who, cursors: Cursors, tenant_id: TenantFilter = None, limit: Limit = 50, cursor: Cursor = None
) -> ProjectList:
    """Projects in the key's reach."""
    page = Page(cursors, who, "projects", limit=limit, cursor=cursor, tenant_id=tenant_id)
    return await tenants.list_projects(db, who, tenant_id=tenant_id, page=page)


@patch("/admin/projects/{project_id:str}", opt={"access": ADMIN}, summary="Change a project", tags=["administration"])
async def patch_project(db: Db, who: Who, project_id: FromPath[str], data: JSONBody[ProjectPatch]) -> ProjectRead:
    """Its name, how far back its history can be read, and how much the trust in sources counts."""
    return await tenants.patch_project(db, who, project_id=project_id, data=data)


@get(
    "/projects/{project_id:str}/settings", opt={"access": SETTINGS_READ}, summary="Pipeline settings", tags=["pipeline"]
)
async def get_settings(db: Db, who: Who, project_id: FromPath[str]) -> PipelineSettings:
    """Every setting of a project's pipeline, with the defaults of those that nobody set."""
    return await settings.get_settings(db, who, project_id=project_id)


@put("/projects/{project_id:str}/settings", opt={"access": SETTINGS}, summary="Change settings", tags=["pipeline"])
async def put_settings(db: Db, who: Who, project_id: FromPath[str], data: JSONBody[dict[str, Any]]) -> PipelineSettings:
    """Any of the fields that GET answers; what is not named stays, null sets a default back. Works at once, without a
    restart: what is read of a note from then on is read by the new settings. Answers all of them."""
    return await settings.put_settings(db, who, project_id=project_id, changes=data)


@post("/admin/keys", opt={"access": ADMIN}, summary="Issue a key", tags=["administration"])
async def create_key(
    db: Db, who: Who, idempotent: Idempotent, limits: Limits, data: JSONBody[KeyCreate]
) -> Response[KeyIssued]:
    """The answer shows the key whole, this once. A key grants no scope it lacks, and no more than the usual rates."""
    return respond(await keys.create_key(db, who, data=data, once=idempotent, limits=limits))


@get("/admin/keys", opt={"access": ADMIN}, summary="List keys", tags=["administration"])
async def list_keys(
    db: Db, who: Who, cursors: Cursors, tenant_id: TenantFilter = None, limit: Limit = 50, cursor: Cursor = None
) -> KeyList:
    """Keys in the caller's reach, revoked ones included; secrets are stored nowhere and never shown."""
    page = Page(cursors, who, "keys", limit=limit, cursor=cursor, tenant_id=tenant_id)
    return await keys.list_keys(db, who, tenant_id=tenant_id, page=page)


@delete("/admin/keys/{key_id:uuid}", opt={"access": ADMIN}, summary="Revoke a key", tags=["administration"])
async def revoke_key(db: Db, who: Who, key_id: FromPath[UUID], tenant_id: TenantFilter = None) -> None:
    """The key is refused from the next request on, on every replica."""
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
    """A new secret for the same key. The old one stops at once, or after `grace_seconds`."""
    change = data or KeyRotate()
    return respond(await keys.rotate_key(db, who, tenant_id=tenant_id, key_id=key_id, data=change, once=idempotent))


@post("/gardens", opt={"access": WRITE}, summary="Make a garden", tags=["gardens"])
async def create_garden(
    db: Db, who: Who, idempotent: Idempotent, data: JSONBody[GardenCreate]
) -> Response[GardenCreated]:
    """The creator becomes its first admin. The scope cannot be changed later."""
    return respond(await gardens.create_garden(db, who, data=data, once=idempotent))


@get("/gardens", opt={"access": READ}, summary="List gardens", tags=["gardens"])
async def list_gardens(db: Db, who: Who, cursors: Cursors, limit: Limit = 50, cursor: Cursor = None) -> GardenList:
    """The gardens the agent belongs to; all of the project for an admin key."""
    return await gardens.list_gardens(db, who, page=Page(cursors, who, "gardens", limit=limit, cursor=cursor))


@get("/gardens/{garden_id:uuid}", opt={"access": READ}, summary="One garden", tags=["gardens"])
async def get_garden(db: Db, who: Who, garden_id: FromPath[UUID]) -> GardenRead:
    """403 for an agent that is no member."""
    return await gardens.get_garden(db, who, garden_id=garden_id)


@patch("/gardens/{garden_id:uuid}", opt={"access": WRITE}, summary="Rename a garden", tags=["gardens"])
async def patch_garden(db: Db, who: Who, garden_id: FromPath[UUID], data: JSONBody[GardenPatch]) -> GardenRead:
    """Name and description, by an admin of the garden."""
    return await gardens.patch_garden(db, who, garden_id=garden_id, data=data)


@get("/gardens/{garden_id:uuid}/members", opt={"access": READ}, summary="Members", tags=["gardens"])
async def list_members(
    db: Db, who: Who, cursors: Cursors, garden_id: FromPath[UUID], limit: Limit = 50, cursor: Cursor = None
) -> MemberList:
    """Who belongs to a garden, and as what."""
    page = Page(cursors, who, "members", limit=limit, cursor=cursor, garden_id=garden_id)
    return await gardens.list_members(db, who, garden_id=garden_id, page=page)


@put(
    "/gardens/{garden_id:uuid}/members/{agent:str}",
    opt={"access": WRITE},
    summary="Set a member",
    tags=["gardens"],
    responses=also(201, MemberSet, "They are new."),
)
async def put_member(
    db: Db, who: Who, garden_id: FromPath[UUID], agent: FromPath[str], data: JSONBody[MemberPut]
) -> Response[MemberSet]:
    """201 when they are new, 200 when their role changed. The last admin cannot be demoted (403)."""
    created, member = await gardens.put_member(db, who, garden_id=garden_id, agent_id=_agent(agent), data=data)
    return Response(member, status_code=201 if created else 200)


@delete(
    "/gardens/{garden_id:uuid}/members/{agent:str}", opt={"access": WRITE}, summary="Remove a member", tags=["gardens"]
)
async def remove_member(db: Db, who: Who, garden_id: FromPath[UUID], agent: FromPath[str]) -> None:
    """Admins remove anybody, members themselves; the last admin has to stay (403)."""
    await gardens.remove_member(db, who, garden_id=garden_id, agent_id=_agent(agent))


def _agent(agent: str) -> str:
    if not is_agent_id(agent):
        raise BadRequest("agent: letters, digits and _ . : @ -, at most 128.")
    return agent


handlers: list[Any] = [
    whoami, create_tenant, list_tenants, create_project, list_projects, patch_project, get_settings, put_settings,
    create_key, list_keys,
    revoke_key, rotate_key, create_garden, list_gardens, get_garden, patch_garden, list_members, put_member,
    remove_member,
]  # fmt: skip
router = Router(path="/", route_handlers=handlers)
