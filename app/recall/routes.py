"""HTTP of recall and its traces."""

from typing import Annotated, Any
from uuid import UUID

import msgspec
from litestar import Router, get, post
from litestar.di import NamedDependency
from litestar.params import FromPath, JSONBody, QueryParameter, SkipValidation

from app.errors import BadRequest
from app.inputs import invalid_body, parse_moment
from app.recall import service, traces
from app.recall.dependencies import Means
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

READ = Access(work="read", scopes=("facts:read", "notes:read"))
RecallMeans = NamedDependency[SkipValidation[Means]]
# The framework leaves a minimum of 0 out of its document.
FROM_ZERO = {"minimum": 0}


@post("/recall", opt={"access": READ}, status_code=200, summary="Recall what fits a query", tags=["recall"])
async def post_recall(db: Db, who: Who, recall_means: RecallMeans, data: JSONBody[RecallAsk]) -> RecallRead:
    """Facts and notes, the most fitting first, as many as fit into the token budget: found by their words, by their
    meaning and along the graph. At any two times. Only what this key may read."""
    return await service.recall(db, who, ask=data, means=recall_means)


@get("/recall", opt={"access": READ}, summary="Recall what fits a short query", tags=["recall"])
async def get_recall(
    db: Db,
    who: Who,
    recall_means: RecallMeans,
    words: Annotated[
        str | None, QueryParameter(name="query", max_length=MAX_QUERY, description="In the user's own words.")
    ] = None,
    intent: Annotated[str | None, QueryParameter(max_length=MAX_QUERY, description="The same as query.")] = None,
    token_budget: Annotated[
        int | None, QueryParameter(schema_extra=BUDGET_BOUNDS, description="Tokens the results may take; 2000.")
    ] = None,
    max_results: Annotated[int | None, QueryParameter(ge=1, le=200, description="At most this many; 50.")] = None,
    include: Annotated[
        list[str] | None, QueryParameter(description="facts, notes or both, separated by a comma or one by one.")
    ] = None,
    depth: Annotated[
        int | None, QueryParameter(schema_extra=DEPTH_BOUNDS, description="Edges to walk from what was found; 1.")
    ] = None,
    weights: Annotated[
        str | None, QueryParameter(description='JSON such as {"lexical": 0.3, "vector": 0.5, "graph": 0.2}.')
    ] = None,
    fusion: Annotated[Fusion | None, QueryParameter(description="How channels become one; weighted_sum.")] = None,
    lambda_mmr: Annotated[
        float | None, QueryParameter(ge=0, le=1, schema_extra=FROM_ZERO, description="1: by score alone; 0.7.")
    ] = None,
    min_confidence: Annotated[
        float | None, QueryParameter(ge=0, le=1, schema_extra=FROM_ZERO, description="Facts at least this sure; 0.1.")
    ] = None,
    entity: Annotated[
        str | None, QueryParameter(schema_extra=ENTITY_BOUNDS, description="All about one entity, and its card.")
    ] = None,
    entity_uri: Annotated[
        str | None, QueryParameter(schema_extra=ENTITY_BOUNDS, description="The same as entity.")
    ] = None,
    relation: Annotated[
        str | None,
        QueryParameter(min_length=1, schema_extra=RELATION_BOUNDS, description="Only facts by this predicate."),
    ] = None,
    predicate: Annotated[
        str | None, QueryParameter(min_length=1, schema_extra=RELATION_BOUNDS, description="The same as relation.")
    ] = None,
    visibility: Annotated[
        VisibilityIn | None, QueryParameter(name="scope", description="Only this visibility.")
    ] = None,
    as_of: AsOf = None,
    valid_at: Annotated[str | None, QueryParameter(description="What was valid at this time.")] = None,
    include_low_trust: bool = False,
    include_contradicted: bool = False,
    force_refresh: bool = False,
    recency: bool = False,
    graph_boost: bool = False,
    rendered: bool = False,
    debug: bool = False,
) -> RecallRead:
    """The same as POST, for short queries; see there."""
    given: dict[str, Any] = {
        "query": words,
        "intent": intent,
        "token_budget": token_budget,
        "max_results": max_results,
        "include": None if include is None else [kind.strip() for part in include for kind in part.split(",")],
        "depth": depth,
        "weights": None if weights is None else _weights(weights),
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
    asked = {name: value for name, value in given.items() if value is not None}
    try:
        ask = msgspec.convert(asked, RecallAsk, strict=False)
    except msgspec.ValidationError as problem:
        raise invalid_body(problem, RecallAsk, place="query") from problem
    return await service.recall(db, who, ask=ask, means=recall_means)


def _weights(text: str) -> Weights:
    try:
        return msgspec.json.decode(text, type=Weights)
    except (msgspec.ValidationError, msgspec.DecodeError) as problem:
        raise BadRequest(
            'weights: JSON such as {"lexical": 0.3, "vector": 0.5, "graph": 0.2}.', code="invalid_weights"
        ) from problem


@get("/recall/traces/{trace_id:uuid}", opt={"access": READ}, summary="What was asked and returned", tags=["recall"])
async def get_trace(db: Db, who: Who, trace_id: FromPath[UUID]) -> TraceRead:
    """The request, as whom and when it was made, and the ids and scores of what was returned. For the agent that asked,
    and for administrators; kept for 30 days, and erased with what it speaks of."""
    return await traces.get_trace(db, who, trace_id=trace_id)


@get("/recall/traces/{trace_id:uuid}/replay", opt={"access": READ}, summary="What the agent saw then", tags=["recall"])
async def replay_trace(db: Db, who: Who, hold_denied: HoldDenied, trace_id: FromPath[UUID]) -> ReplayRead:
    """What was returned then, as it was then: ends, confidence and words of that time (scope history:as_of). What was
    forgotten since, or the caller may not read, is there by its id alone."""
    return await traces.replay(db, who, trace_id=trace_id, denied=hold_denied)


handlers: list[Any] = [post_recall, get_recall, get_trace, replay_trace]
router = Router(path="/", route_handlers=handlers)
