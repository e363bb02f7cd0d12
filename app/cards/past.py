"""Cards of other times: made of what was believed then, for who may read that to this day, and never kept."""

from datetime import datetime
from typing import Any
from uuid import UUID

import msgspec

from app.access import Principal, require_project
from app.cards import queries
from app.cards.building import Built, CardEntity, CardFact, build_card
from app.cards.schemas import CardList, CardRead, CardValue, ReplayedCard, ShownCard
from app.cards.service import card_not_found
from app.db.database import Database, Row
from app.facts.as_of import look_back
from app.facts.entities import service as entities
from app.facts.schemas import EntityBrief
from app.paging import Page
from app.read_context import reader
from app.tenancy.schemas import Visibility


class PastFact(CardFact, frozen=True, kw_only=True):
    """A fact of then, with the garden of its place."""

    garden_id: UUID | None


class MadeCard(msgspec.Struct, frozen=True, kw_only=True):
    """What the facts of one place make."""

    scope: Visibility
    owner_key: str
    garden_id: UUID | None
    built: Built


async def list_cards(
    db: Database,
    who: Principal,
    *,
    entity: str,
    scope: Visibility | None,
    valid_at: datetime | None,
    as_of: datetime | None,
    page: Page,
) -> CardList:
    """The cards of an entity as they would have read at two times, in the order of their places."""
    # For the right to look back alone: what a legal hold hides is in no card, not even for administrators.
    reader(who, as_of)
    meant = await entities.find_named(db, who, entity, "entity", as_of=as_of)
    if len(meant) > 1:
        raise entities.ambiguous(meant, "entity")
    if not meant:
        return CardList(cards=[], next_cursor=None)
    cards = await _make(db, who, entity_id=meant[0]["entity_id"], scope=scope, valid_at=valid_at, as_of=as_of)
    rows: list[Row] = [
        {"place": list(place), "card": card}
        for place, card in sorted(cards.items())
        if page.after is None or list(place) > page.after
    ]
    rows, next_cursor = page.cut(rows, key=lambda row: row["place"])
    return CardList(cards=[row["card"] for row in rows], next_cursor=next_cursor)


async def get_card(
    db: Database, who: Principal, *, card_id: UUID, valid_at: datetime | None, as_of: datetime | None
) -> CardRead:
    """One card as it would have read at two times; there is none where there was nothing to tell."""
    reader(who, as_of)
    place = {"tenant": who.tenant_id, "project": require_project(who), "card": str(card_id), "as_of": as_of}
    rows = await look_back(db, who, queries.CARD_PLACE, place)
    if not rows:
        raise card_not_found()
    (row,) = rows
    cards = await _make(
        db,
        who,
        entity_id=row["entity_id"],
        scope=row["scope"],
        owner=row["owner_key"],
        valid_at=valid_at,
        as_of=as_of,
    )
    if not cards:
        raise card_not_found()
    (card,) = cards.values()
    return card


async def replay_card(db: Database, who: Principal, *, shown: ShownCard, agent_id: str) -> ReplayedCard:
    """A card that this agent was shown, made again from what was believed when it was made."""
    row = await _read(
        db,
        who,
        entity_id=shown.entity_id,
        scope=shown.scope,
        owner=_owner_key(shown, agent_id),
        valid_at=None,
        as_of=shown.built_at,
    )
    told = ReplayedCard(
        card_id=shown.card_id,
        scope=shown.scope,
        garden_id=shown.garden_id,
        card_stale=shown.card_stale,
        built_at=shown.built_at,
        exists=False,
    )
    made = [] if row is None else _build(row, judged=shown.judged)
    if row is None or not made:
        return told
    built = made[0].built
    return msgspec.structs.replace(
        told,
        exists=True,
        entity=_brief(row),
        value=CardValue(v=built.content),
        facts=built.facts,
        omitted=built.omitted,
    )


def _owner_key(shown: ShownCard, agent_id: str) -> str:
    """Whose place it is, as the database writes it: the agent where it is private, and the garden."""
    owners = [agent_id] if shown.scope == "agent_private" else []
    return " ".join([*owners, *([] if shown.garden_id is None else [str(shown.garden_id)])])


async def _make(
    db: Database,
    who: Principal,
    *,
    entity_id: UUID,
    scope: Visibility | None,
    valid_at: datetime | None,
    as_of: datetime | None,
    owner: str | None = None,
) -> dict[tuple[str, str], CardRead]:
    """Cards by their places: scope and owner."""
    row = await _read(db, who, entity_id=entity_id, scope=scope, owner=owner, valid_at=valid_at, as_of=as_of)
    if row is None:
        return {}
    kept = {(card["scope"], card["owner_key"]): UUID(card["card_id"]) for card in row["kept"]}
    return {
        (made.scope, made.owner_key): CardRead(
            card_id=kept.get((made.scope, made.owner_key)),
            entity=_brief(row),
            value=CardValue(v=made.built.content),
            scope=made.scope,
            garden_id=made.garden_id,
            card_stale=False,
            facts=made.built.facts,
            omitted=made.built.omitted,
            built_at=row["known_at"],
        )
        for made in _build(row, judged=row["judged"])
    }


async def _read(
    db: Database,
    who: Principal,
    *,
    entity_id: UUID,
    scope: Visibility | None,
    owner: str | None,
    valid_at: datetime | None,
    as_of: datetime | None,
) -> Row | None:
    params: dict[str, Any] = {
        "tenant": who.tenant_id,
        "project": require_project(who),
        "entity": str(entity_id),
        "scope": scope,
        "owner": owner,
        "valid_at": valid_at,
        "as_of": as_of,
    }
    rows = await db.query(who, queries.PAST_CARD_FACTS, params)
    return rows[0] if rows else None


def _build(row: Row, *, judged: bool) -> list[MadeCard]:
    entity = CardEntity(canonical=row["canonical"], kind=row["kind"], aliases=row["aliases"])
    by_place: dict[tuple[str, str], list[PastFact]] = {}
    for fact in msgspec.json.decode(row["facts"], type=list[PastFact]):
        by_place.setdefault((fact.scope, fact.owner_key), []).append(fact)
    return [
        MadeCard(scope=scope, owner_key=owner_key, garden_id=facts[0].garden_id, built=built)  # type: ignore[arg-type]
        for (scope, owner_key), facts in by_place.items()
        if (built := build_card(entity, facts, judged=judged)) is not None
    ]


def _brief(row: Row) -> EntityBrief:
    return EntityBrief(entity_id=row["entity_id"], canonical=row["canonical"], kind=row["kind"])
