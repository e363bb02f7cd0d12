"""The use case of lint: run each rule in a transaction of its own, within a time limit, and page their findings."""

import time
from collections.abc import Collection
from itertools import dropwhile
from typing import Any
from uuid import UUID

import msgspec
import psycopg
from sqlalchemy.exc import DBAPIError

from app.access import Principal, require_project
from app.db.counts import COUNT_LIMIT, MAX_COUNTED
from app.db.database import Database, Row
from app.maintenance.lint import queries
from app.maintenance.lint.schemas import CHECKS, Check, Kind, LintCount, LintFinding, LintReport
from app.maintenance.options import DEFAULTS, MaintenanceOptions
from app.paging import Page

UNCONFIRMED_DAYS = 365
PENDING_HOURS = 24
MANY_VALUES = 5
_FIRST = "00000000-0000-0000-0000-000000000000"


class LintRule(msgspec.Struct, frozen=True):
    """One reason to report a row."""

    check: Check
    reason: str
    kind: Kind
    query: str
    meaning: str


RULES = (
    LintRule(
        "stale", "fact_decayed", "fact", queries.DECAYED_FACTS,
        "Older than its decay policy allows, or than its half-life; related: the policy.",
    ),
    LintRule(
        "stale", "fact_unconfirmed", "fact", queries.UNCONFIRMED_FACTS,
        f"Current, recorded and true for more than {UNCONFIRMED_DAYS} days, and never confirmed.",
    ),
    LintRule(
        "stale", "card_stale", "card", queries.STALE_CARDS,
        "Older than cards may be, or than a change of its facts; related: its entity.",
    ),
    LintRule(
        "stale", "extraction_pending", "note", queries.PENDING_NOTES,
        f"Has waited for its extraction for more than {PENDING_HOURS} hours.",
    ),
    LintRule(
        "orphaned", "entity_unreferenced", "entity", queries.UNREFERENCED_ENTITIES,
        "No fact, live note or object refers to it.",
    ),
    LintRule(
        "orphaned", "fact_unsupported", "fact", queries.UNSUPPORTED_FACTS,
        "Current, but all notes that it cites are deleted, or it was extracted and cites none; related: these notes.",
    ),
    LintRule(
        "orphaned", "vector_orphaned", "vector", queries.ORPHANED_VECTORS,
        "Its note, fact, card or object is gone, which had this id.",
    ),
    LintRule(
        "orphaned", "mention_orphaned", "mention", queries.ORPHANED_MENTIONS,
        "By the note of this id, which should have been purged, or by an object that is gone; related: the entities.",
    ),
    LintRule(
        "broken_references", "ref_unlinked", "fact", queries.UNLINKED_REFS,
        "Its value is a ref that is no entity, so that no walk follows it.",
    ),
    LintRule(
        "broken_references", "source_unknown", "fact", queries.UNKNOWN_SOURCES,
        "Derived from a hash that no fact has.",
    ),
    LintRule(
        "broken_references", "object_gone", "entity", queries.UNBOUND_ENTITIES,
        "Stands for an object that is gone; related: the object.",
    ),
    LintRule(
        "broken_references", "end_gone", "relationship", queries.LOOSE_RELATIONSHIPS,
        "Starts or ends at an object that is gone; related: these objects.",
    ),
    LintRule(
        "broken_references", "object_evidence_unknown", "object", queries.LOOSE_OBJECT_EVIDENCE,
        "Its evidence has ids that name nothing; related: these ids.",
    ),
    LintRule(
        "broken_references", "relationship_evidence_unknown", "relationship", queries.LOOSE_RELATIONSHIP_EVIDENCE,
        "Its evidence has ids that name nothing; related: these ids.",
    ),
    LintRule(
        "contradictions", "conflict_open", "conflict", queries.OPEN_CONFLICTS,
        "An open conflict; related: both facts.",
    ),
    LintRule(
        "contradictions", "several_values", "fact", queries.SEVERAL_VALUES,
        "A current value of a single-valued predicate that has others at the same time; related: the others.",
    ),
    LintRule(
        "contradictions", "predicate_undecided", "predicate", queries.UNDECIDED_PREDICATES,
        f"Pending, while subjects have {MANY_VALUES} or more open values by it; related: such subjects.",
    ),
)  # fmt: skip


class LintLimits(msgspec.Struct, frozen=True, kw_only=True):
    """How long one request may work."""

    rule_seconds: float = 3.0
    total_seconds: float = 20.0


LIMITS = LintLimits()


class _Found(msgspec.Struct, frozen=True, kw_only=True):
    """What one rule found, up to the limits."""

    counted: int = 0
    findings: list[LintFinding] = msgspec.field(default_factory=list[LintFinding])
    stopped: bool = False


async def lint(
    db: Database,
    who: Principal,
    *,
    checks: Collection[Check] = CHECKS,
    page: Page,
    options: MaintenanceOptions = DEFAULTS,
    limits: LintLimits = LIMITS,
) -> LintReport:
    """Return a page of what the checks find in the caller's project; the first page has the counts too."""
    rules = [rule for rule in RULES if rule.check in checks]
    counts: list[LintCount] = []
    findings: list[LintFinding] = []
    truncated = False
    deadline = time.monotonic() + limits.total_seconds
    reached, after = (None, _FIRST) if page.after is None else page.after
    if reached is not None:
        rules = list(dropwhile(lambda rule: rule.reason != reached, rules))
    for rule in rules:
        room = page.limit + 1 - len(findings)
        if page.after is not None and room == 0:
            break
        seconds = min(limits.rule_seconds, deadline - time.monotonic())
        params = {**_parameters(who, options), "after": after, "page": room}
        params["most"] = COUNT_LIMIT if page.after is None else room
        found = await _run(db, who, rule, params, seconds=seconds)
        after = _FIRST
        findings += found.findings
        incomplete = found.stopped or (page.after is None and found.counted > MAX_COUNTED)
        truncated = truncated or incomplete
        counts.append(_count(rule, found, truncated=incomplete))
    rest = findings[page.limit :]
    findings = findings[: page.limit]
    return LintReport(
        counts=counts if page.after is None else msgspec.UNSET,
        truncated=truncated,
        findings=findings,
        next_cursor=page.sign([findings[-1].reason, str(findings[-1].id)]) if rest else None,
    )


def _parameters(who: Principal, options: MaintenanceOptions) -> Row:
    return {
        "tenant": who.tenant_id,
        "project": require_project(who),
        "unconfirmed_days": UNCONFIRMED_DAYS,
        "pending_hours": PENDING_HOURS,
        "many_values": MANY_VALUES,
        "card_seconds": options.card_max_age,
        "deleted_days": options.retention.deleted,
    }


async def _run(db: Database, who: Principal, rule: LintRule, params: dict[str, Any], *, seconds: float) -> _Found:
    """Run one rule; when it takes too long it has found nothing and is stopped."""
    if seconds <= 0:
        return _Found(stopped=True)
    try:
        async with db.tenant(who) as session:
            await session.query(queries.STATEMENT_TIMEOUT, {"milliseconds": max(1, round(seconds * 1000))})
            (row,) = await session.query(queries.run(rule.query), params)
    except DBAPIError as problem:
        if not isinstance(problem.orig, psycopg.errors.QueryCanceled):
            raise
        return _Found(stopped=True)
    findings = [
        LintFinding(
            check=rule.check, reason=rule.reason, kind=rule.kind, id=found, related=[UUID(one) for one in related]
        )
        for found, related in zip(row["ids"], row["related"], strict=True)
    ]
    return _Found(counted=row["counted"], findings=findings)


def _count(rule: LintRule, found: _Found, *, truncated: bool) -> LintCount:
    return LintCount(
        check=rule.check,
        reason=rule.reason,
        kind=rule.kind,
        meaning=rule.meaning,
        count=min(found.counted, MAX_COUNTED),
        truncated=truncated,
    )
