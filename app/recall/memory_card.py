"""The memory card beside the results of a recall about one entity."""

from uuid import UUID

import msgspec

from app.cards import service as cards
from app.cards.schemas import CardRead, ShownCard
from app.db.database import Database
from app.recall.request import CheckedRequest
from app.retrieval.packing import count_tokens


class CardResult(msgspec.Struct, frozen=True, kw_only=True):
    """What the cards of an entity contribute to a response."""

    card: CardRead | None = None
    stale: bool = False
    timed_out: bool = False
    """Whether a forced refresh took too long."""
    divergent: frozenset[str] = frozenset()
    """The ids of facts that changed since a stale card was built."""
    use_trust: bool = False
    """Whether the trust in sources counts."""

    def to_render(self, token_budget: int) -> str | None:
        """Return the card's text for a prompt, if it is up to date and fits into what is left of the budget."""
        if self.card is None or self.stale or count_tokens(self.card.value.v) > token_budget:
            return None
        return self.card.value.v

    def to_trace(self) -> ShownCard | None:
        """Return what a trace stores of the card."""
        card = self.card
        if card is None or card.card_id is None:
            return None
        return ShownCard(
            card_id=card.card_id,
            entity_id=card.entity.entity_id,
            scope=card.scope,
            garden_id=card.garden_id,
            built_at=card.built_at,
            card_stale=card.card_stale,
            judged=self.use_trust,
        )


async def find_card(
    db: Database, request: CheckedRequest, *, entity_id: str, use_trust: bool, max_age: float
) -> CardResult:
    """Return the card of an entity that the caller may read, refreshed first if the request asks for it."""
    if not request.is_present:
        # Stored cards describe the present only.
        return CardResult()
    # Cards are of the caller's project alone.
    who, scope = msgspec.structs.replace(request.context.who, reach=""), request.scope
    timed_out = False
    if request.options.force_refresh:
        found, timed_out = await cards.refresh_now(db, who, entity_id=UUID(entity_id), scope=scope, max_age=max_age)
    else:
        found = await cards.find_cards(db, who, entity_id=UUID(entity_id), scope=scope, max_age=max_age)
    if not found:
        return CardResult(stale=timed_out, timed_out=timed_out)
    # Of several cards, the one that everybody in the project may read.
    first = min(found, key=lambda card: (card.read.scope != "project_shared", card.read.garden_id is not None))
    return CardResult(
        card=first.read,
        stale=first.stale,
        timed_out=timed_out,
        divergent=frozenset(str(fact) for card in found if card.stale for fact in card.divergent),
        use_trust=use_trust,
    )
