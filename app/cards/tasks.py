"""The job that makes the cards of an entity anew."""

from app.cards import queries
from app.cards.service import keep_cards, make_cards
from app.jobs.registry import Job, JobContext, Registry

ATTEMPTS = 5


class _Changed(Exception):
    """Something was forgotten or restored while the cards were being made."""


async def refresh_cards(job: Job) -> None:
    """Makes the cards of an entity in every scope and garden, and removes those of which nothing is left to tell."""
    entity_id: str | None = job.payload.get("entity_id")
    if entity_id is None:
        # It was erased.
        return
    for attempt in range(1, ATTEMPTS + 1):
        rows = await job.db.query(job.scope, queries.READ_CARD_FACTS, {"entity": entity_id, "places": None})
        material = make_cards(rows, entity_id=entity_id)
        if material is None:
            return
        try:
            async with job.finishing() as session:
                if not await keep_cards(session, material):
                    raise _Changed
            return
        except _Changed:
            if attempt == ATTEMPTS:
                raise


def register_jobs(registry: Registry, _: JobContext) -> None:
    """Register the jobs of cards."""
    registry.register("card_refresh", refresh_cards)
