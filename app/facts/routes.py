"""HTTP of facts."""

from typing import Annotated, Any
from uuid import UUID

import msgspec
from litestar import Response, Router, get, patch, post, put
from litestar.params import FromPath, JSONBody, QueryParameter

from app.access import Principal, as_user
from app.db.database import Database
from app.errors import BadRequest
from app.facts import provenance, reads, retractions, writes
from app.facts.as_of import parse_as_of
from app.facts.schemas import (
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
    Provenance,
)
from app.inputs import parse_moment
from app.paging import Page
from app.read_context import ReadContext
from app.tenancy.schemas import SYNONYMS, VisibilityIn
from app.web.auth import Access
from app.web.idempotency import IdempotentRequest, encode_outcome
from app.web.reference import also
from app.web.requests import AsOf, Cursor, Cursors, Db, HoldDenied, Idempotent, IncludeTotal, Limit, Who, respond

READ = Access(work="read", scopes=("facts:read",))
WRITE = Access(work="write", scopes=("facts:write",))
WRITE_AS_USER = Access(work="write", scopes=("facts:write",), user_in_body=True)
WRITTEN = also(200, FactWritten, "The same fact is believed already; the evidence was added to it.")


@post("/facts", opt={"access": WRITE_AS_USER}, summary="Write a fact", tags=["facts"], responses=WRITTEN)
async def post_fact(db: Db, who: Who, idempotent: Idempotent, data: JSONBody[FactCreate]) -> Response[FactWritten]:
    """Entities and the predicate are found or created by name. 201 when the fact is new, with the facts it superseded
    and the conflicts it caused; 200 when it is believed already."""
    return await _write_fact(db, who, idempotent, data)


@put(
    "/facts", opt={"access": WRITE_AS_USER}, status_code=201, summary="Write a fact", tags=["facts"], responses=WRITTEN
)
async def put_fact(db: Db, who: Who, idempotent: Idempotent, data: JSONBody[FactCreate]) -> Response[FactWritten]:
    """The same as POST."""
    return await _write_fact(db, who, idempotent, data)


async def _write_fact(db: Database, who: Principal, idempotent: IdempotentRequest, data: FactCreate) -> Response[Any]:
    who = as_user(who, data.user_id)
    # Without a key to store the response under, one round trip does all.
    if not idempotent.has_key:
        return respond(encode_outcome(await writes.write_fact(db, who, data=data)))
    prepared = await writes.prepare_fact(db, who, data=data)
    async with writes.timeline(db, who, prepared):
        done = await idempotent.run(db, who, lambda session: writes.write_prepared_fact(session, who, prepared))
    return respond(done)


@post("/facts/batch", opt={"access": WRITE_AS_USER}, status_code=200, summary="Write many facts", tags=["facts"])
async def write_facts(db: Db, who: Who, idempotent: Idempotent, data: JSONBody[FactBatch]) -> Response[FactBatchDone]:
    """Up to 1,000 in one transaction, in order: all or none by default; `atomic: false` returns a result for each."""
    who = as_user(who, data.user_id)
    if not idempotent.has_key:
        return respond(encode_outcome(await writes.write_facts(db, who, data=data)))
    prepared = await writes.prepare_facts(db, who, data=data)
    return respond(await idempotent.run(db, who, lambda session: writes.write_prepared_facts(session, who, prepared)))


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
        str | None,
        QueryParameter(
            max_length=512, name="object", description="Whose object is this entity: name, alias, URI or id."
        ),
    ] = None,
    predicate: Annotated[
        str | None, QueryParameter(max_length=512, description="By this predicate: name, alias or id.")
    ] = None,
    relation: Annotated[str | None, QueryParameter(max_length=512, description="The same as predicate.")] = None,
    visibility: Annotated[VisibilityIn | None, QueryParameter(name="scope", description="Only of this scope.")] = None,
    source: Annotated[str | None, QueryParameter(max_length=500, description="Only of this source.")] = None,
    garden: Annotated[
        UUID | None, QueryParameter(description="Only in this garden; 403 for agents who are not its members.")
    ] = None,
    min_confidence: Annotated[
        float | None, QueryParameter(ge=0, le=1, description="Only facts of at least this confidence.")
    ] = None,
    valid_at: Annotated[
        str | None, QueryParameter(max_length=40, description="Valid at this time; as_of or else now when absent.")
    ] = None,
    as_of: AsOf = None,
    include_inactive: Annotated[
        bool, QueryParameter(description="Also ended, future and retracted ones, whatever valid_at says.")
    ] = False,
    include_contradicted: Annotated[
        bool, QueryParameter(description="false: of two facts in an open conflict only the preferred one.")
    ] = True,
    include_low_trust: Annotated[
        bool,
        QueryParameter(
            description="false: without facts whose confidence times source_trust is under .2; while trust_mode is "
            "off, a source counts at least as much as none."
        ),
    ] = True,
    limit: Limit = 50,
    cursor: Cursor = None,
    include_total: IncludeTotal = False,
) -> FactList:
    """Facts that are believed and valid now, newest first; or at any other two times. A filter by an unknown name
    finds nothing. With graph:admin:cross-project also facts that other projects of the tenant share, except with
    `as_of`."""
    filters = reads.FactFilters(
        entity=_either(entity, entity_uri, "entity", "entity_uri"),
        object=target,
        predicate=_either(predicate, relation, "predicate", "relation"),
        source=source,
        garden_id=garden,
        min_confidence=min_confidence,
        include_inactive=include_inactive,
        include_contradicted=include_contradicted,
        include_low_trust=include_low_trust,
    )
    scope = None if visibility is None else SYNONYMS.get(visibility, visibility)
    valid, known = parse_moment(valid_at, "valid_at"), parse_as_of(as_of)
    binding: dict[str, Any] = {**msgspec.structs.asdict(filters), "scope": scope, "valid_at": valid, "as_of": known}
    page = Page(cursors, who, "facts", limit=limit, cursor=cursor, include_total=include_total, **binding)
    context = ReadContext.of(who, valid_at=valid, as_of=known, scope=scope, hold_denied=hold_denied, shared=True)
    return await reads.list_facts(db, context, filters=filters, page=page)


def _either(one: str | None, other: str | None, name: str, synonym: str) -> str | None:
    if one is not None and other is not None:
        raise BadRequest(f"{name}: give only one of {name} or {synonym}.")
    return one if one is not None else other


@get("/facts/{fact_id:uuid}", opt={"access": READ}, summary="Get a fact", tags=["facts"])
async def get_fact(db: Db, who: Who, hold_denied: HoldDenied, fact_id: FromPath[UUID], as_of: AsOf = None) -> FactRead:
    """Also ended, future and retracted ones."""
    context = ReadContext.of(who, as_of=parse_as_of(as_of), hold_denied=hold_denied, shared=True)
    return await reads.get_fact(db, context, fact_id=fact_id)


@get("/facts/{fact_id:uuid}/history", opt={"access": READ}, summary="Get a fact with its history", tags=["facts"])
async def get_history(db: Db, who: Who, fact_id: FromPath[UUID]) -> FactHistory:
    """The chain of supersessions it belongs to with their notes, its evidence, its ends and its retractions."""
    return await reads.get_history(db, who, fact_id=fact_id)


@get(
    "/facts/{fact_id:uuid}/provenance",
    opt={"access": READ},
    summary="Get what a fact was derived from",
    tags=["facts"],
)
async def get_provenance(
    db: Db,
    who: Who,
    hold_denied: HoldDenied,
    fact_id: FromPath[UUID],
    depth: Annotated[int, QueryParameter(description="How many steps back, 1 to 5.")] = 3,
    visibility: Annotated[
        VisibilityIn | None, QueryParameter(name="scope", description="Only facts of this scope; others look absent.")
    ] = None,
    as_of: AsOf = None,
) -> Provenance:
    """The facts whose hashes it cites in `derived_from`, the facts those cite, and so on. A fact the caller cannot see
    is shown as `{hash, exists: false}`, like one that does not exist."""
    scope = None if visibility is None else SYNONYMS.get(visibility, visibility)
    context = ReadContext.of(who, as_of=parse_as_of(as_of), scope=scope, hold_denied=hold_denied)
    return await provenance.get_provenance(db, context, fact_id=fact_id, depth=depth)


@patch("/facts/{fact_id:uuid}", opt={"access": WRITE}, summary="End a fact", tags=["facts"])
async def patch_fact(db: Db, who: Who, fact_id: FromPath[UUID], data: JSONBody[FactPatch]) -> FactWritten:
    """Sets `valid_to`, or opens the fact again with null. Nothing else of a fact can be changed: write another fact to
    correct it, or retract it. `derived_from` is 422 `derived_from_immutable`."""
    return await retractions.patch_fact(db, who, fact_id=fact_id, data=data)


@post("/facts/{fact_id:uuid}/retract", opt={"access": WRITE}, status_code=200, summary="Retract a fact", tags=["facts"])
async def retract_fact(db: Db, who: Who, fact_id: FromPath[UUID], data: JSONBody[FactRetract]) -> FactRetracted:
    """The fact was never true: its confidence becomes 0, it leaves every current result and stays as history. It can be
    written again."""
    return await retractions.retract_fact(db, who, fact_id=fact_id, data=data)


@post("/facts/retract", opt={"access": WRITE_AS_USER}, status_code=200, summary="Retract many facts", tags=["facts"])
async def retract_facts(db: Db, who: Who, data: JSONBody[FactsRetract]) -> FactsRetracted:
    """All facts of a subject, a predicate and a scope that the caller can see."""
    return await retractions.retract_facts(db, as_user(who, data.user_id), data=data)


handlers: list[Any] = [
    post_fact, put_fact, write_facts, list_facts, get_fact, get_history, get_provenance, patch_fact, retract_fact,
    retract_facts,
]  # fmt: skip
router = Router(path="/", route_handlers=handlers)
