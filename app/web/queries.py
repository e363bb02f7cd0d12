"""All SQL of the HTTP edge: key lookup, rate blocks, stored answers, readiness."""

from datetime import datetime
from typing import Any

import psycopg
from sqlalchemy import delete, func, select, text, update
from sqlalchemy.dialects.postgresql import insert
from sqlalchemy.exc import DBAPIError

from app.db.database import Session
from app.errors import Conflict
from app.web.tables import idempotency_keys, rate_windows

_WHO = (
    "a.outcome AS who_outcome, a.tenant_id AS who_tenant, a.project_id AS who_project, "
    "a.key_project AS who_key_project, a.kind AS who_kind, a.agent_id AS who_agent, a.scopes AS who_scopes, "
    "a.gardens::text[] AS who_gardens, a.rate_limits::text AS who_rate_limits"
)

# Who holds this key, in which project?
AUTHENTICATE = f"SELECT {_WHO} FROM authenticate(%s, %s, %s) a"  # noqa: S608

# Reserve a block of rate tokens for this process.
RESERVE_TOKENS = "SELECT * FROM reserve_tokens(%s, %s, %s, %s, %s, %s, %s, %s)"


# The model that recall searches by.
ACTIVE_MODEL = "SELECT m.provider, m.model, m.version, m.dimensions FROM embedding_models m WHERE m.active"

# The secret that signs cursors.
CURSOR_SECRET = "SELECT secret FROM service_secrets WHERE name = 'cursor'"  # noqa: S105

# Depth and age of the queue, for /metrics.
QUEUE_METRICS = "SELECT * FROM queue_metrics()"

# What waits to be embedded, for /metrics.
EMBEDDING_METRICS = "SELECT * FROM embedding_metrics()"


_WAIT_TEN_SECONDS = text("SET LOCAL lock_timeout = '10s'")
_WAIT_AS_USUAL = text("SET LOCAL lock_timeout = 0")

# An administrator whose key is bound to no project reads across all of them.
_REACH = "CASE WHEN a.kind = 'admin' AND a.key_project IS NULL THEN 'cross_project' ELSE '' END"


def hot_query(function: str, *, arguments: int, columns: str) -> str:
    """One statement that authenticates, sets the scope and answers: for a function whose first five are the scope."""
    placeholders = ", ".join(["%s"] * arguments)
    return (
        f"SELECT {_WHO}, {columns} FROM authenticate(%s, %s, %s) a "  # noqa: S608
        f"LEFT JOIN LATERAL {function}(a.tenant_id, a.project_id, a.agent_id, a.gardens, {_REACH}, {placeholders}) r "
        "ON a.outcome = 'ok'"
    )


async def claim_answer(
    session: Session,
    *,
    address: dict[str, Any],
    request_hash: bytes,
    now: datetime,
    expires_at: datetime,
) -> dict[str, Any] | None:
    """Claims an idempotency key in this transaction; None when it is ours, else the answer that stands there.

    While another transaction holds the same key the insert waits for its end, ten seconds at most: that is the whole
    protocol.
    """
    fresh = {"request_hash": request_hash, "created_at": now, "expires_at": expires_at}
    statement = (
        insert(idempotency_keys)
        .values(**address, **fresh, sealed=False)
        .on_conflict_do_update(
            constraint="idempotency_keys_pkey",
            set_={**fresh, "status": None, "body": None, "sealed": False},
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
                "A request with this Idempotency-Key is still being worked on; try again in a moment.",
                code="idempotency_in_progress",
            ) from problem
        raise
    await session.execute(_WAIT_AS_USUAL)
    if claimed is not None:
        return None
    c = idempotency_keys.c
    return await session.row(select(c.request_hash, c.status, c.body, c.sealed).where(*_at(address)))


async def store_answer(session: Session, *, address: dict[str, Any], status: int, body: bytes, sealed: bool) -> None:
    """Puts the answer beside its effect."""
    await session.execute(update(idempotency_keys).where(*_at(address)).values(status=status, body=body, sealed=sealed))


def _at(address: dict[str, Any]) -> list[Any]:
    return [idempotency_keys.c[name] == value for name, value in address.items()]


async def delete_expired_answers(session: Session, *, tenant_id: str, now: datetime) -> int:
    """Removes stored answers past their day."""
    c = idempotency_keys.c
    return (
        await session.execute(delete(idempotency_keys).where(c.tenant_id == tenant_id, c.expires_at <= now))
    ).rowcount


async def delete_idle_windows(session: Session, *, tenant_id: str, before_slot: int) -> int:
    """Removes rate windows nobody has drawn from for long."""
    c = rate_windows.c
    newest = func.coalesce(c.slots[func.cardinality(c.slots)], 0)
    return (await session.execute(delete(rate_windows).where(c.tenant_id == tenant_id, newest < before_slot))).rowcount
