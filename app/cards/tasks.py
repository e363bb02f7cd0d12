"""Jobs of cards: rebuild the cards of an entity."""

from app.cards import queries
from app.cards.service import build_cards, store_cards
from app.jobs.registry import Job, JobContext, Registry

ATTEMPTS = 5


class _Changed(Exception):
    """Something was erased or restored while the cards were built."""


async def refresh_cards(job: Job) -> None:
    """Rebuild the cards of an entity in every scope and garden, and delete those without facts."""
    entity_id: str | None = job.payload.get("entity_id")
    if entity_id is None:
        # The entity was erased.
        return
    for attempt in range(1, ATTEMPTS + 1):
        rows = await job.db.query(job.scope, queries.READ_CARD_FACTS, {"entity": entity_id, "places": None})
        batch = build_cards(rows, entity_id=entity_id)
        if batch is None:
            return
        try:
            async with job.finishing() as session:
                if not await store_cards(session, batch):
                    raise _Changed
            return
        except _Changed:
            if attempt == ATTEMPTS:
                raise


def register_jobs(registry: Registry, _: JobContext) -> None:
    """Register the jobs of cards."""
    registry.register("card_refresh", refresh_cards)
