"""The provenance of a fact: the facts it was derived from, step by step."""

from collections import Counter
from uuid import UUID

from app.db.database import Database, Row
from app.errors import BadRequest
from app.facts import queries, reads
from app.facts.as_of import look_back
from app.facts.schemas import FactRead, Provenance, ProvenanceEdge, ProvenanceNode
from app.read_context import ReadContext

MAX_DEPTH = 5
MAX_ROWS = 1000
MAX_SOURCES = 200


async def get_provenance(db: Database, context: ReadContext, *, fact_id: UUID, depth: int) -> Provenance:
    """Return the sources of a fact up to `depth` steps back; hidden ones look like absent ones."""
    if not 1 <= depth <= MAX_DEPTH:
        raise BadRequest(f"depth: from 1 to {MAX_DEPTH}.", code="graph_depth_exceeded")
    who, as_of = context.who, context.as_of
    params = {**context.parameters(), "fact": str(fact_id), "depth": depth, "limit": MAX_ROWS + 1}
    statement = queries.select_provenance(in_scope=context.scope is not None, at_past=as_of is not None)
    rows = await look_back(db, who, statement, params)
    if not rows:
        raise reads.fact_not_found()
    # The query goes one step further than asked, to find out whether there is more.
    shown = [row for row in rows[:MAX_ROWS] if row["depth"] <= depth]
    facts = await reads.read_facts(db, who, ids={row["fact_id"] for row in shown if row["fact_id"]}, as_of=as_of)
    notices = await reads.notices_of(db, who, list(facts.values()), context.hold_denied)
    edges = {(row["parent"], row["hash"], row["kind"]): None for row in shown if row["parent"] is not None}
    further = {(row["parent"], row["hash"], row["kind"]) for row in rows[:MAX_ROWS] if row["depth"] > depth}
    sources = Counter(parent for parent, _, _ in edges)
    return Provenance(
        root_fact_id=fact_id,
        depth_limit=depth,
        nodes=[_node(row, facts) for row in _first_of_each(shown)],
        edges=[ProvenanceEdge(derived_fact_id=parent, source_hash=digest, kind=kind) for parent, digest, kind in edges],
        tombstone_notices=notices,
        truncated=len(rows) > MAX_ROWS or not further <= set(edges) or max(sources.values(), default=0) > MAX_SOURCES,
    )


def _first_of_each(rows: list[Row]) -> list[Row]:
    found: dict[str, Row] = {}
    for row in rows:
        found.setdefault(row["hash"], row)
    return list(found.values())


def _node(row: Row, facts: dict[UUID, FactRead]) -> ProvenanceNode:
    fact = facts.get(row["fact_id"])
    if fact is None:
        return ProvenanceNode(hash=row["hash"], exists=False)
    return ProvenanceNode(hash=row["hash"], exists=True, depth=row["depth"], fact=fact)
