"""HTTP of memory cards."""

from typing import Annotated, Any, cast
from uuid import UUID

from litestar import Router, get
from litestar.params import FromPath, QueryParameter

from app.errors import BadRequest
from app.recall.cards import service
from app.recall.cards.schemas import CardList, CardRead
from app.tenancy.schemas import SYNONYMS, Visibility, VisibilityIn
from app.web.auth import Access
from app.web.pages import Page
from app.web.requests import Cursor, Cursors, Db, Limit, Who

READ = Access(work="read", scopes=("facts:read",))


@get("/cards", opt={"access": READ}, summary="List memory cards", tags=["recall"])
async def list_cards(
    db: Db,
    who: Who,
    cursors: Cursors,
    entity: Annotated[
        str | None, QueryParameter(max_length=512, description="Only of this entity: name, alias, URI or id.")
    ] = None,
    visibility: Annotated[VisibilityIn | None, QueryParameter(name="scope", description="Only of this scope.")] = None,
    force_refresh: Annotated[
        bool, QueryParameter(description="Make the entity's cards anew first, within half a second.")
    ] = False,
    limit: Limit = 50,
    cursor: Cursor = None,
) -> CardList:
    """What is known of entities at present, written up: one card for each entity, scope and garden, in the order of the
    entities. A card whose facts changed since is marked `card_stale` and made anew in the background; so is one that
    is asked for by its entity and not there yet. For other times ask for facts."""
    if force_refresh and entity is None:
        raise BadRequest("force_refresh: name the entity whose cards are to be made.")
    scope = cast(Visibility | None, SYNONYMS.get(visibility or "", cast(Visibility | None, visibility)))
    page = Page(cursors, who, "cards", limit=limit, cursor=cursor, entity=entity, scope=scope)
    return await service.list_cards(db, who, entity=entity, scope=scope, force_refresh=force_refresh, page=page)


@get("/cards/{card_id:uuid}", opt={"access": READ}, summary="One memory card", tags=["recall"])
async def get_card(db: Db, who: Who, card_id: FromPath[UUID]) -> CardRead:
    """404 when it is unknown, or of a scope or garden the caller may not read."""
    return await service.get_card(db, who, card_id=card_id)


handlers: list[Any] = [list_cards, get_card]
router = Router(path="/", route_handlers=handlers)
