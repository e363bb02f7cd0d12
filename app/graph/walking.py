"""Use cases that walk the graph of facts: who is near an entity."""

import re
from datetime import datetime
from typing import Any
from uuid import UUID

import msgspec
from msgspec import UNSET, UnsetType

from app.access import Principal, require_project
from app.db.database import Database, Row
from app.errors import BadRequest
from app.facts.as_of import HELD, hold_notices, look_back
from app.facts.entities import service as entities
from app.facts.names import as_id, entity_name, predicate_name
from app.facts.schemas import EntityBrief, TombstoneNotice
from app.graph import queries
from app.graph.schemas import Direction, NeighborList, NeighborRead, PathStep
from app.paging import Page
from app.read_context import reader
from app.tenancy.schemas import Visibility

MAX_DEPTH = 3
MAX_LABELS = 50
# How many edges of one entity are followed, at each level; the first is what a caller asked for by name, the others may
# be hubs that nobody meant.
FANS = (1000, 100, 100)
MAX_NODES = 2000
# What a pattern is made of and a name is not; `.*` is taken for one too, since who writes it means no dot.
PATTERN = re.compile(r"[\\^$|\[\](){}?+]|\.\*")


class Walk(msgspec.Struct, frozen=True, kw_only=True):
    """What is asked: from where, how far, over which edges, at which two times."""

    entity: str
    depth: int
    scope: Visibility
    direction: Direction
    relation_filter: str | None
    min_confidence: float
    min_trust: float
    valid_at: datetime | None
    as_of: datetime | None


class Relations(msgspec.Struct, frozen=True):
    """Which relations may be walked: names or ids as the resolving functions want them, and beginnings of names."""

    labels: list[dict[str, Any]]
    prefixes: list[str]


def parse_relation_filter(text: str | None) -> Relations | None:
    """Names separated by commas, each perhaps with a `*` at its end; None when every relation is meant."""
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
    return Relations(labels, prefixes)


def _check_relation(word: str) -> None:
    if PATTERN.search(word) or "*" in word[:-1]:
        raise _invalid_filter(
            "names separated by commas, each with at most one * at its end, which stands for any ending; no other "
            "patterns (a predicate whose name looks like one can be given by its id)"
        )


def _normal(name: str) -> str:
    try:
        return predicate_name(name, "relation_filter").norm
    except BadRequest as problem:
        raise BadRequest(problem.message, code="invalid_relation_filter") from problem


def _normal_prefix(prefix: str) -> str:
    norm = _normal(prefix)
    # "works *" must not find "workshop of": a trailing blank is part of what was typed.
    return f"{norm} " if prefix[-1].isspace() else norm


def _invalid_filter(problem: str) -> BadRequest:
    return BadRequest(f"relation_filter: {problem}.", code="invalid_relation_filter")


def check_depth(depth: int) -> None:
    """Refuses to walk farther than is bounded."""
    if not 1 <= depth <= MAX_DEPTH:
        raise BadRequest(f"depth: 1 to {MAX_DEPTH}.", code="graph_depth_exceeded", details={"max": MAX_DEPTH})


async def find_neighbors(
    db: Database, who: Principal, *, walk: Walk, page: Page, denied: frozenset[str] = frozenset()
) -> NeighborList:
    """Who is near an entity, nearest first; every page knows what the first one knew."""
    who = reader(who, walk.as_of)
    found = await look_back(db, who, queries.FIND_NEIGHBORS, _parameters(who, walk, page))
    roots = [row for row in found if row["hops"] == 0]
    if not roots:
        raise entities.entity_not_found("entity")
    if len(roots) > 1:
        await entities.notices_of(db, who, roots, denied)
        raise entities.ambiguous(roots, "entity")
    root = roots[0]
    known = root["known_at"].isoformat()
    rows, next_cursor = page.cut(
        [row for row in found if row["hops"] > 0], key=lambda row: [row["hops"], str(row["entity_id"]), known]
    )
    return NeighborList(
        entity=_brief(root),
        depth=walk.depth,
        neighbors=[_present(row, root["entity_id"]) for row in rows],
        next_cursor=next_cursor,
        total_hint=root["total"],
        truncated=root["truncated"],
        tombstone_notices=await _notices(db, who, [root, *rows], walk.scope, denied),
    )


def _parameters(who: Principal, walk: Walk, page: Page) -> dict[str, Any]:
    entity_id = as_id(walk.entity)
    relations = parse_relation_filter(walk.relation_filter)
    # What is inserted, ended or taken back while somebody turns pages neither moves nor repeats what they see: pages
    # after the first know what was known when it was read. (A write that was under way just then may still show.)
    after_hops, after, pinned = page.after or (None, None, None)
    return {
        "tenant": who.tenant_id,
        "project": require_project(who),
        "entity": entity_id,
        "name": None if entity_id else entity_name(walk.entity, "entity").norm,
        "scope": walk.scope,
        "depth": walk.depth,
        "direction": walk.direction,
        "labels": None if relations is None else msgspec.json.encode(relations.labels).decode(),
        "prefixes": None if relations is None else relations.prefixes,
        "min_confidence": walk.min_confidence,
        "min_trust": walk.min_trust,
        "valid_at": walk.valid_at,
        "as_of": walk.as_of,
        "pinned": pinned,
        "fans": list(FANS),
        "most": MAX_NODES,
        "after_hops": after_hops,
        "after": after,
        "limit": page.limit + 1,
    }


def _brief(row: Row) -> EntityBrief:
    return EntityBrief(entity_id=row["entity_id"], canonical=row["canonical"], kind=row["kind"])


def _present(row: Row, root: UUID) -> NeighborRead:
    path: list[PathStep] = []
    here = root
    for fact_id, relation, subject, target in zip(
        row["facts"], row["relations"], row["subjects"], row["objects"], strict=True
    ):
        there = target if here == subject else subject
        direction = "out" if here == subject else "in"
        path.append(PathStep(origin=here, relation=relation, to=there, direction=direction, fact_id=fact_id))
        here = there
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
    db: Database, who: Principal, rows: list[Row], scope: Visibility, denied: frozenset[str]
) -> list[TombstoneNotice] | UnsetType:
    """The holds on what is only seen because the caller looks back, put on record."""
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
    return await hold_notices(db, who, entities=held, denied=denied, fact_ids=sorted(facts), entity_ids=sorted(named))
