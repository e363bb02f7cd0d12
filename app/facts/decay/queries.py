"""All SQL of decay."""

from typing import Any

from sqlalchemy import delete, select, text, update
from sqlalchemy.dialects.postgresql import insert as upsert

from app.db.database import Row, Session
from app.facts.decay.tables import decay_policies

# Apply the decay policies to one batch of the project's facts.
SWEEP_DECAY = text("SELECT * FROM sweep_decay(:now, :dry, CAST(:after AS uuid), :limit)")
# Those of these facts that the caller can see.
VISIBLE_FACTS = text(
    "SELECT f.fact_id FROM graph_facts f WHERE f.tenant_id = :tenant AND f.fact_id = ANY (CAST(:facts AS uuid[]))"
)


async def put_policy(session: Session, *, row: Row) -> Row | None:
    """Insert a policy; return None when its relation and scope have one."""
    statement = upsert(decay_policies).values(row).on_conflict_do_nothing().returning(decay_policies)
    return await session.row(statement)


async def find_policy(session: Session, *, tenant_id: str, project_id: str, relation: str, scope: str) -> Row | None:
    """Return the policy of a relation and scope, or None."""
    c = decay_policies.c
    return await session.row(
        select(decay_policies).where(
            c.tenant_id == tenant_id, c.project_id == project_id, c.relation == relation, c.scope == scope
        )
    )


def select_policies(*, tenant_id: str, project_id: str, after: str | None, limit: int) -> Any:
    """Return the query for the policies of a project, oldest first."""
    c = decay_policies.c
    statement = select(decay_policies).where(c.tenant_id == tenant_id, c.project_id == project_id)
    if after is not None:
        statement = statement.where(c.policy_id > after)
    return statement.order_by(c.policy_id).limit(limit)


async def delete_policy(session: Session, *, tenant_id: str, project_id: str, policy_id: str) -> bool:
    """Delete a policy; return False when there is none."""
    c = decay_policies.c
    found = await session.execute(
        delete(decay_policies).where(c.tenant_id == tenant_id, c.project_id == project_id, c.policy_id == policy_id)
    )
    return found.rowcount == 1


async def mark_swept(session: Session, *, tenant_id: str, project_id: str, now: Any) -> None:
    """Store when the policies of a project were last applied."""
    c = decay_policies.c
    await session.execute(
        update(decay_policies).where(c.tenant_id == tenant_id, c.project_id == project_id).values(swept_at=now)
    )
