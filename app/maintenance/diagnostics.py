"""Diagnostics: a health score of a project, warnings and recommended repairs."""

from datetime import datetime

import msgspec

from app.db.database import Database, Row
from app.db.scope import Scope
from app.maintenance import queries
from app.maintenance.options import DEFAULTS, MaintenanceOptions
from app.maintenance.schemas import (
    Diagnostics,
    HealthParts,
    HealthWarning,
    IndexHealth,
    MutationHealth,
    ProviderHealth,
    QueueHealth,
    Recommendation,
    Status,
    StorageHealth,
    TokenUsage,
)
from app.tenancy.settings import PipelineSettings, read_settings

SAMPLE = 100
MAX_REQUEUED = 50
WEIGHTS = {"queue": 0.30, "provider": 0.25, "index": 0.20, "storage": 0.15, "mutation": 0.10}
HEALTHY, DEGRADED = 0.8, 0.5
DEAD_RATE, DELETED_RATE, COVERAGE = 0.01, 0.3, 0.8


async def diagnose(db: Database, who: Scope, *, options: MaintenanceOptions = DEFAULTS) -> Diagnostics:
    """Return the diagnostics of the caller's project."""
    figures = {
        "least": options.least_confidence,
        "sample": SAMPLE,
        "revivable": MAX_REQUEUED,
        "keep_days": options.retention.deleted,
    }
    (row,) = await db.query(who, queries.DIAGNOSE, figures)
    return evaluate(row)


def evaluate(row: Row) -> Diagnostics:
    """Return the diagnostics of a project from its figures."""
    settings = read_settings(row["settings"])
    warnings = _warnings(row, settings)
    graph_empty = any(item.code == "graph_empty" for item in warnings)
    parts = HealthParts(
        queue=_queue(row),
        storage=_storage(row),
        index=_index(row, graph_empty=graph_empty),
        provider=ProviderHealth(
            score=row["succeeded"] / row["calls"] if row["calls"] else 1.0,
            calls=row["calls"],
            failures=row["calls"] - row["succeeded"],
        ),
        mutation=MutationHealth(score=_score(0.3 * (row["recoveries"] > 5)), recoveries=row["recoveries"]),
    )
    score = round(sum(weight * getattr(parts, name).score for name, weight in WEIGHTS.items()), 4)
    return Diagnostics(
        score=score,
        status=_status(score, graph_empty=graph_empty),
        mode=settings.mode,
        parts=parts,
        recommendations=recommend(parts),
        warnings=warnings,
        usage=TokenUsage(
            period=settings.extraction_budget_period,
            input_tokens=row["input_tokens"],
            output_tokens=row["output_tokens"],
            tokens=row["input_tokens"] + row["output_tokens"],
            budget=settings.extraction_token_budget,
        ),
    )


def _score(*penalties: float) -> float:
    return max(0.0, round(1.0 - sum(penalties), 4))


def _status(score: float, *, graph_empty: bool) -> Status:
    if score >= HEALTHY and not graph_empty:
        return "healthy"
    return "degraded" if score >= DEGRADED else "unhealthy"


def _queue(row: Row) -> QueueHealth:
    dead_rate = row["dead"] / row["ended"] if row["ended"] else 0.0
    return QueueHealth(
        score=_score(
            0.3 * (row["depth"] > 50),
            0.3 * (dead_rate > DEAD_RATE),
            0.2 * (row["oldest_seconds"] > 300),
            0.2 * (row["long_leases"] > 0),
        ),
        depth=row["depth"],
        oldest_seconds=round(row["oldest_seconds"], 3),
        dead_rate=round(dead_rate, 6),
        dead=row["dead"],
        failed=row["failed"],
        revivable=row["revivable"],
        long_leases=row["long_leases"],
        stale_leases=row["stale_leases"],
    )


def _storage(row: Row) -> StorageHealth:
    rate = row["deleted"] / row["notes"] if row["notes"] else 0.0
    since = row["settings"].get("notes_complete_since")
    return StorageHealth(
        score=_score(0.3 * (rate > DELETED_RATE)),
        notes=row["notes"],
        deleted=row["deleted"],
        deleted_rate=round(rate, 6),
        expired=row["expired"],
        notes_complete_since=None if since is None else msgspec.convert(since, datetime),
    )


def _index(row: Row, *, graph_empty: bool) -> IndexHealth:
    live = row["notes"] - row["deleted"]
    unindexed = row["unindexed"] / live if live else 0.0
    stale = row["stale"] / row["sampled"] if row["sampled"] else 0.0
    mismatch = unindexed + (1.0 - unindexed) * stale
    coverage = min(1.0, row["vectors"] / row["units"]) if row["embedding"] and row["units"] else None
    return IndexHealth(
        score=_score(0.5 * (mismatch > 0.1), 0.3 * (coverage is not None and coverage < COVERAGE), 0.2 * graph_empty),
        mismatch=round(mismatch, 6),
        unindexed=row["unindexed"],
        coverage=None if coverage is None else round(coverage, 6),
        missing=max(0, row["units"] - row["vectors"]),
        queued=row["queued"],
        extractions=row["extractions"],
        lost_links=row["lost_links"],
    )


def recommend(parts: HealthParts) -> list[Recommendation]:
    """Return the repairs that would improve the score."""
    queue, storage, index = parts.queue, parts.storage, parts.index
    found: list[Recommendation] = []
    # Jobs that cannot be requeued need a person, so they are a warning and no recommendation.
    if queue.dead_rate > DEAD_RATE and queue.revivable:
        reason = f"{queue.dead} jobs died within 24 hours ({queue.dead_rate:.1%} of those that ended)."
        found.append(Recommendation(action="requeue-dead", reason=reason))
    if queue.stale_leases:
        reason = f"{queue.stale_leases} leases have expired and were not released."
        found.append(Recommendation(action="release-leases", reason=reason))
    if index.mismatch > 0:
        reason = f"{index.mismatch:.1%} of the live notes have missing or stale search terms."
        found.append(Recommendation(action="check-index", reason=reason))
    if index.coverage is not None and index.coverage < COVERAGE and index.missing > index.queued:
        reason = f"{index.missing} units have no vector, and only {index.queued} are queued."
        found.append(Recommendation(action="reembed", reason=reason))
    if storage.deleted_rate > DELETED_RATE:
        reason = f"{storage.deleted_rate:.1%} of the notes are deleted; {storage.expired} for more than 30 days."
        found.append(Recommendation(action="retention-sweep", reason=reason))
    return found


def _warnings(row: Row, settings: PipelineSettings) -> list[HealthWarning]:
    found: list[HealthWarning] = []
    if settings.graph_enabled and settings.writes and row["extractions"]:
        if not row["graph_facts"]:
            text = f"{row['extractions']} notes were extracted, but no fact was written to the graph."
            found.append(HealthWarning(code="graph_empty", message=text))
        if row["lost_links"]:
            text = f"{row['lost_links']} graph_link jobs died or failed within 24 hours."
            found.append(HealthWarning(code="graph_links_lost", message=text))
    if row["dead"] and not row["revivable"]:
        text = "Dead jobs cannot be requeued: they died again after a repair, or have nothing left to do."
        found.append(HealthWarning(code="dead_jobs_hopeless", message=text))
    if row["unreachable_names"]:
        shown = ", ".join(str(entity_id) for entity_id in row["unreachable_names"])
        text = f"Entities that only their ids reach, since another one has their name; merge or rename them: {shown}."
        found.append(HealthWarning(code="names_unreachable", message=text))
    spent, budget = row["input_tokens"] + row["output_tokens"], settings.extraction_token_budget
    if budget is not None and spent >= budget:
        found.append(
            HealthWarning(
                code="budget_spent", message="The token budget of the period is spent, so extraction has stopped."
            )
        )
    return found
