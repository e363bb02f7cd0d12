"""HTTP of memory cards."""

from typing import Annotated, Any, cast
from uuid import UUID

from litestar import Router, get
from litestar.params import FromPath, QueryParameter

from app.cards import past, service
from app.cards.schemas import CardList, CardRead
from app.errors import BadRequest
from app.facts.as_of import parse_as_of
from app.inputs import parse_moment
from app.paging import Page
from app.tenancy.schemas import SYNONYMS, Visibility, VisibilityIn
from app.web.auth import Access
from app.web.requests import AsOf, Cursor, Cursors, Db, Limit, Who

READ = Access(work="read", scopes=("facts:read",))
ValidAt = Annotated[
    str | None, QueryParameter(max_length=40, description="Of what was valid at this time; now, or as_of, when absent.")
]


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
    as_of: AsOf = None,
    valid_at: ValidAt = None,
    limit: Limit = 50,
    cursor: Cursor = None,
) -> CardList:
    """What is known of entities, written up: one card for each entity, scope and garden, in the order of the entities.
    A card whose facts changed since is marked `card_stale` and made anew in the background; so is one that is asked for
    by its entity and not there yet. With `as_of` or `valid_at` the cards of one entity are made of what was believed
    and valid then: they are not kept, and never stale."""
    if force_refresh and entity is None:
        raise BadRequest("force_refresh: name the entity whose cards are to be made.")
    scope = cast(Visibility | None, SYNONYMS.get(visibility or "", cast(Visibility | None, visibility)))
    known, valid = parse_as_of(as_of), parse_moment(valid_at, "valid_at")
    filters = {"entity": entity, "scope": scope, "as_of": known, "valid_at": valid}
    page = Page(cursors, who, "cards", limit=limit, cursor=cursor, **filters)
    if known is not None or valid is not None:
        if entity is None:
            raise BadRequest("entity: name it; cards of another time are made for one entity at a time.")
        return await past.list_cards(db, who, entity=entity, scope=scope, valid_at=valid, as_of=known, page=page)
    return await service.list_cards(db, who, entity=entity, scope=scope, force_refresh=force_refresh, page=page)


@get("/cards/{card_id:uuid}", opt={"access": READ}, summary="One memory card", tags=["recall"])
async def get_card(db: Db, who: Who, card_id: FromPath[UUID], as_of: AsOf = None, valid_at: ValidAt = None) -> CardRead:
    """404 when it is unknown, or of a scope or garden the caller may not read; with `as_of` or `valid_at` also when
    there was nothing to tell then."""
    known, valid = parse_as_of(as_of), parse_moment(valid_at, "valid_at")
    if known is not None or valid is not None:
        return await past.get_card(db, who, card_id=card_id, valid_at=valid, as_of=known)
    return await service.get_card(db, who, card_id=card_id)


handlers: list[Any] = [list_cards, get_card]
router = Router(path="/", route_handlers=handlers)
