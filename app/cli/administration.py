"""Administration from the command line: the same use cases as over HTTP, as the platform."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar
from uuid import UUID

import msgspec

from app.access import PLATFORM_KEY_ID, Principal, new_secret
from app.audit import service as audit
from app.config import Settings
from app.cursors import CursorSigner
from app.db.database import Database
from app.db.migrations import migration_conninfo
from app.errors import BadRequest, NotFound
from app.main import open_database
from app.paging import Page
from app.tenancy import keys, tenants
from app.tenancy.schemas import KeyCreate, KeyRotate, ProjectCreate, TenantCreate
from app.web.idempotency import Answer, Once

PLATFORM = Principal(tenant_id="", key_id=PLATFORM_KEY_ID, kind="platform")
BATCH = 200

T = TypeVar("T")


def with_database(settings: Settings, work: Callable[[Database], Awaitable[T]]) -> T:
    """Runs one piece of work on a database that is opened and closed around it."""

    async def run() -> T:
        db = open_database(settings)
        try:
            await db.open()
            return await work(db)
        finally:
            await db.close()

    return asyncio.run(run())


def _once() -> Once:
    return Once(who=PLATFORM, method="CLI", path="", key=None, request_hash=b"", secret="")


def _decoded(answer: Answer) -> dict[str, Any]:
    return msgspec.json.decode(answer.body)


async def create_tenant(db: Database, data: TenantCreate) -> dict[str, Any]:
    """Makes a tenant, or finds it."""
    return _decoded(await tenants.create_tenant(db, data=data, once=_once()))


async def create_project(db: Database, data: ProjectCreate) -> dict[str, Any]:
    """Makes a project, or finds it."""
    return _decoded(await tenants.create_project(db, PLATFORM, data=data, once=_once()))


async def create_key(db: Database, data: KeyCreate) -> dict[str, Any]:
    """Issues a key."""
    return _decoded(await keys.create_key(db, PLATFORM, data=data, once=_once()))


def _signer() -> CursorSigner:
    # These cursors never leave the process, so any secret will do.
    return CursorSigner(new_secret().encode())


async def tenant_ids(db: Database) -> list[str]:
    """All tenants."""
    found: list[str] = []
    signer, cursor = _signer(), None
    while True:
        listed = await tenants.list_tenants(db, page=Page(signer, PLATFORM, "tenants", limit=BATCH, cursor=cursor))
        found += [tenant.tenant_id for tenant in listed.tenants]
        if (cursor := listed.next_cursor) is None:
            return found


async def list_keys(db: Database, tenant_id: str | None) -> list[dict[str, Any]]:
    """Keys of one tenant, or of all."""
    signer = _signer()
    listed: list[dict[str, Any]] = []
    for tenant in [tenant_id] if tenant_id else await tenant_ids(db):
        cursor = None
        while True:
            page = Page(signer, PLATFORM, "keys", limit=BATCH, cursor=cursor)
            found = await keys.list_keys(db, PLATFORM, tenant_id=tenant, page=page)
            listed += [{"tenant_id": tenant, **msgspec.to_builtins(key)} for key in found.keys]
            if (cursor := found.next_cursor) is None:
                break
    return listed


async def _tenant_of(db: Database, key_id: UUID, tenant_id: str | None) -> str:
    if tenant_id is not None:
        return tenant_id
    for key in await list_keys(db, None):
        if key["key_id"] == str(key_id):
            return key["tenant_id"]
    raise NotFound("There is no such key.", code="key_not_found")


async def rotate_key(db: Database, key_id: UUID, tenant_id: str | None, grace_seconds: int) -> dict[str, Any]:
    """Gives a key a new secret."""
    tenant = await _tenant_of(db, key_id, tenant_id)
    try:
        data = msgspec.convert({"grace_seconds": grace_seconds}, KeyRotate)
    except msgspec.ValidationError as problem:
        raise BadRequest(f"--grace: {problem}") from problem
    return _decoded(await keys.rotate_key(db, PLATFORM, tenant_id=tenant, key_id=key_id, data=data, once=_once()))


async def revoke_key(db: Database, key_id: UUID, tenant_id: str | None) -> dict[str, Any]:
    """Revokes a key."""
    tenant = await _tenant_of(db, key_id, tenant_id)
    await keys.revoke_key(db, PLATFORM, tenant_id=tenant, key_id=key_id)
    return {"key_id": str(key_id), "tenant_id": tenant, "revoked": True}


async def verify_audit(db: Database, tenant_id: str | None, head: tuple[int, str] | None) -> list[audit.Verdict]:
    """Goes through the audit log of one tenant, or of all."""
    known = await tenant_ids(db)
    if tenant_id is not None and tenant_id not in known:
        raise NotFound(f"There is no tenant {tenant_id}.", code="tenant_not_found")
    return [await audit.verify(db, tenant_id=tenant, head=head) for tenant in ([tenant_id] if tenant_id else known)]


def as_owner(settings: Settings, work: Callable[[Database], Awaitable[T]]) -> T:
    """Runs what the service itself may not do, on the connection of the owner."""

    async def run() -> T:
        owner = Database(migration_conninfo(settings), pool_size=1)
        try:
            return await work(owner)
        finally:
            await owner.close()

    return asyncio.run(run())


class Demo(msgspec.Struct, frozen=True, kw_only=True):
    """What a first start made; the keys are shown once."""

    admin_key: str
    agent_key: str


async def ensure_demo(db: Database) -> Demo | None:
    """Tenant demo with project default and two keys, or None when the tenant was there already."""
    made = await create_tenant(db, TenantCreate(tenant_id="demo", name="Demo"))
    await create_project(db, ProjectCreate(tenant_id="demo", project_id="default", name="Default"))
    if not made["created"] and await list_keys(db, "demo"):
        return None
    admin = await create_key(db, KeyCreate(tenant_id="demo", kind="admin", name="demo admin"))
    agent = await create_key(
        db, KeyCreate(tenant_id="demo", kind="agent", project_id="default", agent_id="demo-agent", name="demo agent")
    )
    return Demo(admin_key=admin["key"], agent_key=agent["key"])
