"""HTTP of recall and its traces."""

from typing import Annotated, Any
from uuid import UUID

import msgspec
from litestar import Router, get, post
from litestar.di import NamedDependency
from litestar.params import FromPath, JSONBody, QueryParameter, SkipValidation

from app.access import as_user
from app.errors import BadRequest
from app.inputs import invalid_body, parse_moment
from app.recall import service, traces
from app.recall.dependencies import RecallDependencies
from app.recall.schemas import (
    BUDGET_BOUNDS,
    DEPTH_BOUNDS,
    ENTITY_BOUNDS,
    MAX_QUERY,
    RELATION_BOUNDS,
    Fusion,
    RecallAsk,
    RecallRead,
    ReplayRead,
    TraceRead,
    Weights,
)
from app.tenancy.schemas import VisibilityIn
from app.web.auth import Access
from app.web.requests import AsOf, Db, HoldDenied, Who

READ = Access(work="read", cost=2, scopes=("facts:read", "notes:read"))
READ_AS_USER = Access(work="read", cost=2, scopes=("facts:read", "notes:read"), user_in_body=True)
Dependencies = NamedDependency[SkipValidation[RecallDependencies]]
# Litestar omits a minimum of 0 from the OpenAPI document.
FROM_ZERO = {"minimum": 0}


@post("/recall", opt={"access": READ_AS_USER}, status_code=200, summary="Recall what fits a query", tags=["recall"])
async def post_recall(db: Db, who: Who, recall_dependencies: Dependencies, data: JSONBody[RecallAsk]) -> RecallRead:
    """Returns facts and notes, the best first, as many as fit into the token budget. They are found by their words, by
    their meaning and along the graph, at the times `valid_at` and `as_of`. Only what this key may read; with
    graph:admin:cross-project also what other projects of the tenant share, except with `as_of`."""
    who = as_user(who, data.user_id)
    return await service.recall(db, who, ask=data, dependencies=recall_dependencies)


@get("/recall", opt={"access": READ}, summary="Recall what fits a short query", tags=["recall"])
async def get_recall(
    db: Db,
    who: Who,
    recall_dependencies: Dependencies,
    words: Annotated[
        str | None,
        QueryParameter(name="query", max_length=MAX_QUERY, description="What to look for, in the user's own words."),
    ] = None,
    intent: Annotated[str | None, QueryParameter(max_length=MAX_QUERY, description="Synonym of query.")] = None,
    token_budget: Annotated[
        int | None,
        QueryParameter(schema_extra=BUDGET_BOUNDS, description="How many tokens the results may use; default 2000."),
    ] = None,
    max_results: Annotated[
        int | None, QueryParameter(ge=1, le=200, description="At most this many results; default 50.")
    ] = None,
    max_facts: Annotated[int | None, QueryParameter(ge=1, le=200, description="Synonym of max_results.")] = None,
    include: Annotated[
        list[str] | None, QueryParameter(description="facts, notes or both, separated by commas or repeated.")
    ] = None,
    depth: Annotated[
        int | None,
        QueryParameter(
            schema_extra=DEPTH_BOUNDS, description="How many edges to follow from what was found; default 1."
        ),
    ] = None,
    weights: Annotated[
        str | None, QueryParameter(description='JSON such as {"lexical": 0.3, "vector": 0.5, "graph": 0.2}.')
    ] = None,
    fusion: Annotated[
        Fusion | None, QueryParameter(description="How channels are combined; default weighted_sum.")
    ] = None,
    lambda_mmr: Annotated[
        float | None,
        QueryParameter(
            ge=0,
            le=1,
            schema_extra=FROM_ZERO,
            description="MMR: 1 ranks by score alone, less avoids repetition; default 0.7.",
        ),
    ] = None,
    min_confidence: Annotated[
        float | None,
        QueryParameter(
            ge=0, le=1, schema_extra=FROM_ZERO, description="Only facts of at least this confidence; default 0.1."
        ),
    ] = None,
    entity: Annotated[
        str | None,
        QueryParameter(
            schema_extra=ENTITY_BOUNDS, description="Only facts and notes about this entity, and its memory card."
        ),
    ] = None,
    entity_uri: Annotated[
        str | None, QueryParameter(schema_extra=ENTITY_BOUNDS, description="Synonym of entity.")
    ] = None,
    relation: Annotated[
        str | None,
        QueryParameter(min_length=1, schema_extra=RELATION_BOUNDS, description="Only facts with this predicate."),
    ] = None,
    predicate: Annotated[
        str | None, QueryParameter(min_length=1, schema_extra=RELATION_BOUNDS, description="Synonym of relation.")
    ] = None,
    visibility: Annotated[
        VisibilityIn | None, QueryParameter(name="scope", description="Only this visibility scope.")
    ] = None,
    as_of: AsOf = None,
    valid_at: Annotated[
        str | None, QueryParameter(description="What was valid at this time; default now, or as_of.")
    ] = None,
    include_low_trust: Annotated[
        bool, QueryParameter(description="Include facts whose confidence times source_trust is below 0.2.")
    ] = False,
    include_contradicted: Annotated[
        bool, QueryParameter(description="Include facts that a preferred fact contradicts.")
    ] = False,
    force_refresh: Annotated[
        bool, QueryParameter(description="Rebuild the entity's card first, within half a second.")
    ] = False,
    recency: Annotated[
        bool, QueryParameter(description="Lower the scores of notes by their age, as for facts.")
    ] = False,
    graph_boost: Annotated[
        bool,
        QueryParameter(
            description="Raise notes about the entities that the query names, in projects with graph_enabled."
        ),
    ] = False,
    rendered: Annotated[bool, QueryParameter(description="Return the results also as one text for a prompt.")] = False,
    debug: Annotated[
        bool, QueryParameter(description="Return the parts of each score too (scope graph:search:debug).")
    ] = False,
) -> RecallRead:
    """The same as POST /v1/recall, for short queries."""
    given: dict[str, Any] = {
        "query": words,
        "intent": intent,
        "token_budget": token_budget,
        "max_results": max_results,
        "max_facts": max_facts,
        "include": None if include is None else [kind.strip() for part in include for kind in part.split(",")],
        "depth": depth,
        "weights": None if weights is None else _parse_weights(weights),
        "fusion": fusion,
        "lambda_mmr": lambda_mmr,
        "min_confidence": min_confidence,
        "entity": entity,
        "entity_uri": entity_uri,
        "relation": relation,
        "predicate": predicate,
        "scope": visibility,
        "as_of": as_of,
        "valid_at": parse_moment(valid_at, "valid_at"),
        "include_low_trust": include_low_trust,
        "include_contradicted": include_contradicted,
        "force_refresh": force_refresh,
        "recency": recency,
        "graph_boost": graph_boost,
        "rendered": rendered,
        "debug": debug,
    }
    return await service.recall(db, who, ask=_parse_query(given), dependencies=recall_dependencies)


def _parse_query(given: dict[str, Any]) -> RecallAsk:
    present = {name: value for name, value in given.items() if value is not None}
    try:
        return msgspec.convert(present, RecallAsk, strict=False)
    except msgspec.ValidationError as problem:
        raise invalid_body(problem, RecallAsk, place="query") from problem


def _parse_weights(text: str) -> Weights:
    try:
        return msgspec.json.decode(text, type=Weights)
    except (msgspec.ValidationError, msgspec.DecodeError) as problem:
        raise BadRequest(
            'weights: must be JSON such as {"lexical": 0.3, "vector": 0.5, "graph": 0.2}.', code="invalid_weights"
        ) from problem


@get("/recall/traces/{trace_id:uuid}", opt={"access": READ}, summary="Read a recall trace", tags=["recall"])
async def get_trace(db: Db, who: Who, trace_id: FromPath[UUID]) -> TraceRead:
    """Returns the request, who made it and when, and the ids and scores of the results. For the agent that made the
    request and for administrators. Traces are kept for 30 days, and erased with the facts and notes they name."""
    return await traces.get_trace(db, who, trace_id=trace_id)


@get("/recall/traces/{trace_id:uuid}/replay", opt={"access": READ}, summary="Replay a recall trace", tags=["recall"])
async def replay_trace(db: Db, who: Who, hold_denied: HoldDenied, trace_id: FromPath[UUID]) -> ReplayRead:
    """Returns the results as they were then (scope history:as_of): validity, confidence and text of that time. What was
    erased since, or the caller may not read, is listed by its id alone."""
    return await traces.replay(db, who, trace_id=trace_id, hold_denied=hold_denied)


handlers: list[Any] = [post_recall, get_recall, get_trace, replay_trace]
router = Router(path="/", route_handlers=handlers)
