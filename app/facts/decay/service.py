"""Use cases of decay: policies, and the sweep that applies them."""

from collections import Counter
from datetime import UTC, datetime
from uuid import UUID

from app.access import Principal, new_id, require_project
from app.audit import events as audit
from app.db.counts import COUNT_LIMIT
from app.db.database import Database, Row, Session
from app.db.retries import retried
from app.db.scope import Scope
from app.errors import BadRequest, Conflict, NotFound
from app.facts.decay import queries
from app.facts.decay.schemas import (
    DecayCount,
    DecayedFact,
    DecayPolicyCreate,
    DecayPolicyCreated,
    DecayPolicyList,
    DecayPolicyRead,
    DecaySwept,
)
from app.facts.names import predicate_name
from app.facts.queries import FIRST_ID, queue_cards
from app.jobs.registry import Job
from app.outcomes import Outcome
from app.paging import Page
from app.tenancy.schemas import SYNONYMS

SWEPT_AT_ONCE = 500
SHOWN = 200
SETTINGS = ("mode", "ttl_s", "half_life_s", "min_confidence", "exempt_relations")


async def create_policy(session: Session, who: Principal, *, data: DecayPolicyCreate) -> Outcome[DecayPolicyCreated]:
    """Create a policy, or return the same one; raise Conflict when another has its relation and scope."""
    _check(data)
    row = _new_row(who, data)
    made = await queries.put_policy(session, row=row)
    place = {name: row[name] for name in ("tenant_id", "project_id", "relation", "scope")}
    found = made or await queries.find_policy(session, **place)
    if found is None or any(found[name] != row[name] for name in SETTINGS):
        raise Conflict(
            "relation: there is another policy for this relation and scope; delete it first.",
            code="decay_policy_exists",
            details={} if found is None else {"policy_id": str(found["policy_id"])},
        )
    created = made is not None
    if created:
        policy_id = str(found["policy_id"])
        await audit.record(
            session, "admin_action", key_id=who.key_id, action="decay_policy_create", policy_id=policy_id
        )
    return Outcome(DecayPolicyCreated(policy=_present(found), created=created), created=created)


def _new_row(who: Principal, data: DecayPolicyCreate) -> Row:
    return {
        "tenant_id": who.tenant_id,
        "project_id": require_project(who),
        "policy_id": new_id(),
        "relation": data.relation if data.relation == "*" else predicate_name(data.relation, "relation").norm,
        "scope": SYNONYMS.get(data.scope, data.scope),
        "mode": data.mode,
        "ttl_s": data.ttl_s,
        "half_life_s": data.half_life_s,
        "min_confidence": data.min_confidence,
        "exempt_relations": sorted({predicate_name(name, "exempt_relations").norm for name in data.exempt_relations}),
        "created_by": who.agent_id,
        "created_at": datetime.now(UTC),
    }


def _check(data: DecayPolicyCreate) -> None:
    if data.mode == "retract" and data.ttl_s is None:
        raise BadRequest("ttl_s: required for mode retract; the number of seconds after which facts are retracted.")
    if data.mode == "confidence" and data.half_life_s is None:
        raise BadRequest("half_life_s: required for mode confidence; the number of seconds in which confidence halves.")
    if data.ttl_s is None and data.half_life_s is None:
        raise BadRequest("ttl_s: give ttl_s or half_life_s.")


def _present(row: Row) -> DecayPolicyRead:
    names = (*SETTINGS, "relation", "scope", "created_by", "created_at", "swept_at")
    return DecayPolicyRead(policy_id=UUID(str(row["policy_id"])), **{name: row[name] for name in names})


async def list_policies(db: Database, who: Principal, *, page: Page) -> DecayPolicyList:
    """Return the policies of the project, oldest first."""
    after = None if page.after is None else page.after[0]
    place = {"tenant_id": who.tenant_id, "project_id": require_project(who)}
    found = await db.fetch(who, queries.select_policies(**place, after=after, limit=page.limit + 1))
    rows, next_cursor = page.cut(found, key=lambda row: [str(row["policy_id"])])
    total = await page.count_rows(db, who, queries.select_policies(**place, after=None, limit=COUNT_LIMIT))
    return DecayPolicyList(policies=[_present(row) for row in rows], next_cursor=next_cursor, total=total)


async def delete_policy(db: Database, who: Principal, *, policy_id: UUID) -> None:
    """Delete a policy or raise NotFound; its past effects stay."""
    place = {"tenant_id": who.tenant_id, "project_id": require_project(who), "policy_id": str(policy_id)}
    async with db.tenant(who) as session:
        if not await queries.delete_policy(session, **place):
            raise NotFound("There is no such policy.", code="decay_policy_not_found")
        await audit.record(
            session, "admin_action", key_id=who.key_id, action="decay_policy_delete", policy_id=str(policy_id)
        )


async def sweep(db: Database, who: Principal, *, dry_run: bool) -> DecaySwept:
    """Apply the project's policies now and return their effects; a dry run changes nothing."""
    now = datetime.now(UTC)
    rows = await _sweep(db, who, now=now, dry_run=dry_run)
    async with db.tenant(who) as session:
        ids = [str(row["fact_id"]) for row in rows]
        found = await session.rows(queries.VISIBLE_FACTS, {"tenant": who.tenant_id, "facts": ids})
        if not dry_run:
            await queries.mark_swept(session, tenant_id=who.tenant_id, project_id=require_project(who), now=now)
            await audit.record(session, "admin_action", key_id=who.key_id, action="decay_sweep", affected=len(rows))
    visible = {row["fact_id"] for row in found}
    counts = Counter((row["policy_id"], row["action"]) for row in rows)
    return DecaySwept(
        dry_run=dry_run,
        swept_at=now,
        affected=len(rows),
        by_policy=[
            DecayCount(policy_id=policy, action=action, facts=count)
            for (policy, action), count in sorted(counts.items(), key=str)
        ],
        facts=[_present_effect(row) for row in [row for row in rows if row["fact_id"] in visible][:SHOWN]],
    )


def _present_effect(row: Row) -> DecayedFact:
    return DecayedFact(
        fact_id=row["fact_id"],
        policy_id=row["policy_id"],
        action=row["action"],
        confidence_before=row["before"],
        confidence_after=row["after"],
    )


async def _sweep(db: Database, who: Scope, *, now: datetime, dry_run: bool) -> list[Row]:
    swept: list[Row] = []
    after = FIRST_ID
    while True:
        arguments = {"now": now, "dry": dry_run, "after": after, "limit": SWEPT_AT_ONCE}

        async def step(arguments: Row = arguments) -> list[Row]:
            async with db.tenant(who) as session:
                found = await session.rows(queries.SWEEP_DECAY, arguments)
                changed = [str(row["fact_id"]) for row in found if row["action"] in ("retract", "confidence")]
                if changed and not dry_run:
                    await queue_cards(session, fact_ids=changed)
                return found

        rows = await retried(step)
        swept += [row for row in rows if row["action"] != "skipped"]
        if len(rows) < SWEPT_AT_ONCE:
            return swept
        after = str(rows[-1]["fact_id"])


async def run_decay_job(job: Job) -> None:
    """Apply the policies of a project by schedule; running it twice changes nothing more."""
    now = datetime.now(UTC)
    swept = await _sweep(job.db, job.scope, now=now, dry_run=False)
    async with job.finishing() as session:
        if swept:
            await audit.record(session, "fact_write", key_id="schedule", action="decay", affected=len(swept))
        await queries.mark_swept(session, tenant_id=job.scope.tenant_id, project_id=job.scope.project_id or "", now=now)
