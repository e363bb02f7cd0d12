"""Check a recall request: synonyms, bounds, and the scopes of the caller."""

from typing import Any, TypeVar, cast

import msgspec
from msgspec import UNSET, UnsetType

from app.access import Principal
from app.errors import BadRequest, Forbidden
from app.facts.as_of import parse_as_of
from app.facts.names import as_id, entity_name, predicate_name
from app.inputs import as_utc
from app.read_context import ReadContext
from app.recall.schemas import DEFAULT_RESULTS, MAX_BUDGET, MAX_DEPTH, RecallAsk, Weights
from app.retrieval.trust import LOW_TRUST, NO_TRUST
from app.tenancy.schemas import SYNONYMS, Visibility

# A thousandth, with a margin for floating point errors.
WEIGHTS_TOLERANCE = 0.001 + 1e-9
DEBUG_SCOPE = "graph:search:debug"
T = TypeVar("T", int, str)
READ_SCOPES = {"facts": "facts:read", "notes": "notes:read"}


class CheckedRequest(msgspec.Struct, frozen=True, kw_only=True):
    """A valid recall request, with synonyms resolved."""

    options: RecallAsk
    """The request body."""
    query: str
    max_results: int
    include: frozenset[str]
    entity: str | None
    relation: str | None
    context: ReadContext

    def min_trust(self, *, use_trust: bool) -> float:
        """Return the least confidence times trust of a fact, in a project that uses trust or does not."""
        if self.options.include_low_trust:
            return 0.0
        return LOW_TRUST if use_trust else NO_TRUST

    @property
    def scope(self) -> Visibility | None:
        """The only visibility scope to read, or None for all."""
        return cast(Visibility | None, self.context.scope)

    @property
    def is_present(self) -> bool:
        """Whether it asks for the present, not for a past time."""
        return self.context.as_of is None and self.context.valid_at is None

    def to_trace(self) -> dict[str, Any]:
        """Return what a trace stores of the request."""
        stored: dict[str, Any] = msgspec.to_builtins(self.options)
        stored |= {"query": self.query, "max_results": self.max_results, "include": sorted(self.include)}
        return {name: value for name, value in stored.items() if value is not None}


def check(who: Principal, ask: RecallAsk, *, hold_denied: frozenset[str] = frozenset()) -> CheckedRequest:
    """Return the checked request; raise BadRequest or Forbidden that names the invalid field."""
    field, query = _either(ask.query, ask.intent, "query", "intent")
    if query is None or not query.strip():
        raise BadRequest(f"{field}: must not be empty.", code="invalid_query")
    if not 1 <= ask.token_budget <= MAX_BUDGET:
        raise BadRequest(f"token_budget: must be from 1 to {MAX_BUDGET}.", code="invalid_token_budget")
    if not 0 <= ask.depth <= MAX_DEPTH:
        raise BadRequest(f"depth: must be from 0 to {MAX_DEPTH}.", code="recall_depth_exceeded")
    _, max_results = _either(ask.max_results, ask.max_facts, "max_results", "max_facts")
    _check_weights(ask.weights)
    if ask.debug and DEBUG_SCOPE not in who.scopes:
        raise Forbidden(
            f"debug: this key lacks the scope {DEBUG_SCOPE}.", code="missing_scope", details={"needs": [DEBUG_SCOPE]}
        )
    entity, relation = _entity(ask), _relation(ask)
    include = {kind for kind in ask.include if READ_SCOPES[kind] in who.scopes}
    if relation is not None:
        # Notes have no predicate.
        if "facts" not in ask.include:
            raise BadRequest("include: relation applies to facts only; add facts to include, or leave relation out.")
        include &= {"facts"}
    if not include:
        needs = sorted(READ_SCOPES[kind] for kind in ask.include)
        raise Forbidden(
            "include: this key may read none of these kinds.", code="missing_scope", details={"needs": needs}
        )
    scope = None if ask.scope is None else SYNONYMS.get(ask.scope, ask.scope)
    valid_at = None if ask.valid_at is None else as_utc(ask.valid_at, "valid_at")
    return CheckedRequest(
        options=ask,
        query=query.strip(),
        max_results=DEFAULT_RESULTS if max_results is None else max_results,
        include=frozenset(include),
        entity=entity,
        relation=relation,
        context=ReadContext.of(
            who, valid_at=valid_at, as_of=parse_as_of(ask.as_of), scope=scope, hold_denied=hold_denied, shared=True
        ),
    )


def _check_weights(weights: Weights) -> None:
    given = (weights.lexical, weights.vector, weights.graph)
    # A weight above 1 makes the sum exceed 1, which is checked below.
    if any(not weight >= 0 for weight in given):
        raise BadRequest("weights: each must be from 0 to 1.", code="invalid_weights")
    total = sum(given)
    if not abs(total - 1.0) <= WEIGHTS_TOLERANCE:
        raise BadRequest(
            f"weights: lexical, vector and graph must sum to 1; these sum to {total:.3f}.", code="invalid_weights"
        )


def _entity(ask: RecallAsk) -> str | None:
    field, name = _either(ask.entity, ask.entity_uri, "entity", "entity_uri")
    if name is not None and as_id(name) is None:
        # Validated here, since the error has to name the field that was sent.
        entity_name(name, field)
    return name


def _relation(ask: RecallAsk) -> str | None:
    field, name = _either(ask.relation, ask.predicate, "relation", "predicate")
    if name is not None and as_id(name) is None:
        predicate_name(name, field)
    return name


def _either(one: T | UnsetType, other: T | UnsetType, name: str, synonym: str) -> tuple[str, T | None]:
    """Return the name of the field that was sent, and its value."""
    if one is not UNSET and other is not UNSET:
        raise BadRequest(f"{name}: give only one of {name} or {synonym}.")
    if other is not UNSET:
        return synonym, other
    return name, None if one is UNSET else one
