"""Provenance of results: add the facts that recalled facts were derived from."""

from uuid import UUID

import msgspec
from msgspec import UNSET, UnsetType

from app.db.database import Database
from app.facts import reads
from app.facts.schemas import FactRead
from app.recall import queries
from app.recall.rendering import value_text
from app.recall.request import CheckedRequest
from app.recall.schemas import RecalledFact, RecalledNote, ValueRead
from app.retrieval.channels import Channels
from app.retrieval.packing import token_cost

Result = RecalledFact | RecalledNote


def present_fact(
    fact: FactRead, *, score: float, hops: int, card_stale: bool = False, provenance_of: UUID | UnsetType = UNSET
) -> RecalledFact:
    """Return a fact as a result."""
    entity = fact.object.entity
    value = (
        ValueRead(type="ref", v=entity.canonical)
        if entity is not UNSET
        else ValueRead(type=str(fact.object.type), v=fact.object.value)
    )
    return RecalledFact(
        **{name: getattr(fact, name) for name in fact.__struct_fields__},
        id=fact.fact_id,
        entity=fact.subject.canonical,
        relation=fact.predicate.name,
        value=value,
        score=score,
        hops=hops,
        card_stale=card_stale,
        provenance_of=provenance_of,
    )


async def add_parents(
    db: Database,
    request: CheckedRequest,
    channels: Channels,
    results: list[Result],
    used: int,
    *,
    max_facts: int | None,
) -> tuple[list[Result], int]:
    """Append the facts that results were derived from, where they match the request and fit; mark those there already.

    Returns all results and the tokens they use.
    """
    children = [result for result in results if isinstance(result, RecalledFact) and result.derived_from]
    if not children:
        return results, used
    origins = await _find_origins(db, request, children)
    first = dict(reversed(origins))
    present = {result.id for result in results}
    facts = await channels.filter_facts(sorted(str(fact) for fact in set(first) - present))
    if not request.options.include_contradicted:
        facts = facts.preferred()
    context = request.context
    read = await reads.read_facts(db, context.who, ids={UUID(fact) for fact in facts.ids}, as_of=context.as_of)
    shown: list[Result] = [
        msgspec.structs.replace(result, provenance_of=first[result.id].id)
        if isinstance(result, RecalledFact) and result.id in first and first[result.id].id != result.id
        else result
        for result in results
    ]
    left = request.max_results - len(results)
    if max_facts is not None:
        left = min(left, max_facts - sum(isinstance(result, RecalledFact) for result in results))
    for origin, child in origins:
        fact = read.pop(origin, None)
        cost = 0 if fact is None else token_cost(value_text(fact))
        if fact is None or left == 0 or used + cost > request.options.token_budget:
            continue
        used += cost
        left -= 1
        shown.append(present_fact(fact, score=0.0, hops=child.hops + 1, provenance_of=child.id))
    return shown, used


async def _find_origins(
    db: Database, request: CheckedRequest, children: list[RecalledFact]
) -> list[tuple[UUID, RecalledFact]]:
    """Return the facts that these were derived from, each with the derived fact."""
    hashes = sorted({found for child in children for found in child.derived_from})
    params = {**request.context.parameters(), "hashes": hashes}
    rows = await db.query(request.context.who, queries.FACTS_BY_HASH, params)
    # The first fact written with a hash wins.
    ids = {row["hash"]: UUID(str(row["fact_id"])) for row in reversed(rows)}
    return [(ids[origin], child) for child in children for origin in child.derived_from if origin in ids]
