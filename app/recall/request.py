"""What is asked for, checked: synonyms, bounds, and what this caller may ask."""

from datetime import datetime
from typing import Any, cast

import msgspec
from msgspec import UNSET, UnsetType

from app.access import Principal
from app.errors import BadRequest, Forbidden
from app.facts.as_of import parse_as_of
from app.facts.names import as_id, entity_name, predicate_name
from app.inputs import as_utc
from app.recall.schemas import MAX_BUDGET, MAX_DEPTH, RecallAsk, Weights
from app.retrieval.trust import LOW_TRUST
from app.tenancy.schemas import SYNONYMS, Visibility

# A thousandth, whatever floating point makes of it.
WEIGHTS_TOLERANCE = 0.001 + 1e-9
DEBUG_SCOPE = "graph:search:debug"
READ_SCOPES = {"facts": "facts:read", "notes": "notes:read"}


class Asked(msgspec.Struct, frozen=True, kw_only=True):
    """A request that holds: what `ask` says, and what follows from it."""

    ask: RecallAsk
    query: str
    include: frozenset[str]
    entity: str | None
    relation: str | None
    scope: Visibility | None
    as_of: datetime | None
    valid_at: datetime | None

    @property
    def min_trust(self) -> float:
        """How much confidence times trust a fact must have."""
        return 0.0 if self.ask.include_low_trust else LOW_TRUST

    def plain(self) -> dict[str, Any]:
        """What a trace keeps of it."""
        said: dict[str, Any] = msgspec.to_builtins(self.ask)
        said |= {"query": self.query, "include": sorted(self.include)}
        return {name: value for name, value in said.items() if value is not None}


def check(who: Principal, ask: RecallAsk) -> Asked:
    """The request as it is meant, or the error that names its field."""
    field, query = _either(ask.query, ask.intent, "query", "intent")
    if query is None or not query.strip():
        raise BadRequest(f"{field}: say what to look for; it must not be empty.", code="invalid_query")
    if not 1 <= ask.token_budget <= MAX_BUDGET:
        raise BadRequest(f"token_budget: from 1 to {MAX_BUDGET} tokens.", code="invalid_token_budget")
    if not 0 <= ask.depth <= MAX_DEPTH:
        raise BadRequest(f"depth: from 0 to {MAX_DEPTH} edges.", code="recall_depth_exceeded")
    _check_weights(ask.weights)
    if ask.debug and DEBUG_SCOPE not in who.scopes:
        raise Forbidden(
            f"debug: this key lacks the scope {DEBUG_SCOPE}.", code="missing_scope", details={"needs": [DEBUG_SCOPE]}
        )
    entity, relation = _entity(ask), _relation(ask)
    include = {kind for kind in ask.include if READ_SCOPES[kind] in who.scopes}
    if relation is not None:
        # A note says nothing by a predicate.
        if "facts" not in ask.include:
            raise BadRequest("include: a relation is of facts; include facts, or leave it out.")
        include &= {"facts"}
    if not include:
        needs = sorted(READ_SCOPES[kind] for kind in ask.include)
        raise Forbidden("include: this key may read none of it.", code="missing_scope", details={"needs": needs})
    return Asked(
        ask=ask,
        query=query.strip(),
        include=frozenset(include),
        entity=entity,
        relation=relation,
        scope=None if ask.scope is None else cast(Visibility, SYNONYMS.get(ask.scope, ask.scope)),
        as_of=parse_as_of(ask.as_of),
        valid_at=None if ask.valid_at is None else as_utc(ask.valid_at, "valid_at"),
    )


def _check_weights(weights: Weights) -> None:
    given = (weights.lexical, weights.vector, weights.graph)
    # What is over 1 is over it in sum too.
    if any(not weight >= 0 for weight in given):
        raise BadRequest("weights: each from 0 to 1.", code="invalid_weights")
    total = sum(given)
    if not abs(total - 1.0) <= WEIGHTS_TOLERANCE:
        raise BadRequest(
            f"weights: lexical, vector and graph must sum to 1; these sum to {total:.3f}.", code="invalid_weights"
        )


def _entity(ask: RecallAsk) -> str | None:
    field, name = _either(ask.entity, ask.entity_uri, "entity", "entity_uri")
    if name is not None and as_id(name) is None:
        # Here, where the field that was sent is known.
        entity_name(name, field)
    return name


def _relation(ask: RecallAsk) -> str | None:
    field, name = _either(ask.relation, ask.predicate, "relation", "predicate")
    if name is not None and as_id(name) is None:
        predicate_name(name, field)
    return name


def _either(one: str | UnsetType, other: str | UnsetType, name: str, synonym: str) -> tuple[str, str | None]:
    """The field that was sent, and what it says."""
    if one is not UNSET and other is not UNSET:
        raise BadRequest(f"{name}: give only one of {name} or {synonym}.")
    if other is not UNSET:
        return synonym, other
    return name, None if one is UNSET else one
