"""Use cases of memory cards: find, list, make anew at once or by a job.

What is kept tells of the present alone; cards of other times are made in `past` as they are asked for.
"""

import asyncio
import time
from collections.abc import AsyncGenerator, Iterable
from contextlib import asynccontextmanager
from typing import Any
from uuid import UUID

import msgspec
import psycopg
from msgspec import UNSET
from sqlalchemy.exc import DBAPIError

from app.access import Principal, new_id, require_project
from app.cards import queries
from app.cards.building import CardEntity, CardFact, build_card, render_opening
from app.cards.schemas import CardList, CardRead, CardValue
from app.db.database import Database, Row, Session
from app.errors import NotFound
from app.facts.entities import service as entities
from app.facts.schemas import EntityBrief
from app.jobs.queue import NewJob, enqueue_all
from app.paging import Page
from app.tenancy.schemas import Visibility

MAX_AGE_SECONDS = 86_400.0
FORCE_SECONDS = 0.45
"""How long a caller waits for a card to be made anew: with the reading afterwards, half a second."""
# How much later a statement is given up that the database did not stop.
GRACE_SECONDS = 0.03
MAX_OF_ENTITY = 1000
ATTEMPTS = 3


class Card(msgspec.Struct, frozen=True, kw_only=True):
    """A card as it stands against the facts of this moment."""

    read: CardRead
    stale: bool
    divergent: list[UUID]
    """Live facts that were written, weighed, begun or disputed since it was made, the latest first."""


class Material(msgspec.Struct, frozen=True, kw_only=True):
    """Cards that were made and are not kept yet; for which places, of what was so when."""

    entity_id: str
    read_at: Any
    places: str | None
    cards: str


def card_not_found() -> NotFound:
    """The one answer for a card that is unknown, hidden or of another tenant."""
    return NotFound("There is no such card.", code="card_not_found")


def present_card(row: Row) -> Card:
    """A card as it goes out; stale as soon as it does not tell exactly what is so."""
    entity = CardEntity(canonical=row["canonical"], kind=row["kind"], aliases=row["aliases"])
    stale = (
        row["aged"]
        or row["changed"]
        or row["told"] != row["facts"] + row["omitted"]
        or not row["content"].startswith(render_opening(entity))
    )
    read = CardRead(
        card_id=row["card_id"],
        entity=EntityBrief(entity_id=row["entity_id"], canonical=row["canonical"], kind=row["kind"]),
        value=CardValue(v=row["content"]),
        scope=row["scope"],
        garden_id=row["garden_id"],
        card_stale=stale,
        facts=row["facts"],
        omitted=row["omitted"],
        built_at=row["built_at"],
    )
    return Card(read=read, stale=stale, divergent=list(row["divergent"]))


async def find_cards(
    db: Database,
    who: Principal,
    *,
    entity_id: UUID,
    scope: Visibility | None = None,
    max_age: float = MAX_AGE_SECONDS,
) -> list[Card]:
    """The cards of an entity that the caller may read; what is stale or missing is queued and not waited for."""
    asked: dict[str, Any] = {"entity": str(entity_id), **({} if scope is None else {"scope": scope})}
    return (await _read(db, who, asked=asked, limit=MAX_OF_ENTITY, max_age=max_age))[0]


async def refresh_now(
    db: Database,
    who: Principal,
    *,
    entity_id: UUID,
    scope: Visibility | None = None,
    budget: float = FORCE_SECONDS,
    max_age: float = MAX_AGE_SECONDS,
) -> tuple[list[Card], bool]:
    """The cards of an entity, made anew within so many seconds, and whether that took too long: then they are as they
    were, and told as stale."""
    done = await _rebuild(db, who, entity_id=entity_id, scope=scope, budget=budget)
    cards = await find_cards(db, who, entity_id=entity_id, scope=scope, max_age=max_age)
    return (cards if done else [_as_stale(card) for card in cards]), not done


async def list_cards(
    db: Database,
    who: Principal,
    *,
    entity: str | None,
    scope: Visibility | None,
    page: Page,
    force_refresh: bool = False,
    max_age: float = MAX_AGE_SECONDS,
) -> CardList:
    """Cards the caller may read, in the order of their entities; a filter by an unknown name finds nothing."""
    asked: dict[str, Any] = {} if scope is None else {"scope": scope}
    done = True
    if entity is not None:
        meant = await entities.find_named(db, who, entity, "entity")
        if len(meant) > 1:
            raise entities.ambiguous(meant, "entity")
        if not meant:
            return CardList(cards=[], next_cursor=None)
        asked["entity"] = str(meant[0]["entity_id"])
        if force_refresh and page.after is None:
            entity_id: UUID = meant[0]["entity_id"]
            done = await _rebuild(db, who, entity_id=entity_id, scope=scope, budget=FORCE_SECONDS)
    if page.after is not None:
        asked |= {"after": page.after[0], "after_id": page.after[1]}
    cards, next_cursor = await _read(db, who, asked=asked, limit=page.limit, max_age=max_age, page=page)
    return CardList(
        cards=[(card if done else _as_stale(card)).read for card in cards],
        next_cursor=next_cursor,
        force_refresh_timeout=UNSET if done else True,
    )


async def get_card(db: Database, who: Principal, *, card_id: UUID, max_age: float = MAX_AGE_SECONDS) -> CardRead:
    """One card."""
    cards, _ = await _read(db, who, asked={"card": str(card_id)}, limit=1, max_age=max_age)
    if not cards:
        raise card_not_found()
    return cards[0].read


async def request_cards(db: Database, who: Principal, *, entity_ids: Iterable[UUID]) -> None:
    """Queues the cards of these entities to be made, unless they are queued already."""
    jobs = [
        NewJob(kind="card_refresh", payload={"entity_id": str(entity_id)}, dedupe_key=str(entity_id))
        for entity_id in sorted(entity_ids)
    ]
    async with db.tenant(who) as session:
        await enqueue_all(session, who, jobs=jobs)


def make_cards(rows: list[Row], *, entity_id: str, places: str | None = None) -> Material | None:
    """The cards of an entity, from what `READ_CARD_FACTS` answered for these places; None when there is no entity."""
    if not rows:
        return None
    row = rows[0]
    entity = CardEntity(canonical=row["canonical"], kind=row["kind"], aliases=row["aliases"])
    by_place: dict[tuple[str, str], list[CardFact]] = {}
    for fact in msgspec.json.decode(row["facts"], type=list[CardFact]):
        by_place.setdefault((fact.scope, fact.owner_key), []).append(fact)
    made = [
        {"card_id": new_id(), "scope": scope, "owner_key": owner_key, **msgspec.structs.asdict(card)}
        for (scope, owner_key), facts in sorted(by_place.items())
        if (card := build_card(entity, facts, judged=row["judged"])) is not None
    ]
    return Material(
        entity_id=entity_id, read_at=row["read_at"], places=places, cards=msgspec.json.encode(made).decode()
    )


async def keep_cards(session: Session, material: Material) -> bool:
    """Keeps cards that were made; false when something was forgotten or restored since, and they must be made again."""
    params = {
        "entity": material.entity_id,
        "read_at": material.read_at,
        "places": material.places,
        "cards": material.cards,
    }
    (row,) = await session.query(queries.STORE_CARDS, params)
    return row["refused"] != "changed"


async def _read(
    db: Database, who: Principal, *, asked: dict[str, Any], limit: int, max_age: float, page: Page | None = None
) -> tuple[list[Card], str | None]:
    params = {
        **asked,
        "tenant": who.tenant_id,
        "project": require_project(who),
        "max_age": max_age,
        "limit": limit + 1,
    }
    found = await db.query(who, queries.select_cards(set(asked) - {"after_id"}), params)
    rows, next_cursor = [row for row in found if row["card_id"] is not None], None
    if page is not None:
        rows, next_cursor = page.cut(rows, key=lambda row: [str(row["entity_id"]), str(row["card_id"])])
    cards = [present_card(row) for row in rows]
    wanted = {card.read.entity.entity_id for card in cards if card.stale}
    if "entity" in asked and found[0]["missing"]:
        wanted.add(UUID(asked["entity"]))
    if wanted:
        await request_cards(db, who, entity_ids=wanted)
    return cards, next_cursor


def _as_stale(card: Card) -> Card:
    read = msgspec.structs.replace(card.read, card_stale=True)
    return msgspec.structs.replace(card, read=read, stale=True)


async def _rebuild(db: Database, who: Principal, *, entity_id: UUID, scope: Visibility | None, budget: float) -> bool:
    """Makes the cards anew that the caller may read, all or none; false when there was not time enough."""
    ends = time.monotonic() + budget
    try:
        async with asyncio.timeout(budget + GRACE_SECONDS):
            for _ in range(ATTEMPTS):
                if await _rebuild_once(db, who, entity_id=entity_id, scope=scope, ends=ends):
                    return True
    except TimeoutError:
        return False
    except DBAPIError as problem:
        if not isinstance(problem.orig, psycopg.errors.QueryCanceled):
            raise
    return False


async def _rebuild_once(
    db: Database, who: Principal, *, entity_id: UUID, scope: Visibility | None, ends: float
) -> bool:
    place = {"tenant": who.tenant_id, "project": require_project(who), "entity": str(entity_id), "scope": scope}
    async with _hurried(db, who, ends) as session:
        # What the caller may not read is not made at their wish either.
        places = msgspec.json.encode(await session.query(queries.PLACES, place)).decode()
        rows = await session.query(queries.READ_CARD_FACTS, {"entity": str(entity_id), "places": places})
    material = make_cards(rows, entity_id=str(entity_id), places=places)
    if material is None:
        return True
    # A transaction of its own: nobody who writes about the entity waits while a card is being made.
    async with _hurried(db, who, ends) as session:
        return await keep_cards(session, material)


@asynccontextmanager
async def _hurried(db: Database, who: Principal, ends: float) -> AsyncGenerator[Session]:
    async with db.tenant(who) as session:
        await session.execute(queries.limit_statements(max(1, int((ends - time.monotonic()) * 1000))))
        yield session
