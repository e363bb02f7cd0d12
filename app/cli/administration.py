"""Administration from the command line: the use cases of tenancy and audit, run as the platform."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar
from uuid import UUID

import msgspec

from app.access import PLATFORM_KEY_ID, Principal, acting_scope, new_secret
from app.audit import service as audit
from app.config import Settings
from app.db.database import Database
from app.db.migrations import migration_conninfo
from app.db.scope import Scope
from app.errors import NotFound
from app.main import open_database
from app.paging import CursorSigner, Page
from app.tenancy import keys, tenants
from app.tenancy.schemas import (
    KeyCreate,
    KeyIssued,
    KeyRotate,
    ProjectCreate,
    ProjectWritten,
    TenantCreate,
    TenantCreated,
)

PLATFORM = Principal(tenant_id="", key_id=PLATFORM_KEY_ID, kind="platform")
BATCH = 200

T = TypeVar("T")


def with_database(settings: Settings, work: Callable[[Database], Awaitable[T]]) -> T:
    """Run work on a database that is opened before and closed after it."""

    async def run() -> T:
        db = open_database(settings)
        try:
            await db.open()
            return await work(db)
        finally:
            await db.close()

    return asyncio.run(run())


async def create_tenant(db: Database, data: TenantCreate) -> TenantCreated:
    """Create a tenant, or return the one that has this id."""
    async with db.tenant(Scope(tenant_id=data.tenant_id)) as session:
        return (await tenants.create_tenant(session, PLATFORM, data=data)).value


async def create_project(db: Database, data: ProjectCreate) -> ProjectWritten:
    """Create a project, or return the one that has this id."""
    async with db.tenant(acting_scope(PLATFORM, data.tenant_id)) as session:
        return (await tenants.create_project(session, PLATFORM, data=data)).value


async def create_key(db: Database, data: KeyCreate) -> KeyIssued:
    """Issue a key and return it with its secret."""
    async with db.tenant(acting_scope(PLATFORM, data.tenant_id)) as session:
        return (await keys.create_key(session, PLATFORM, data=data)).value


async def register_key(db: Database, data: KeyCreate, key: str) -> dict[str, Any]:
    """Store a key that was made elsewhere, and return its id and whether it is new."""
    async with db.tenant(acting_scope(PLATFORM, data.tenant_id)) as session:
        stored = await keys.register_key(session, PLATFORM, data=data, key=key)
    return {"key_id": str(stored.value), "tenant_id": data.tenant_id, "created": stored.created}


def _signer() -> CursorSigner:
    # These cursors never leave the process, so any secret works.
    return CursorSigner(new_secret().encode())


async def tenant_ids(db: Database) -> list[str]:
    """Return the ids of all tenants."""
    found: list[str] = []
    signer, cursor = _signer(), None
    while True:
        listed = await tenants.list_tenants(db, page=Page(signer, PLATFORM, "tenants", limit=BATCH, cursor=cursor))
        found += [tenant.tenant_id for tenant in listed.tenants]
        if (cursor := listed.next_cursor) is None:
            return found


async def list_keys(db: Database, tenant_id: str | None) -> list[dict[str, Any]]:
    """Return the keys of one tenant, or of all."""
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


async def rotate_key(db: Database, key_id: UUID, tenant_id: str | None, data: KeyRotate) -> KeyIssued:
    """Give a key a new secret and return it."""
    tenant = await _tenant_of(db, key_id, tenant_id)
    async with db.tenant(acting_scope(PLATFORM, tenant)) as session:
        return (await keys.rotate_key(session, PLATFORM, tenant_id=tenant, key_id=key_id, data=data)).value


async def revoke_key(db: Database, key_id: UUID, tenant_id: str | None) -> dict[str, Any]:
    """Revoke a key."""
    tenant = await _tenant_of(db, key_id, tenant_id)
    await keys.revoke_key(db, PLATFORM, tenant_id=tenant, key_id=key_id)
    return {"key_id": str(key_id), "tenant_id": tenant, "revoked": True}


async def verify_audit(db: Database, tenant_id: str | None, head: tuple[int, str] | None) -> list[audit.Verdict]:
    """Verify the audit log of one tenant, or of all."""
    known = await tenant_ids(db)
    if tenant_id is not None and tenant_id not in known:
        raise NotFound(f"There is no tenant {tenant_id}.", code="tenant_not_found")
    return [await audit.verify(db, tenant_id=tenant, head=head) for tenant in ([tenant_id] if tenant_id else known)]


def as_owner(settings: Settings, work: Callable[[Database], Awaitable[T]]) -> T:
    """Run work on the connection of the owner, for what the service role is not allowed to do."""

    async def run() -> T:
        owner = Database(migration_conninfo(settings), pool_size=1)
        try:
            return await work(owner)
        finally:
            await owner.close()

    return asyncio.run(run())


class Demo(msgspec.Struct, frozen=True, kw_only=True):
    """The keys of the tenant demo, which are shown once."""

    admin_key: str
    agent_key: str


async def ensure_demo(db: Database) -> Demo | None:
    """Create tenant demo with project default and two keys, or return None when it has keys already."""
    created = await create_tenant(db, TenantCreate(tenant_id="demo", name="Demo"))
    await create_project(db, ProjectCreate(tenant_id="demo", project_id="default", name="Default"))
    if not created.created and await list_keys(db, "demo"):
        return None
    admin = await create_key(db, KeyCreate(tenant_id="demo", kind="admin", name="demo admin"))
    agent = await create_key(
        db, KeyCreate(tenant_id="demo", kind="agent", project_id="default", agent_id="demo-agent", name="demo agent")
    )
    return Demo(admin_key=admin.key, agent_key=agent.key)
