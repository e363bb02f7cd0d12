"""All SQL of the upkeep of facts."""

from typing import Any

from sqlalchemy import delete, select, text, update
from sqlalchemy.dialects.postgresql import insert as upsert

from app.db.database import Row, Session
from app.facts.upkeep.tables import decay_policies, sources

# Before every id: where a walk through facts in the order of their ids begins.
FIRST_ID = "00000000-0000-0000-0000-000000000000"

# Conflicts both of whose facts the caller can see, newest first.
_CONFLICTS = """
    SELECT k.conflict_id, k.fact_a, k.fact_b, k.status, k.winner, k.detected_at, k.resolved_at, k.resolved_by,
           k.resolution_note,
           CASE WHEN k.status = 'open' THEN
               CASE WHEN (b.confidence, b.created_at) >= (a.confidence, a.created_at) THEN k.fact_b ELSE k.fact_a END
           END AS preferred
    FROM fact_conflicts k
    JOIN graph_facts a ON a.tenant_id = %(tenant)s AND a.fact_id = k.fact_a
    JOIN graph_facts b ON b.tenant_id = %(tenant)s AND b.fact_id = k.fact_b
    WHERE k.tenant_id = %(tenant)s AND k.project_id = %(project)s{where}
    ORDER BY k.detected_at DESC, k.conflict_id DESC LIMIT %(limit)s"""
_CONFLICTS_ASKED = {
    "status": "k.status = %(status)s",
    "fact": "(k.fact_a = %(fact)s::uuid OR k.fact_b = %(fact)s::uuid)",
    "entities": "a.subject_entity_id = ANY (%(entities)s::uuid[])",
    "conflict": "k.conflict_id = %(conflict)s::uuid",
    "after": "(k.detected_at, k.conflict_id) < (%(after)s::timestamptz, %(after_id)s::uuid)",
}
# A live fact of the same place as another that holds this very value: of the two, or else the one that is valid now.
SAME_VALUE = """
    SELECT x.fact_id, x.valid_from FROM graph_facts f
    JOIN graph_facts x ON x.tenant_id = %(tenant)s AND x.project_id = f.project_id
        AND x.subject_entity_id = f.subject_entity_id AND x.predicate_id = f.predicate_id AND x.scope = f.scope
        AND x.owner_key = f.owner_key AND x.retracted_at IS NULL AND x.object_hash = decode(%(hash)s, 'hex')
    WHERE f.tenant_id = %(tenant)s AND f.fact_id = %(fact)s::uuid
    ORDER BY x.fact_id = ANY (%(pair)s::uuid[]) DESC, x.valid_until DESC, x.valid_from DESC LIMIT 1"""
# Ends a conflict.
RESOLVE_CONFLICT = text(
    "SELECT * FROM resolve_conflict(CAST(:conflict AS uuid), CAST(:winner AS uuid), :note, :key, :admin)"
)
# Has the cards that tell of these facts made anew.
QUEUE_CARDS = text("SELECT queue_cards(CAST(:facts AS uuid[])) AS queued")
# Lets time pass over the facts of the project, so many at once.
SWEEP_DECAY = text("SELECT * FROM sweep_decay(:now, :dry, CAST(:after AS uuid), :limit)")
# Which of these facts the caller can see.
VISIBLE_FACTS = text(
    "SELECT f.fact_id FROM graph_facts f WHERE f.tenant_id = :tenant AND f.fact_id = ANY (CAST(:facts AS uuid[]))"
)
# What is known of sources.
JUDGE_SOURCES = "SELECT * FROM judge_sources(%(sources)s::text[])"
# Gives facts of a source the trust it now has, so many at once.
REFRESH_TRUST = text(
    "SELECT * FROM refresh_trust(:source, CAST(:agents AS text[]), :trust, :otherwise, CAST(:after AS uuid), :limit)"
)


async def queue_cards(session: Session, *, fact_ids: list[str]) -> None:
    """Has the cards that tell of these facts made anew, where there are any."""
    row = await session.row(QUEUE_CARDS, {"facts": fact_ids})
    if row is not None and row["queued"]:
        session.wake_workers()


def select_conflicts(asked: set[str]) -> str:
    """The query for the filters that are given."""
    return _CONFLICTS.format(where="".join(f" AND {_CONFLICTS_ASKED[name]}" for name in sorted(asked)))


async def put_policy(session: Session, *, row: Row) -> Row | None:
    """Makes a policy; None when its place is taken."""
    statement = upsert(decay_policies).values(row).on_conflict_do_nothing().returning(decay_policies)
    return await session.row(statement)


async def find_policy(session: Session, *, tenant_id: str, project_id: str, relation: str, scope: str) -> Row | None:
    """The policy of one place."""
    c = decay_policies.c
    return await session.row(
        select(decay_policies).where(
            c.tenant_id == tenant_id, c.project_id == project_id, c.relation == relation, c.scope == scope
        )
    )


def select_policies(*, tenant_id: str, project_id: str, after: str | None, limit: int) -> Any:
    """Policies of a project, oldest first."""
    c = decay_policies.c
    statement = select(decay_policies).where(c.tenant_id == tenant_id, c.project_id == project_id)
    if after is not None:
        statement = statement.where(c.policy_id > after)
    return statement.order_by(c.policy_id).limit(limit)


async def delete_policy(session: Session, *, tenant_id: str, project_id: str, policy_id: str) -> bool:
    """Removes a policy; false when there is none."""
    c = decay_policies.c
    found = await session.execute(
        delete(decay_policies).where(c.tenant_id == tenant_id, c.project_id == project_id, c.policy_id == policy_id)
    )
    return found.rowcount == 1


async def mark_swept(session: Session, *, tenant_id: str, project_id: str, now: Any) -> None:
    """Notes when the policies of a project were last applied."""
    c = decay_policies.c
    await session.execute(
        update(decay_policies).where(c.tenant_id == tenant_id, c.project_id == project_id).values(swept_at=now)
    )


async def put_source(session: Session, *, row: Row) -> tuple[Row, bool]:
    """Registers a source, or changes what is known of it; also whether it is new."""
    changes = {name: row[name] for name in ("identity", "authority", "agents", "blocklisted", "updated_at")}
    statement = (
        upsert(sources)
        .values(row)
        .on_conflict_do_update(constraint="sources_source_key", set_=changes)
        .returning(sources)
    )
    made = await session.row(statement)
    assert made is not None
    return made, str(made["source_id"]) == row["source_id"]


def select_sources(*, tenant_id: str, project_id: str, after: str | None, limit: int) -> Any:
    """Sources of a project by name."""
    c = sources.c
    statement = select(sources).where(c.tenant_id == tenant_id, c.project_id == project_id)
    if after is not None:
        statement = statement.where(c.source > after)
    return statement.order_by(c.source).limit(limit)


def select_source(*, tenant_id: str, project_id: str, source_id: str) -> Any:
    """One source by its id."""
    c = sources.c
    return select(sources).where(c.tenant_id == tenant_id, c.project_id == project_id, c.source_id == source_id)


async def lock_source(session: Session, *, tenant_id: str, project_id: str, source_id: str) -> Row | None:
    """One source that nobody changes until the transaction ends."""
    statement = select_source(tenant_id=tenant_id, project_id=project_id, source_id=source_id)
    return await session.row(statement.with_for_update(read=True))
