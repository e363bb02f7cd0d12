"""The jobs of facts."""

from app.facts.upkeep.decay import decay
from app.facts.upkeep.sources import refresh_trust
from app.jobs.registry import JobContext, Registry


def register_jobs(registry: Registry, _: JobContext) -> None:
    """Register decay of facts and the refresh of trust in sources."""
    registry.register("decay", decay)
    registry.register("trust", refresh_trust)
