"""Wire types of diagnostics and repairs."""

from datetime import datetime
from typing import Literal, get_args

from app.tenancy.schemas import Read
from app.tenancy.settings import Period

Action = Literal["requeue-dead", "release-leases", "check-index", "retention-sweep", "reembed"]
ACTIONS: tuple[Action, ...] = get_args(Action)
Status = Literal["healthy", "degraded", "unhealthy"]
Mode = Literal["off", "shadow", "controlled_write", "full"]


class QueueHealth(Read, frozen=True, kw_only=True):
    """Scores 1, less .3 for more than 50 waiting jobs, .3 for more than 1% dead within 24 hours, .2 for a job that has
    waited more than 300 seconds, .2 for a lease of more than 10 minutes."""

    score: float
    depth: int
    """Jobs that wait."""
    oldest_seconds: float
    """How long the longest waiting one has been due."""
    dead_rate: float
    """Dead jobs of all that ended within 24 hours; cancelled ones do not count."""
    dead: int
    failed: int
    """Given up within 24 hours because trying again could not help."""
    revivable: int
    """Dead jobs that are worth another round, counted up to 50."""
    long_leases: int
    """Jobs that have been worked on for more than 10 minutes."""
    stale_leases: int
    """Leases that ran out because their worker stopped responding."""


class StorageHealth(Read, frozen=True, kw_only=True):
    """Scores 1, less .3 when more than 30% of the notes are deleted."""

    score: float
    notes: int
    deleted: int
    deleted_rate: float
    expired: int
    """Deleted for more than 30 days: the next sweep takes them, unless a hold keeps them."""
    notes_complete_since: datetime | None
    """Readings of notes as of an earlier time may lack notes that were deleted then and are purged now."""


class IndexHealth(Read, frozen=True, kw_only=True):
    """Scores 1, less .5 for a mismatch over 10%, .3 for a coverage under .8, .2 for a graph that stays empty."""

    score: float
    mismatch: float
    """Share of live notes that are not found by their words: those without any terms, and, by a sample of the newest
    100, those whose terms are not what their words give in the project's language."""
    unindexed: int
    coverage: float | None
    """Vectors of the active model for each note, fact and card that should have one; null without a model."""
    missing: int
    """Those that have none."""
    queued: int
    extractions: int
    """Notes whose extraction was completed."""
    lost_links: int
    """Jobs that link the graph and ended dead or failed within 24 hours."""


class ProviderHealth(Read, frozen=True, kw_only=True):
    """Scores the share of the last 100 calls of models that succeeded, or 1 when there were none."""

    score: float
    calls: int
    failures: int


class MutationHealth(Read, frozen=True, kw_only=True):
    """Scores 1, less .3 for more than 5 recoveries of notes within 7 days."""

    score: float
    recoveries: int


class HealthParts(Read, frozen=True, kw_only=True):
    queue: QueueHealth
    storage: StorageHealth
    index: IndexHealth
    provider: ProviderHealth
    mutation: MutationHealth


class Recommendation(Read, frozen=True, kw_only=True):
    action: Action
    reason: str


class HealthWarning(Read, frozen=True, kw_only=True):
    """A problem that no repair can fix."""

    code: str
    message: str


class TokenUsage(Read, frozen=True, kw_only=True):
    """Tokens that models have used in the budget period."""

    period: Period
    input_tokens: int
    output_tokens: int
    tokens: int
    budget: int | None


class Diagnostics(Read, frozen=True, kw_only=True):
    """The health of a project; the score weighs .30 queue, .25 provider, .20 index, .15 storage, .10 mutation."""

    score: float
    status: Status
    """healthy from .8, degraded from .5; never healthy while extraction runs and the graph stays empty."""
    mode: Mode
    parts: HealthParts
    recommendations: list[Recommendation]
    warnings: list[HealthWarning]
    usage: TokenUsage


class Repaired(Read, frozen=True, kw_only=True):
    """The result of a repair."""

    action: Action
    success: bool
    affected: int
    message: str
