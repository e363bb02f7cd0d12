"""The jobs of facts."""

from app.facts.decay.service import run_decay_job
from app.facts.entities.service import run_merge_job
from app.facts.sources.service import refresh_trust
from app.jobs.registry import JobContext, Registry


def register_jobs(registry: Registry, _: JobContext) -> None:
    """Register decay of facts, the refresh of trust in sources, and merges of entities with many facts."""
    registry.register("decay", run_decay_job)
    registry.register("trust", refresh_trust)
    registry.register("entity_merge", run_merge_job)
