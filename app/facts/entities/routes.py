"""HTTP of entities."""

from typing import Annotated, Any
from uuid import UUID

from litestar import Response, Router, get, post
from litestar.params import FromPath, JSONBody, QueryParameter

from app.access import as_user
from app.facts.as_of import parse_as_of
from app.facts.entities import service
from app.facts.schemas import (
    AliasCreate,
    AliasCreated,
    EntityCreate,
    EntityList,
    EntityMerge,
    EntityMerged,
    EntityRead,
    EntityWritten,
    MergeAccepted,
)
from app.inputs import parse_moment
from app.paging import Page
from app.read_context import ReadContext
from app.web.auth import Access
from app.web.reference import also
from app.web.requests import AsOf, Cursor, Cursors, Db, HoldDenied, Idempotent, IncludeTotal, Limit, Who, respond

READ = Access(work="read", scopes=("facts:read",))
WRITE = Access(work="write", scopes=("facts:write",))
CREATE = Access(work="write", scopes=("facts:write",), user_in_body=True)
ValidAt = Annotated[
    str | None,
    QueryParameter(max_length=40, description="Accepted as in other reads; entities have no validity of their own."),
]


@post(
    "/entities",
    opt={"access": CREATE},
    summary="Create or find an entity",
    tags=["entities"],
    responses=also(200, EntityWritten, "An entity of that name exists already."),
)
async def create_entity(
    db: Db, who: Who, idempotent: Idempotent, data: JSONBody[EntityCreate]
) -> Response[EntityWritten]:
    """201 when it is new, 200 when one of that name (ignoring case and white space) exists; a given kind is then set
    and aliases are added. Names of entities are shared by everybody in the project,
    except those of an end user, which are that user's alone."""
    who = as_user(who, data.user_id)
    return respond(await idempotent.run(db, who, lambda session: service.create_entity(session, who, data=data)))


@get("/entities", opt={"access": READ}, summary="List or find entities", tags=["entities"])
async def list_entities(
    db: Db,
    who: Who,
    cursors: Cursors,
    hold_denied: HoldDenied,
    name: Annotated[
        str | None,
        QueryParameter(max_length=512, description="Only entities with this canonical name, alias, URI or id."),
    ] = None,
    prefix: Annotated[str | None, QueryParameter(max_length=512, description="Only names with this prefix.")] = None,
    kind: Annotated[str | None, QueryParameter(max_length=64, description="Only of this kind.")] = None,
    as_of: AsOf = None,
    valid_at: ValidAt = None,
    limit: Limit = 50,
    cursor: Cursor = None,
    include_total: IncludeTotal = False,
) -> EntityList:
    """In the order of their names. With `name`: none, one, or all that share an alias."""
    parse_moment(valid_at, "valid_at")
    filters, known = {"name": name, "prefix": prefix, "kind": kind}, parse_as_of(as_of)
    page = Page(
        cursors,
        who,
        "entities",
        limit=limit,
        cursor=cursor,
        include_total=include_total,
        as_of=known,
        filters=sorted(filters.items()),
    )
    context = ReadContext.of(who, as_of=known, hold_denied=hold_denied)
    return await service.list_entities(db, context, filters=filters, page=page)


@get("/entities/{reference:str}", opt={"access": READ}, summary="Get an entity", tags=["entities"])
async def get_entity(
    db: Db, who: Who, hold_denied: HoldDenied, reference: FromPath[str], as_of: AsOf = None, valid_at: ValidAt = None
) -> EntityRead:
    """By id, canonical name, alias or URI. The id or name of a merged entity returns the one it was merged into; an
    alias of several entities is 409 with the candidates."""
    parse_moment(valid_at, "valid_at")
    context = ReadContext.of(who, as_of=parse_as_of(as_of), hold_denied=hold_denied)
    return await service.get_entity(db, context, reference=reference)


@post(
    "/entities/{entity_id:uuid}/aliases",
    opt={"access": WRITE},
    summary="Add an alias to an entity",
    tags=["entities"],
    responses=also(200, AliasCreated, "The entity has that alias already."),
)
async def add_entity_alias(
    db: Db, who: Who, idempotent: Idempotent, entity_id: FromPath[UUID], data: JSONBody[AliasCreate]
) -> Response[AliasCreated]:
    """Several entities may share an alias; where one entity is expected, such an alias is ambiguous."""
    return respond(
        await idempotent.run(db, who, lambda session: service.add_alias(session, who, entity_id=entity_id, data=data))
    )


@post(
    "/entities/{entity_id:uuid}/merge",
    opt={"access": WRITE},
    status_code=200,
    summary="Merge two entities into one",
    tags=["entities"],
    responses=also(202, MergeAccepted, "They have more than 5,000 facts: a job merges them."),
)
async def merge_entity(
    db: Db, who: Who, idempotent: Idempotent, entity_id: FromPath[UUID], data: JSONBody[EntityMerge]
) -> Response[EntityMerged]:
    """Facts, edges, mentions and aliases move in one transaction; facts that then say the same become one fact with
    the evidence of both. The old id and name keep resolving. Recorded in the audit log. Two entities with more than
    5,000 facts are merged by a job: follow it by `GET /v1/jobs/{job_id}`; the same request again names the same job."""
    return respond(
        await idempotent.run(
            db, who, lambda session: service.merge_entity(session, who, entity_id=entity_id, data=data)
        )
    )


handlers: list[Any] = [create_entity, list_entities, get_entity, add_entity_alias, merge_entity]
router = Router(path="/", route_handlers=handlers)
