"""All SQL of tenants, projects, keys and gardens."""

from datetime import datetime
from typing import Any

from sqlalchemy import and_, delete, exists, func, insert, select, text, update
from sqlalchemy.dialects.postgresql import insert as upsert
from sqlalchemy.exc import DBAPIError, IntegrityError

from app.db.database import Session
from app.db.rls import OWNER_ROLE
from app.errors import BadRequest, Conflict, NotFound, StartupError
from app.tenancy.tables import api_keys, garden_members, gardens, platform_keys, projects, tenants

# List all tenants, for the platform key and the command line.
LIST_TENANTS = "SELECT * FROM list_tenants(%s, %s)"
COUNT_TENANTS = "SELECT count(*) AS counted FROM list_tenants(%s, %s)"
# Create the branch `main` of a project, or of the tenant itself, where it is missing.
MAIN_BRANCH = text("SELECT ensure_main_branch(:project)")
# Whether any key of the installation has an id.
KEY_ID_EXISTS = text("SELECT key_id_exists(CAST(:key_id AS uuid)) AS found")

KEY_COLUMNS = [
    api_keys.c[name]
    for name in (
        "key_id", "kind", "name", "agent_id", "project_id", "user_id", "scopes", "rate_limits", "created_at",
        "expires_at", "last_used_at", "rotated_at", "revoked_at",
    )
]  # fmt: skip
GARDEN_COLUMNS = [
    gardens.c[name] for name in ("garden_id", "slug", "name", "scope", "description", "created_by", "created_at")
]
MEMBER_COLUMNS = [garden_members.c[name] for name in ("agent_id", "role", "added_by", "added_at")]
_PROJECT_COLUMNS = (projects.c.project_id, projects.c.name, projects.c.created_at, projects.c.settings)


async def insert_tenant(session: Session, *, tenant_id: str, name: str, now: datetime) -> dict[str, Any] | None:
    """Insert a tenant, or return None when the id is taken."""
    statement = upsert(tenants).values(tenant_id=tenant_id, name=name, created_at=now)
    made = await session.row(statement.on_conflict_do_nothing().returning(tenants))
    if made is not None:
        await session.execute(MAIN_BRANCH, {"project": None})
    return made


async def find_tenant(session: Session, *, tenant_id: str) -> dict[str, Any] | None:
    """Return the tenant of the scope, or None."""
    return await session.row(select(tenants).where(tenants.c.tenant_id == tenant_id))


async def insert_project(
    session: Session, *, tenant_id: str, project_id: str, name: str, now: datetime
) -> dict[str, Any] | None:
    """Insert a project, return None when the id is taken, or raise NotFound for an unknown tenant."""
    statement = upsert(projects).values(tenant_id=tenant_id, project_id=project_id, name=name, created_at=now)
    try:
        made = await session.row(statement.on_conflict_do_nothing().returning(*_PROJECT_COLUMNS))
        if made is not None:
            await session.execute(MAIN_BRANCH, {"project": project_id})
        return made
    except IntegrityError as problem:
        raise NotFound(f"tenant_id: there is no tenant {tenant_id}.", code="tenant_not_found") from problem


async def find_project(session: Session, *, tenant_id: str, project_id: str) -> dict[str, Any] | None:
    """Return one project, or None."""
    return await session.row(select_project(tenant_id=tenant_id, project_id=project_id))


def select_project(*, tenant_id: str, project_id: str) -> Any:
    """Return the statement that reads one project."""
    return select(*_PROJECT_COLUMNS).where(projects.c.tenant_id == tenant_id, projects.c.project_id == project_id)


async def lock_project(session: Session, *, tenant_id: str, project_id: str) -> dict[str, Any] | None:
    """Return one project, locked until the transaction ends, or None."""
    return await session.row(
        select(*_PROJECT_COLUMNS)
        .where(projects.c.tenant_id == tenant_id, projects.c.project_id == project_id)
        .with_for_update()
    )


async def update_project(session: Session, *, tenant_id: str, project_id: str, **values: Any) -> dict[str, Any]:
    """Update one project and return it."""
    row = await session.row(
        update(projects)
        .where(projects.c.tenant_id == tenant_id, projects.c.project_id == project_id)
        .values(**values)
        .returning(*_PROJECT_COLUMNS)
    )
    assert row is not None
    return row


def select_projects(*, tenant_id: str, after: str | None, limit: int) -> Any:
    """Return the statement that lists projects by id."""
    statement = select(*_PROJECT_COLUMNS).where(projects.c.tenant_id == tenant_id)
    if after is not None:
        statement = statement.where(projects.c.project_id > after)
    return statement.order_by(projects.c.project_id).limit(limit)


async def insert_key(session: Session, *, row: dict[str, Any]) -> None:
    """Insert a key, or raise BadRequest for an unknown project and NotFound for an unknown tenant."""
    try:
        await session.execute(insert(api_keys).values(**row))
    except IntegrityError as problem:
        constraint = getattr(getattr(problem.orig, "diag", None), "constraint_name", "") or ""
        if constraint == "api_keys_tenant_id_project_id_fkey":
            raise BadRequest(
                f"project_id: there is no project {row['project_id']}.", code="project_not_found"
            ) from problem
        raise NotFound(f"tenant_id: there is no tenant {row['tenant_id']}.", code="tenant_not_found") from problem


async def is_key_id_used(session: Session, *, key_id: str) -> bool:
    """Return whether any key of the installation has this id."""
    row = await session.row(KEY_ID_EXISTS, {"key_id": key_id})
    return row is not None and row["found"]


async def insert_platform_key(session: Session, *, key_id: str, secret_hash: bytes, now: datetime) -> None:
    """Insert a platform key and revoke the others, or raise StartupError unless connected as the owner."""
    try:
        await session.execute(text(f"SET LOCAL ROLE {OWNER_ROLE}"))
    except DBAPIError as problem:
        raise StartupError(
            f"Only {OWNER_ROLE} can store a platform key: set DATABASE_MIGRATION_URL accordingly, or PLATFORM_KEY in "
            "the environment of the service instead."
        ) from problem
    await session.execute(update(platform_keys).where(platform_keys.c.revoked_at.is_(None)).values(revoked_at=now))
    await session.execute(insert(platform_keys).values(key_id=key_id, secret_hash=secret_hash, created_at=now))


async def lock_key(session: Session, *, tenant_id: str, key_id: str) -> dict[str, Any] | None:
    """Return one key, locked until the transaction ends, or None."""
    return await session.row(
        select(*KEY_COLUMNS, api_keys.c.secret_hash)
        .where(api_keys.c.tenant_id == tenant_id, api_keys.c.key_id == key_id)
        .with_for_update()
    )


def select_keys(*, tenant_id: str, after: str | None, limit: int) -> Any:
    """Return the statement that lists keys by id, which is the order of creation."""
    statement = select(*KEY_COLUMNS).where(api_keys.c.tenant_id == tenant_id)
    if after is not None:
        statement = statement.where(api_keys.c.key_id > after)
    return statement.order_by(api_keys.c.key_id).limit(limit)


async def update_key(session: Session, *, tenant_id: str, key_id: str, **values: Any) -> None:
    """Update one key."""
    await session.execute(
        update(api_keys).where(api_keys.c.tenant_id == tenant_id, api_keys.c.key_id == key_id).values(**values)
    )


async def insert_garden(session: Session, *, row: dict[str, Any]) -> dict[str, Any]:
    """Insert a garden, or raise Conflict when its slug is taken."""
    try:
        made = await session.row(insert(gardens).values(**row).returning(*GARDEN_COLUMNS))
    except IntegrityError as problem:
        raise Conflict(f"slug: a garden {row['slug']} already exists.", code="garden_exists") from problem
    assert made is not None
    return made


async def find_garden(session: Session, *, tenant_id: str, garden_id: str, lock: bool = False) -> dict[str, Any] | None:
    """Return one garden, deleted or not, or None; with `lock`, concurrent changes of its members wait."""
    statement = select(*GARDEN_COLUMNS, gardens.c.deleted_at).where(
        gardens.c.tenant_id == tenant_id, gardens.c.garden_id == garden_id
    )
    return await session.row(statement.with_for_update() if lock else statement)


async def update_garden(session: Session, *, tenant_id: str, garden_id: str, **values: Any) -> dict[str, Any]:
    """Update one garden and return it."""
    row = await session.row(
        update(gardens)
        .where(gardens.c.tenant_id == tenant_id, gardens.c.garden_id == garden_id)
        .values(**values)
        .returning(*GARDEN_COLUMNS)
    )
    assert row is not None
    return row


def select_gardens(*, tenant_id: str, project_id: str, member: str | None, after: str | None, limit: int) -> Any:
    """Return the statement that lists gardens by slug, of `member` alone when given."""
    conditions = [
        gardens.c.tenant_id == tenant_id,
        gardens.c.project_id == project_id,
        gardens.c.deleted_at.is_(None),
    ]
    if member is not None:
        m = garden_members.c
        conditions.append(
            exists().where(and_(m.tenant_id == tenant_id, m.garden_id == gardens.c.garden_id, m.agent_id == member))
        )
    if after is not None:
        conditions.append(gardens.c.slug > after)
    return select(*GARDEN_COLUMNS).where(and_(*conditions)).order_by(gardens.c.slug).limit(limit)


async def find_member(session: Session, *, tenant_id: str, garden_id: str, agent_id: str) -> dict[str, Any] | None:
    """Return one membership, or None."""
    c = garden_members.c
    return await session.row(
        select(*MEMBER_COLUMNS).where(c.tenant_id == tenant_id, c.garden_id == garden_id, c.agent_id == agent_id)
    )


def select_members(*, tenant_id: str, garden_id: str, after: str | None, limit: int) -> Any:
    """Return the statement that lists members of a garden by agent id."""
    c = garden_members.c
    statement = select(*MEMBER_COLUMNS).where(c.tenant_id == tenant_id, c.garden_id == garden_id)
    if after is not None:
        statement = statement.where(c.agent_id > after)
    return statement.order_by(c.agent_id).limit(limit)


async def upsert_member(session: Session, *, row: dict[str, Any]) -> dict[str, Any]:
    """Insert a member or update their role, and return them."""
    statement = (
        upsert(garden_members)
        .values(**row)
        .on_conflict_do_update(constraint="garden_members_pkey", set_={"role": row["role"]})
        .returning(*MEMBER_COLUMNS)
    )
    made = await session.row(statement)
    assert made is not None
    return made


async def delete_member(session: Session, *, tenant_id: str, garden_id: str, agent_id: str) -> None:
    """Delete a member."""
    c = garden_members.c
    await session.execute(
        delete(garden_members).where(c.tenant_id == tenant_id, c.garden_id == garden_id, c.agent_id == agent_id)
    )


async def delete_members(session: Session, *, tenant_id: str, garden_id: str) -> None:
    """Delete all members of a garden."""
    c = garden_members.c
    await session.execute(delete(garden_members).where(c.tenant_id == tenant_id, c.garden_id == garden_id))


async def count_admins(session: Session, *, tenant_id: str, garden_id: str) -> int:
    """Return how many admins a garden has."""
    c = garden_members.c
    found = await session.row(
        select(func.count().label("admins")).where(
            c.tenant_id == tenant_id, c.garden_id == garden_id, c.role == "admin"
        )
    )
    assert found is not None
    return found["admins"]
