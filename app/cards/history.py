"""Cards at another time, built on request from facts on record then that the caller may read now; never stored."""

from uuid import UUID

import msgspec

from app.access import Principal
from app.cards import queries
from app.cards.builder import BuiltCard, CardEntity, CardFact, build_card
from app.cards.schemas import CardList, CardRead, CardValue, ReplayedCard, ShownCard
from app.cards.service import card_not_found
from app.db.database import Database, Row
from app.facts.as_of import look_back
from app.facts.entities import service as entities
from app.facts.schemas import EntityBrief
from app.paging import Page
from app.read_context import ReadContext
from app.tenancy.schemas import Visibility


class PastFact(CardFact, frozen=True, kw_only=True):
    """A fact at that time, with its garden."""

    garden_id: UUID | None


class PastCard(msgspec.Struct, frozen=True, kw_only=True):
    """The card of one scope and owner at that time."""

    scope: Visibility
    owner_key: str
    garden_id: UUID | None
    built: BuiltCard


async def list_cards(
    db: Database,
    who: Principal,
    *,
    context: ReadContext,
    entity: str,
    page: Page,
) -> CardList:
    """Return the cards of an entity at the times of the context, ordered by scope and owner."""
    # As `who`, not `context.who`: what a legal hold hides is in no card, not even for administrators.
    found = await entities.find_named(db, who, entity, "entity", as_of=context.as_of)
    if len(found) > 1:
        raise entities.ambiguous(found, "entity")
    if not found:
        return CardList(cards=[], next_cursor=None, total=page.total_of(0))
    cards = await _build_cards(db, who, context, entity_id=found[0]["entity_id"])
    rows: list[Row] = [
        {"key": list(key), "card": card}
        for key, card in sorted(cards.items())
        if page.after is None or list(key) > page.after
    ]
    rows, next_cursor = page.cut(rows, key=lambda row: row["key"])
    return CardList(cards=[row["card"] for row in rows], next_cursor=next_cursor, total=page.total_of(len(cards)))


async def get_card(db: Database, who: Principal, *, context: ReadContext, card_id: UUID) -> CardRead:
    """Return a card at the times of the context, or raise NotFound when it had no facts then."""
    rows = await look_back(db, who, queries.CARD_OWNER, {**context.parameters(), "card": str(card_id)})
    if not rows:
        raise card_not_found()
    (row,) = rows
    context = msgspec.structs.replace(context, scope=row["scope"])
    cards = await _build_cards(db, who, context, entity_id=row["entity_id"], owner=row["owner_key"])
    if not cards:
        raise card_not_found()
    (card,) = cards.values()
    return card


async def replay_card(db: Database, who: Principal, *, shown: ShownCard, agent_id: str) -> ReplayedCard:
    """Return a card that was shown to this agent, built again from the facts at the time it was built."""
    # The context is not checked again: the caller was allowed to read the trace at its time.
    context = ReadContext(who=who, as_of=shown.built_at, scope=shown.scope)
    row = await _read_facts(db, who, context, entity_id=shown.entity_id, owner=_owner_key(shown, agent_id))
    replayed = ReplayedCard(
        card_id=shown.card_id,
        scope=shown.scope,
        garden_id=shown.garden_id,
        card_stale=shown.card_stale,
        built_at=shown.built_at,
        exists=False,
    )
    cards = [] if row is None else _build(row, use_trust=shown.judged)
    if row is None or not cards:
        return replayed
    built = cards[0].built
    return msgspec.structs.replace(
        replayed,
        exists=True,
        entity=_brief(row),
        value=CardValue(v=built.content),
        facts=built.facts,
        omitted=built.omitted,
    )


def _owner_key(shown: ShownCard, agent_id: str) -> str:
    """Return the owner key as the database writes it: the agent of a private card, then the garden."""
    owners = [agent_id] if shown.scope == "agent_private" else []
    return " ".join([*owners, *([] if shown.garden_id is None else [str(shown.garden_id)])])


async def _build_cards(
    db: Database, who: Principal, context: ReadContext, *, entity_id: UUID, owner: str | None = None
) -> dict[tuple[str, str], CardRead]:
    """Return cards by scope and owner."""
    row = await _read_facts(db, who, context, entity_id=entity_id, owner=owner)
    if row is None:
        return {}
    stored = {(card["scope"], card["owner_key"]): UUID(card["card_id"]) for card in row["stored"]}
    return {
        (card.scope, card.owner_key): CardRead(
            card_id=stored.get((card.scope, card.owner_key)),
            entity=_brief(row),
            value=CardValue(v=card.built.content),
            scope=card.scope,
            garden_id=card.garden_id,
            card_stale=False,
            facts=card.built.facts,
            omitted=card.built.omitted,
            built_at=row["known_at"],
        )
        for card in _build(row, use_trust=row["use_trust"])
    }


async def _read_facts(
    db: Database, who: Principal, context: ReadContext, *, entity_id: UUID, owner: str | None
) -> Row | None:
    params = {**context.parameters(), "entity": str(entity_id), "owner": owner}
    rows = await db.query(who, queries.PAST_CARD_FACTS, params)
    return rows[0] if rows else None


def _build(row: Row, *, use_trust: bool) -> list[PastCard]:
    entity = CardEntity(canonical=row["canonical"], kind=row["kind"], aliases=row["aliases"])
    by_owner: dict[tuple[str, str], list[PastFact]] = {}
    for fact in msgspec.json.decode(row["facts"], type=list[PastFact]):
        by_owner.setdefault((fact.scope, fact.owner_key), []).append(fact)
    return [
        PastCard(scope=scope, owner_key=owner_key, garden_id=facts[0].garden_id, built=built)  # type: ignore[arg-type]
        for (scope, owner_key), facts in by_owner.items()
        if (built := build_card(entity, facts, use_trust=use_trust)) is not None
    ]


def _brief(row: Row) -> EntityBrief:
    return EntityBrief(entity_id=row["entity_id"], canonical=row["canonical"], kind=row["kind"])
