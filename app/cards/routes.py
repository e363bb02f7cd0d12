"""HTTP of memory cards."""

from typing import Annotated, Any, cast
from uuid import UUID

from litestar import Router, get
from litestar.di import NamedDependency
from litestar.params import FromPath, QueryParameter, SkipValidation

from app.cards import history, service
from app.cards.schemas import CardList, CardRead
from app.errors import BadRequest
from app.facts.as_of import parse_as_of
from app.inputs import parse_moment
from app.paging import Page
from app.read_context import ReadContext
from app.tenancy.schemas import SYNONYMS, Visibility, VisibilityIn
from app.web.auth import Access
from app.web.requests import AsOf, Cursor, Cursors, Db, IncludeTotal, Limit, Who

READ = Access(work="read", scopes=("facts:read",))
MaxAge = NamedDependency[SkipValidation[float]]
ValidAt = Annotated[
    str | None,
    QueryParameter(max_length=40, description="Built from what was valid at this time; default now, or as_of."),
]


@get("/cards", opt={"access": READ}, summary="List memory cards", tags=["recall"])
async def list_cards(
    db: Db,
    who: Who,
    cursors: Cursors,
    card_max_age: MaxAge,
    entity: Annotated[
        str | None, QueryParameter(max_length=512, description="Only cards of this entity: name, alias, URI or id.")
    ] = None,
    visibility: Annotated[
        VisibilityIn | None, QueryParameter(name="scope", description="Only cards of this scope.")
    ] = None,
    force_refresh: Annotated[
        bool, QueryParameter(description="Rebuild the entity's cards first, within half a second.")
    ] = False,
    as_of: AsOf = None,
    valid_at: ValidAt = None,
    limit: Limit = 50,
    cursor: Cursor = None,
    include_total: IncludeTotal = False,
) -> CardList:
    """Returns one card for each entity, scope and garden, ordered by entity. A card whose facts changed since it was
    built is marked `card_stale` and rebuilt in the background; a missing card of the requested entity is built too.
    With `as_of` or `valid_at` the cards of one entity are built from what was recorded and valid then; they are not
    stored and never stale."""
    if force_refresh and entity is None:
        raise BadRequest("force_refresh: requires entity, whose cards are rebuilt.")
    scope = cast(Visibility | None, SYNONYMS.get(visibility or "", cast(Visibility | None, visibility)))
    known, valid = parse_as_of(as_of), parse_moment(valid_at, "valid_at")
    filters: dict[str, Any] = {"entity": entity, "scope": scope, "as_of": known, "valid_at": valid}
    page = Page(cursors, who, "cards", limit=limit, cursor=cursor, include_total=include_total, **filters)
    if known is not None or valid is not None:
        if entity is None:
            raise BadRequest(
                "entity: required with as_of or valid_at; cards at another time are built for one entity at a time."
            )
        context = ReadContext.of(who, valid_at=valid, as_of=known, scope=scope)
        return await history.list_cards(db, who, context=context, entity=entity, page=page)
    return await service.list_cards(
        db, who, entity=entity, scope=scope, force_refresh=force_refresh, page=page, max_age=card_max_age
    )


@get("/cards/{card_id:uuid}", opt={"access": READ}, summary="Read a memory card", tags=["recall"])
async def get_card(
    db: Db,
    who: Who,
    card_max_age: MaxAge,
    card_id: FromPath[UUID],
    as_of: AsOf = None,
    valid_at: ValidAt = None,
) -> CardRead:
    """Returns 404 when the card is unknown, or of a scope or garden the caller may not read; with `as_of` or `valid_at`
    also when it had no facts then."""
    known, valid = parse_as_of(as_of), parse_moment(valid_at, "valid_at")
    if known is not None or valid is not None:
        context = ReadContext.of(who, valid_at=valid, as_of=known)
        return await history.get_card(db, who, context=context, card_id=card_id)
    return await service.get_card(db, who, card_id=card_id, max_age=card_max_age)


handlers: list[Any] = [list_cards, get_card]
router = Router(path="/", route_handlers=handlers)
