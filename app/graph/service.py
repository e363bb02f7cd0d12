"""Use cases of the graph: the neighbors of an entity."""

import re
from typing import Any
from uuid import UUID

import msgspec
from msgspec import UNSET, UnsetType

from app.db.database import Database, Row
from app.errors import BadRequest
from app.facts.as_of import HELD, hold_notices, look_back
from app.facts.entities import service as entities
from app.facts.names import as_id, entity_name, predicate_name
from app.facts.schemas import EntityBrief, TombstoneNotice
from app.graph import queries
from app.graph.schemas import Direction, NeighborList, NeighborRead, PathStep
from app.paging import Page
from app.read_context import ReadContext
from app.tenancy.schemas import Visibility

MAX_DEPTH = 3
MAX_LABELS = 50
# How many edges of one entity are followed at each level. The caller named the first entity; the others may be hubs.
FANOUT = (1000, 100, 100)
MAX_NODES = 2000
# Characters of regular expressions; `.*` is one too, since it is hardly meant as a literal dot.
PATTERN = re.compile(r"[\\^$|\[\](){}?+]|\.\*")


class NeighborQuery(msgspec.Struct, frozen=True, kw_only=True):
    """Where a traversal starts, how far it goes and which edges it follows."""

    entity: str
    depth: int
    scope: Visibility
    direction: Direction
    relation_filter: str | None
    min_confidence: float
    min_trust: float


class RelationFilter(msgspec.Struct, frozen=True):
    """Which relations are followed: names or ids in the form resolve_predicates reads, and prefixes of names."""

    labels: list[dict[str, Any]]
    prefixes: list[str]


def parse_relation_filter(text: str | None) -> RelationFilter | None:
    """Parse names separated by commas, each with an optional `*` at its end; return None for every relation."""
    if text is None:
        return None
    words = [word.strip() for word in text.split(",")]
    if len(words) > MAX_LABELS:
        raise _invalid_filter(f"more than {MAX_LABELS} relations")
    labels: list[dict[str, Any]] = []
    prefixes: list[str] = []
    for word in words:
        _check_relation(word)
        if word == "*":
            return None
        if word.endswith("*"):
            prefixes.append(_normal_prefix(word[:-1]))
        elif (predicate_id := as_id(word)) is not None:
            labels.append({"ref": len(labels), "predicate_id": predicate_id})
        else:
            labels.append({"ref": len(labels), "norm": _normal(word)})
    return RelationFilter(labels, prefixes)


def _check_relation(word: str) -> None:
    if PATTERN.search(word) or "*" in word[:-1]:
        raise _invalid_filter(
            "use names separated by commas, each with at most one * at its end, which matches any ending; no other "
            "patterns (give a predicate whose name looks like one by its id)"
        )


def _normal(name: str) -> str:
    try:
        return predicate_name(name, "relation_filter").norm
    except BadRequest as problem:
        raise BadRequest(problem.message, code="invalid_relation_filter") from problem


def _normal_prefix(prefix: str) -> str:
    norm = _normal(prefix)
    # "works *" must not match "workshop of": a trailing blank is part of the prefix.
    return f"{norm} " if prefix[-1].isspace() else norm


def _invalid_filter(problem: str) -> BadRequest:
    return BadRequest(f"relation_filter: {problem}.", code="invalid_relation_filter")


def check_depth(depth: int) -> None:
    """Raise BadRequest when a depth is out of bounds."""
    if not 1 <= depth <= MAX_DEPTH:
        raise BadRequest(
            f"depth: must be from 1 to {MAX_DEPTH}.", code="graph_depth_exceeded", details={"max": MAX_DEPTH}
        )


async def find_neighbors(db: Database, context: ReadContext, *, query: NeighborQuery, page: Page) -> NeighborList:
    """Return the neighbors of an entity, nearest first; none of one that is unknown. All pages read the time of the
    first."""
    who = context.who
    found = await look_back(db, who, queries.FIND_NEIGHBORS, _parameters(context, query, page))
    roots = [row for row in found if row["hops"] == 0]
    if not roots:
        return NeighborList(
            entity=None,
            depth=query.depth,
            neighbors=[],
            next_cursor=None,
            total=page.total_of(0),
            total_hint=0,
            truncated=False,
        )
    if len(roots) > 1:
        await entities.notices_of(db, who, roots, context.hold_denied)
        raise entities.ambiguous(roots, "entity")
    root = roots[0]
    known_at = root["known_at"].isoformat()
    rows, next_cursor = page.cut(
        [row for row in found if row["hops"] > 0], key=lambda row: [row["hops"], str(row["entity_id"]), known_at]
    )
    return NeighborList(
        entity=_brief(root),
        depth=query.depth,
        neighbors=[_present(row, root["entity_id"]) for row in rows],
        next_cursor=next_cursor,
        total=page.total_of(root["total"], complete=not root["truncated"]),
        total_hint=root["total"],
        truncated=root["truncated"],
        tombstone_notices=await _notices(db, context, [root, *rows], query.scope),
    )


def _parameters(context: ReadContext, query: NeighborQuery, page: Page) -> dict[str, Any]:
    entity_id = as_id(query.entity)
    relations = parse_relation_filter(query.relation_filter)
    # Later pages read what was recorded when the first was read, so that a fact written, ended or retracted in between
    # neither repeats nor skips a neighbor. (A write in progress at that moment may still show.)
    after_hops, after, pinned = page.after or (None, None, None)
    return {
        **context.parameters(),
        "entity": entity_id,
        "name": None if entity_id else entity_name(query.entity, "entity").norm,
        "scope": query.scope,
        "depth": query.depth,
        "direction": query.direction,
        "labels": None if relations is None else msgspec.json.encode(relations.labels).decode(),
        "prefixes": None if relations is None else relations.prefixes,
        "min_confidence": query.min_confidence,
        "min_trust": query.min_trust,
        "pinned": pinned,
        "fanout": list(FANOUT),
        "max_nodes": MAX_NODES,
        "after_hops": after_hops,
        "after": after,
        "limit": page.limit + 1,
    }


def _brief(row: Row) -> EntityBrief:
    return EntityBrief(entity_id=row["entity_id"], canonical=row["canonical"], kind=row["kind"])


def _present(row: Row, root: UUID) -> NeighborRead:
    path: list[PathStep] = []
    origin = root
    for fact_id, relation, subject, target in zip(
        row["facts"], row["relations"], row["subjects"], row["objects"], strict=True
    ):
        end = target if origin == subject else subject
        direction = "out" if origin == subject else "in"
        path.append(PathStep(origin=origin, relation=relation, to=end, direction=direction, fact_id=fact_id))
        origin = end
    return NeighborRead(
        entity=_brief(row),
        relation=path[-1].relation,
        hops=row["hops"],
        confidence=row["confidence"],
        source_trust=row["source_trust"],
        path=path,
        tombstone_status="legal_hold" if row["held"] or row["suppression"] == HELD else UNSET,
    )


async def _notices(
    db: Database, context: ReadContext, rows: list[Row], scope: Visibility
) -> list[TombstoneNotice] | UnsetType:
    """Return the legal holds on what is only readable at a past time, after auditing the read."""
    named: set[UUID] = {row["entity_id"] for row in rows if row["suppression"] == HELD}
    facts: set[UUID] = {fact_id for row in rows for fact_id in row["held"] or ()}
    ends: set[UUID] = {
        end
        for row in rows
        for fact_id, *both in zip(row["facts"] or (), row["subjects"] or (), row["objects"] or (), strict=True)
        if fact_id in facts
        for end in both
    }
    if not named and not facts:
        return UNSET
    held: set[tuple[UUID, str | None]] = {(end, scope) for end in ends}
    held |= {(found, None) for found in named}
    return await hold_notices(
        db,
        context.who,
        entities=held,
        denied=context.hold_denied,
        fact_ids=sorted(facts),
        entity_ids=sorted(named),
    )
