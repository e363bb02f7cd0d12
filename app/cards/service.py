"""Use cases of memory cards: find, list, and rebuild at once or by a job.

Stored cards describe the present; cards at another time are built on request in `history`.
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
from app.cards.builder import CardEntity, CardFact, build_card, render_opening
from app.cards.schemas import CardList, CardRead, CardValue
from app.db.counts import COUNT_LIMIT
from app.db.database import Database, Row, Session
from app.errors import NotFound
from app.facts.entities import service as entities
from app.facts.schemas import EntityBrief
from app.jobs.queue import NewJob, enqueue_all
from app.paging import Page
from app.tenancy.schemas import Visibility

MAX_AGE_SECONDS = 86_400.0
FORCE_SECONDS = 0.45
"""How long a caller waits for a forced rebuild; with the read after it, half a second."""
# How much longer to wait for the database to cancel a statement.
GRACE_SECONDS = 0.03
MAX_PER_ENTITY = 1000
ATTEMPTS = 3


class Card(msgspec.Struct, frozen=True, kw_only=True):
    """A stored card compared with the current facts."""

    read: CardRead
    stale: bool
    divergent: list[UUID]
    """Current facts that changed since it was built, the latest first."""


class CardBatch(msgspec.Struct, frozen=True, kw_only=True):
    """Built cards that are not stored yet, with the time their facts were read at."""

    entity_id: str
    read_at: Any
    owners: str | None
    """The scopes and owners that were built, as JSON; None for all."""
    cards: str


def card_not_found() -> NotFound:
    """Return the error for a card that is unknown, hidden or of another tenant."""
    return NotFound("There is no such card.", code="card_not_found")


def present_card(row: Row) -> Card:
    """Return a card from its row; stale when it differs from what would be built now."""
    entity = CardEntity(canonical=row["canonical"], kind=row["kind"], aliases=row["aliases"])
    stale = (
        row["aged"]
        or row["changed"]
        or row["shown"] != row["facts"] + row["omitted"]
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
    """Return the cards of an entity that the caller may read; queue a rebuild of stale or missing ones."""
    filters: dict[str, Any] = {"entity": str(entity_id), **({} if scope is None else {"scope": scope})}
    return (await _read(db, who, filters=filters, limit=MAX_PER_ENTITY, max_age=max_age))[0]


async def refresh_now(
    db: Database,
    who: Principal,
    *,
    entity_id: UUID,
    scope: Visibility | None = None,
    budget: float = FORCE_SECONDS,
    max_age: float = MAX_AGE_SECONDS,
) -> tuple[list[Card], bool]:
    """Rebuild the cards of an entity and return them, and whether `budget` seconds were exceeded: then as stale."""
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
    """Return cards the caller may read, ordered by entity; none for an unknown name."""
    filters: dict[str, Any] = {} if scope is None else {"scope": scope}
    done = True
    if entity is not None:
        found = await entities.find_named(db, who, entity, "entity")
        if len(found) > 1:
            raise entities.ambiguous(found, "entity")
        if not found:
            return CardList(cards=[], next_cursor=None, total=page.total_of(0))
        filters["entity"] = str(found[0]["entity_id"])
        if force_refresh and page.after is None:
            entity_id: UUID = found[0]["entity_id"]
            done = await _rebuild(db, who, entity_id=entity_id, scope=scope, budget=FORCE_SECONDS)
    after = {} if page.after is None else {"after": page.after[0], "after_id": page.after[1]}
    cards, next_cursor = await _read(
        db, who, filters={**filters, **after}, limit=page.limit, max_age=max_age, page=page
    )
    place = {**filters, "tenant": who.tenant_id, "project": require_project(who), "limit": COUNT_LIMIT}
    return CardList(
        cards=[(card if done else _as_stale(card)).read for card in cards],
        next_cursor=next_cursor,
        total=await page.count(lambda: db.query(who, queries.count_cards(set(filters)), place)),
        force_refresh_timeout=UNSET if done else True,
    )


async def get_card(db: Database, who: Principal, *, card_id: UUID, max_age: float = MAX_AGE_SECONDS) -> CardRead:
    """Return a card or raise NotFound."""
    cards, _ = await _read(db, who, filters={"card": str(card_id)}, limit=1, max_age=max_age)
    if not cards:
        raise card_not_found()
    return cards[0].read


async def request_cards(db: Database, who: Principal, *, entity_ids: Iterable[UUID]) -> None:
    """Queue a rebuild of the cards of these entities, unless queued already."""
    jobs = [
        NewJob(kind="card_refresh", payload={"entity_id": str(entity_id)}, dedupe_key=str(entity_id))
        for entity_id in sorted(entity_ids)
    ]
    async with db.tenant(who) as session:
        await enqueue_all(session, who, jobs=jobs)


def build_cards(rows: list[Row], *, entity_id: str, owners: str | None = None) -> CardBatch | None:
    """Build the cards of an entity from the rows of READ_CARD_FACTS; return None when the entity is gone."""
    if not rows:
        return None
    row = rows[0]
    entity = CardEntity(canonical=row["canonical"], kind=row["kind"], aliases=row["aliases"])
    by_owner: dict[tuple[str, str], list[CardFact]] = {}
    for fact in msgspec.json.decode(row["facts"], type=list[CardFact]):
        by_owner.setdefault((fact.scope, fact.owner_key), []).append(fact)
    built = [
        {"card_id": new_id(), "scope": scope, "owner_key": owner_key, **msgspec.structs.asdict(card)}
        for (scope, owner_key), facts in sorted(by_owner.items())
        if (card := build_card(entity, facts, use_trust=row["judged"])) is not None
    ]
    return CardBatch(
        entity_id=entity_id, read_at=row["read_at"], owners=owners, cards=msgspec.json.encode(built).decode()
    )


async def store_cards(session: Session, batch: CardBatch) -> bool:
    """Store built cards; return False when something was erased or restored since and they must be built again."""
    params = {
        "entity": batch.entity_id,
        "read_at": batch.read_at,
        "places": batch.owners,
        "cards": batch.cards,
    }
    (row,) = await session.query(queries.STORE_CARDS, params)
    return row["refused"] != "changed"


async def _read(
    db: Database, who: Principal, *, filters: dict[str, Any], limit: int, max_age: float, page: Page | None = None
) -> tuple[list[Card], str | None]:
    params = {
        **filters,
        "tenant": who.tenant_id,
        "project": require_project(who),
        "max_age": max_age,
        "limit": limit + 1,
    }
    found = await db.query(who, queries.select_cards(set(filters) - {"after_id"}), params)
    rows, next_cursor = [row for row in found if row["card_id"] is not None], None
    if page is not None:
        rows, next_cursor = page.cut(rows, key=lambda row: [str(row["entity_id"]), str(row["card_id"])])
    cards = [present_card(row) for row in rows]
    to_rebuild = {card.read.entity.entity_id for card in cards if card.stale}
    if "entity" in filters and found[0]["missing"]:
        to_rebuild.add(UUID(filters["entity"]))
    if to_rebuild:
        await request_cards(db, who, entity_ids=to_rebuild)
    return cards, next_cursor


def _as_stale(card: Card) -> Card:
    read = msgspec.structs.replace(card.read, card_stale=True)
    return msgspec.structs.replace(card, read=read, stale=True)


async def _rebuild(db: Database, who: Principal, *, entity_id: UUID, scope: Visibility | None, budget: float) -> bool:
    """Rebuild all cards that the caller may read, or none; return False when time ran out."""
    deadline = time.monotonic() + budget
    try:
        async with asyncio.timeout(budget + GRACE_SECONDS):
            for _ in range(ATTEMPTS):
                if await _rebuild_once(db, who, entity_id=entity_id, scope=scope, deadline=deadline):
                    return True
    except TimeoutError:
        return False
    except DBAPIError as problem:
        if not isinstance(problem.orig, psycopg.errors.QueryCanceled):
            raise
    return False


async def _rebuild_once(
    db: Database, who: Principal, *, entity_id: UUID, scope: Visibility | None, deadline: float
) -> bool:
    params = {"tenant": who.tenant_id, "project": require_project(who), "entity": str(entity_id), "scope": scope}
    async with _limited(db, who, deadline) as session:
        # A caller can only force a rebuild of what they may read.
        owners = msgspec.json.encode(await session.query(queries.OWNERS, params)).decode()
        rows = await session.query(queries.READ_CARD_FACTS, {"entity": str(entity_id), "places": owners})
    batch = build_cards(rows, entity_id=str(entity_id), owners=owners)
    if batch is None:
        return True
    # In a transaction of its own, so that writers about the entity don't wait while a card is built.
    async with _limited(db, who, deadline) as session:
        return await store_cards(session, batch)


@asynccontextmanager
async def _limited(db: Database, who: Principal, deadline: float) -> AsyncGenerator[Session]:
    async with db.tenant(who) as session:
        await session.execute(queries.limit_statements(max(1, int((deadline - time.monotonic()) * 1000))))
        yield session
