"""All SQL of the web layer: authentication, rate limits, stored responses, readiness."""

from datetime import datetime
from functools import cache
from typing import Any

import psycopg
from sqlalchemy import select, text, update
from sqlalchemy.dialects.postgresql import insert
from sqlalchemy.exc import DBAPIError

from app.db.database import Session
from app.db.scope import ScopedFunction
from app.errors import Conflict
from app.web.tables import idempotency_keys

_WHO = (
    "a.outcome AS who_outcome, a.tenant_id AS who_tenant, a.project_id AS who_project, "
    "a.key_project AS who_key_project, a.kind AS who_kind, a.agent_id AS who_agent, a.scopes AS who_scopes, "
    "a.gardens::text[] AS who_gardens, a.rate_limits::text AS who_rate_limits, a.user_id AS who_user, "
    "a.key_user AS who_key_user"
)

# Find the principal of a key in a project.
AUTHENTICATE = f"SELECT {_WHO} FROM authenticate(%s, %s, %s, %s) a"  # noqa: S608

# Reserve a block of rate tokens for this process.
RESERVE_TOKENS = "SELECT * FROM reserve_tokens(%s, %s, %s, %s, %s, %s, %s, %s)"


# Read the active embedding model.
ACTIVE_MODEL = "SELECT m.provider, m.model, m.version, m.dimensions FROM embedding_models m WHERE m.active"

# Read the secret that signs cursors.
CURSOR_SECRET = "SELECT secret FROM service_secrets WHERE name = 'cursor'"  # noqa: S105

# Read depth and age of the job queue, for /metrics.
QUEUE_METRICS = "SELECT * FROM queue_metrics()"

# Read the embedding backlog, for /metrics.
EMBEDDING_METRICS = "SELECT * FROM embedding_metrics()"


_WAIT_TEN_SECONDS = text("SET LOCAL lock_timeout = '10s'")
_WAIT_WITHOUT_LIMIT = text("SET LOCAL lock_timeout = 0")

# An admin key bound to no project reads across all projects.
_REACH = "CASE WHEN a.kind = 'admin' AND a.key_project IS NULL THEN 'cross_project' ELSE '' END"


@cache
def authenticated_call(function: ScopedFunction) -> str:
    """Return one statement that authenticates the caller and calls the function in their scope."""
    columns = ", ".join(f"r.{name}" for name in function.columns)
    placeholders = ", ".join(["%s"] * function.arguments)
    return (
        f"SELECT {_WHO}, {columns} FROM authenticate(%s, %s, %s, %s) a "  # noqa: S608
        f"LEFT JOIN LATERAL {function.name}(a.tenant_id, a.project_id, a.agent_id, a.gardens, {_REACH}, "
        f"a.user_id, {placeholders}) r ON a.outcome = 'ok'"
    )


async def claim_key(
    session: Session,
    *,
    address: dict[str, Any],
    request_hash: bytes,
    now: datetime,
    expires_at: datetime,
) -> dict[str, Any] | None:
    """Claim an Idempotency-Key in this transaction and return None, or the response stored for it.

    While another transaction holds the same key the insert waits for its end; raise Conflict after ten seconds.
    """
    values = {"request_hash": request_hash, "created_at": now, "expires_at": expires_at}
    statement = (
        insert(idempotency_keys)
        .values(**address, **values, sealed=False)
        .on_conflict_do_update(
            constraint="idempotency_keys_pkey",
            set_={**values, "status": None, "body": None, "sealed": False},
            where=idempotency_keys.c.expires_at <= now,
        )
        .returning(idempotency_keys.c.key_id)
    )
    await session.execute(_WAIT_TEN_SECONDS)
    try:
        claimed = await session.row(statement)
    except DBAPIError as problem:
        if isinstance(problem.orig, psycopg.errors.LockNotAvailable):
            raise Conflict(
                "A request with this Idempotency-Key is still being processed; try again in a moment.",
                code="idempotency_in_progress",
            ) from problem
        raise
    await session.execute(_WAIT_WITHOUT_LIMIT)
    if claimed is not None:
        return None
    c = idempotency_keys.c
    return await session.row(select(c.request_hash, c.status, c.body, c.sealed).where(*_at(address)))


async def store_response(session: Session, *, address: dict[str, Any], status: int, body: bytes, sealed: bool) -> None:
    """Store the response in the transaction of its effect."""
    await session.execute(update(idempotency_keys).where(*_at(address)).values(status=status, body=body, sealed=sealed))


def _at(address: dict[str, Any]) -> list[Any]:
    return [idempotency_keys.c[name] == value for name, value in address.items()]
