"""HTTP of the room facts."""

from typing import Annotated, Any
from uuid import UUID

from litestar import Response, Router, get, patch, post, put
from litestar.params import FromPath, JSONBody, QueryParameter

from app.errors import BadRequest
from app.facts import entities, reading, writing
from app.facts.as_of import parse_as_of
from app.facts.names import predicate_name
from app.facts.schemas import (
    AliasCreate,
    AliasCreated,
    EntityCreate,
    EntityCreated,
    EntityList,
    EntityMerge,
    EntityMerged,
    EntityRead,
    FactBatch,
    FactBatchDone,
    FactCreate,
    FactHistory,
    FactList,
    FactPatch,
    FactRead,
    FactRetract,
    FactRetracted,
    FactsRetract,
    FactsRetracted,
    FactWritten,
    PredicateAliasCreated,
    PredicateCreate,
    PredicateCreated,
    PredicateList,
    PredicatePatch,
    PredicateRead,
    Status,
)
from app.facts.vocabulary import predicates
from app.inputs import parse_moment
from app.paging import Page
from app.tenancy.schemas import SYNONYMS, VisibilityIn
from app.web.auth import Access
from app.web.reference import also
from app.web.requests import AsOf, Cursor, Cursors, Db, HoldDenied, Idempotent, Limit, Who, respond

READ = Access(work="read", scopes=("facts:read",))
WRITE = Access(work="write", scopes=("facts:write",))
EntityValidAt = Annotated[
    str | None,
    QueryParameter(
        max_length=40, description="Taken as everywhere; an entity itself has no begin or end that it could change."
    ),
]


@post(
    "/entities",
    opt={"access": WRITE},
    summary="Make or find an entity",
    tags=["entities"],
    responses=also(200, EntityCreated, "An entity of that name was there already."),
)
async def create_entity(
    db: Db, who: Who, idempotent: Idempotent, data: JSONBody[EntityCreate]
) -> Response[EntityCreated]:
    """201 when it is new, 200 when one of that name (white space and case aside) was there; a kind that is given is
    taken on, aliases are added. Names of entities are shared by everybody in the project."""
    return respond(await entities.create_entity(db, who, data=data, once=idempotent))


@get("/entities", opt={"access": READ}, summary="List or find entities", tags=["entities"])
async def list_entities(
    db: Db,
    who: Who,
    cursors: Cursors,
    hold_denied: HoldDenied,
    name: Annotated[
        str | None, QueryParameter(max_length=512, description="What this canonical name, alias, URI or id means.")
    ] = None,
    prefix: Annotated[str | None, QueryParameter(max_length=512, description="Only names that begin so.")] = None,
    kind: Annotated[str | None, QueryParameter(max_length=64, description="Only of this kind.")] = None,
    as_of: AsOf = None,
    valid_at: EntityValidAt = None,
    limit: Limit = 50,
    cursor: Cursor = None,
) -> EntityList:
    """In the order of their names. With `name`: none, one, or all that share an alias."""
    parse_moment(valid_at, "valid_at")
    filters, known = {"name": name, "prefix": prefix, "kind": kind}, parse_as_of(as_of)
    page = Page(cursors, who, "entities", limit=limit, cursor=cursor, as_of=known, filters=sorted(filters.items()))
    return await entities.list_entities(db, who, filters=filters, as_of=known, page=page, denied=hold_denied)


@get("/entities/{reference:str}", opt={"access": READ}, summary="One entity", tags=["entities"])
async def get_entity(
    db: Db,
    who: Who,
    hold_denied: HoldDenied,
    reference: FromPath[str],
    as_of: AsOf = None,
    valid_at: EntityValidAt = None,
) -> EntityRead:
    """By id, canonical name, alias or URI. A merged one answers as what it became; a name that fits several is 409
    with the candidates."""
    parse_moment(valid_at, "valid_at")
    return await entities.get_entity(db, who, reference=reference, as_of=parse_as_of(as_of), denied=hold_denied)


@post(
    "/entities/{entity_id:uuid}/aliases",
    opt={"access": WRITE},
    summary="Give an entity another name",
    tags=["entities"],
    responses=also(200, AliasCreated, "It had that name already."),
)
async def add_entity_alias(
    db: Db, who: Who, idempotent: Idempotent, entity_id: FromPath[UUID], data: JSONBody[AliasCreate]
) -> Response[AliasCreated]:
    """Several entities may share an alias; then it is ambiguous where one entity is meant."""
    return respond(await entities.add_alias(db, who, entity_id=entity_id, data=data, once=idempotent))


@post(
    "/entities/{entity_id:uuid}/merge",
    opt={"access": WRITE},
    status_code=200,
    summary="Merge two entities into one",
    tags=["entities"],
)
async def merge_entity(
    db: Db, who: Who, idempotent: Idempotent, entity_id: FromPath[UUID], data: JSONBody[EntityMerge]
) -> Response[EntityMerged]:
    """Facts, edges, mentions and aliases move in one transaction; what then says the same folds into one fact with
    both evidences. The old id and name keep resolving. Recorded in the audit log."""
    return respond(await entities.merge_entity(db, who, entity_id=entity_id, data=data, once=idempotent))


@get("/predicates", opt={"access": READ}, summary="List predicates", tags=["predicates"])
async def list_predicates(
    db: Db,
    who: Who,
    cursors: Cursors,
    status: Annotated[Status | None, QueryParameter(description="Only of this status.")] = None,
    prefix: Annotated[str | None, QueryParameter(max_length=200, description="Only names that begin so.")] = None,
    limit: Limit = 50,
    cursor: Cursor = None,
) -> PredicateList:
    """The project's own, the tenant's, and the installation's, in the order of their names."""
    if prefix:
        prefix = predicate_name(prefix, "prefix").norm
    page = Page(cursors, who, "predicates", limit=limit, cursor=cursor, status=status, prefix=prefix)
    return await predicates.list_predicates(db, who, filters={"status": status, "prefix": prefix}, page=page)


@post(
    "/predicates",
    opt={"access": WRITE},
    summary="Register a predicate",
    tags=["predicates"],
    responses=also(200, PredicateCreated, "It was there already, as asked."),
)
async def create_predicate(
    db: Db, who: Who, idempotent: Idempotent, data: JSONBody[PredicateCreate]
) -> Response[PredicateCreated]:
    """For predicates whose cardinality is known beforehand; others register themselves as pending and multi when a
    fact first uses them."""
    return respond(await predicates.create_predicate(db, who, data=data, once=idempotent))


@get("/predicates/{predicate_id:uuid}", opt={"access": READ}, summary="One predicate", tags=["predicates"])
async def get_predicate(db: Db, who: Who, predicate_id: FromPath[UUID]) -> PredicateRead:
    """404 when it is unknown or of another project."""
    return await predicates.get_predicate(db, who, predicate_id=predicate_id)


@patch(
    "/predicates/{predicate_id:uuid}", opt={"access": WRITE}, summary="Decide about a predicate", tags=["predicates"]
)
async def patch_predicate(
    db: Db, who: Who, predicate_id: FromPath[UUID], data: JSONBody[PredicatePatch]
) -> PredicateRead:
    """pending becomes active or deprecated, active becomes deprecated. Becoming single-valued while several values are
    valid at once is 409 with the facts, unless `resolve` is `latest`. One of the installation is read-only (403)."""
    return await predicates.patch_predicate(db, who, predicate_id=predicate_id, data=data)


@post(
    "/predicates/{predicate_id:uuid}/aliases",
    opt={"access": WRITE},
    summary="Give a predicate another name",
    tags=["predicates"],
    responses=also(200, PredicateAliasCreated, "It had that name already."),
)
async def add_predicate_alias(
    db: Db, who: Who, idempotent: Idempotent, predicate_id: FromPath[UUID], data: JSONBody[AliasCreate]
) -> Response[PredicateAliasCreated]:
    """A name that already means another predicate of the same scope is 409."""
    return respond(await predicates.add_alias(db, who, predicate_id=predicate_id, data=data, once=idempotent))


WRITTEN = also(200, FactWritten, "It was believed already; the evidence was added to it.")


@post("/facts", opt={"access": WRITE}, summary="Write a fact", tags=["facts"], responses=WRITTEN)
async def post_fact(db: Db, who: Who, idempotent: Idempotent, data: JSONBody[FactCreate]) -> Response[FactWritten]:
    """Entities and the predicate are found or made by name. 201 when the fact is new, with the facts it superseded and
    the conflicts it caused; 200 when it was believed already."""
    return respond(await writing.write_fact(db, who, data=data, once=idempotent))


@put("/facts", opt={"access": WRITE}, status_code=201, summary="Write a fact", tags=["facts"], responses=WRITTEN)
async def put_fact(db: Db, who: Who, idempotent: Idempotent, data: JSONBody[FactCreate]) -> Response[FactWritten]:
    """The same as POST."""
    return respond(await writing.write_fact(db, who, data=data, once=idempotent))


@post("/facts/batch", opt={"access": WRITE}, status_code=200, summary="Write many facts", tags=["facts"])
async def write_facts(db: Db, who: Who, idempotent: Idempotent, data: JSONBody[FactBatch]) -> Response[FactBatchDone]:
    """Up to 1,000 in one transaction, in order: all or none by default; `atomic: false` answers a result for each."""
    return respond(await writing.write_facts(db, who, data=data, once=idempotent))


@get("/facts", opt={"access": READ}, summary="List facts", tags=["facts"])
async def list_facts(
    db: Db,
    who: Who,
    cursors: Cursors,
    hold_denied: HoldDenied,
    entity: Annotated[
        str | None, QueryParameter(max_length=512, description="About this entity: name, alias, URI or id.")
    ] = None,
    entity_uri: Annotated[str | None, QueryParameter(max_length=512, description="The same as entity.")] = None,
    target: Annotated[
        str | None, QueryParameter(max_length=512, name="object", description="Pointing to this entity.")
    ] = None,
    predicate: Annotated[
        str | None, QueryParameter(max_length=512, description="By this predicate: name, alias or id.")
    ] = None,
    relation: Annotated[str | None, QueryParameter(max_length=512, description="The same as predicate.")] = None,
    visibility: Annotated[VisibilityIn | None, QueryParameter(name="scope", description="Only of this scope.")] = None,
    source: Annotated[str | None, QueryParameter(max_length=500, description="Only of this source.")] = None,
    garden: Annotated[UUID | None, QueryParameter(description="Only in this garden; 403 for strangers.")] = None,
    min_confidence: Annotated[float | None, QueryParameter(ge=0, le=1, description="Only at least so sure.")] = None,
    valid_at: Annotated[
        str | None, QueryParameter(max_length=40, description="Valid at this time; now, or as_of, when absent.")
    ] = None,
    as_of: AsOf = None,
    include_inactive: Annotated[
        bool, QueryParameter(description="Also ended, future and retracted ones, whatever valid_at says.")
    ] = False,
    include_contradicted: Annotated[
        bool, QueryParameter(description="false: of facts in an open conflict only the preferred one.")
    ] = True,
    include_low_trust: Annotated[
        bool,
        QueryParameter(description="false: without facts whose confidence times source_trust is under .2."),
    ] = True,
    limit: Limit = 50,
    cursor: Cursor = None,
) -> FactList:
    """What is believed and valid now, newest first; or at any other two times. A filter by an unknown name finds
    nothing."""
    filters: dict[str, Any] = {
        "entity": _either(entity, entity_uri, "entity", "entity_uri"),
        "object": target,
        "predicate": _either(predicate, relation, "predicate", "relation"),
        "scope": None if visibility is None else SYNONYMS.get(visibility, visibility),
        "source": source,
        "garden_id": None if garden is None else str(garden),
        "min_confidence": min_confidence,
        "include_inactive": include_inactive,
        "include_contradicted": include_contradicted,
        "include_low_trust": include_low_trust,
    }
    times = {"valid_at": parse_moment(valid_at, "valid_at"), "as_of": parse_as_of(as_of)}
    page = Page(cursors, who, "facts", limit=limit, cursor=cursor, **filters, **times)
    return await reading.list_facts(db, who, filters=filters, page=page, denied=hold_denied, **times)


def _either(one: str | None, other: str | None, name: str, synonym: str) -> str | None:
    if one is not None and other is not None:
        raise BadRequest(f"{name}: give only one of {name} or {synonym}.")
    return one if one is not None else other


@get("/facts/{fact_id:uuid}", opt={"access": READ}, summary="One fact", tags=["facts"])
async def get_fact(db: Db, who: Who, hold_denied: HoldDenied, fact_id: FromPath[UUID], as_of: AsOf = None) -> FactRead:
    """Whatever became of it: also ended, future and retracted ones."""
    return await reading.get_fact(db, who, fact_id=fact_id, as_of=parse_as_of(as_of), denied=hold_denied)


@get("/facts/{fact_id:uuid}/history", opt={"access": READ}, summary="A fact with its history", tags=["facts"])
async def get_history(db: Db, who: Who, fact_id: FromPath[UUID]) -> FactHistory:
    """The chain of supersessions it belongs to with their notes, its evidence, its ends, its retractions."""
    return await reading.get_history(db, who, fact_id=fact_id)


@patch("/facts/{fact_id:uuid}", opt={"access": WRITE}, summary="End a fact", tags=["facts"])
async def patch_fact(db: Db, who: Who, fact_id: FromPath[UUID], data: JSONBody[FactPatch]) -> FactRead:
    """Sets `valid_to`, or opens the fact again with null. Everything else about a fact is fixed; to correct it write
    the right one, to take it back retract it. `derived_from` is 422 `derived_from_immutable`."""
    return await writing.patch_fact(db, who, fact_id=fact_id, data=data)


@post(
    "/facts/{fact_id:uuid}/retract", opt={"access": WRITE}, status_code=200, summary="Take a fact back", tags=["facts"]
)
async def retract_fact(db: Db, who: Who, fact_id: FromPath[UUID], data: JSONBody[FactRetract]) -> FactRetracted:
    """It was never true: confidence 0, out of every current answer, kept as history. It can be asserted anew."""
    return await writing.retract_fact(db, who, fact_id=fact_id, data=data)


@post("/facts/retract", opt={"access": WRITE}, status_code=200, summary="Take many facts back", tags=["facts"])
async def retract_facts(db: Db, who: Who, data: JSONBody[FactsRetract]) -> FactsRetracted:
    """Everything the caller can see under a subject, a predicate and a scope."""
    return await writing.retract_facts(db, who, data=data)


handlers: list[Any] = [
    create_entity, list_entities, get_entity, add_entity_alias, merge_entity,
    list_predicates, create_predicate, get_predicate, patch_predicate, add_predicate_alias,
    post_fact, put_fact, write_facts, list_facts, get_fact, get_history, patch_fact, retract_fact, retract_facts,
]  # fmt: skip
router = Router(path="/", route_handlers=handlers)
