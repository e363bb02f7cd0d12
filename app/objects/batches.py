"""Many objects and relationships in one transaction, with references between them: all or none."""

from typing import Any
from uuid import UUID

import msgspec

from app.access import Principal
from app.batches import Item, check_size, convert_item, stop_if_atomic
from app.db.database import Database, Session
from app.db.retries import retried
from app.errors import AppError, BadRequest
from app.objects.relationships import refuse_foreign, store_relationships
from app.objects.schemas import (
    BatchObject,
    BatchRelationship,
    GraphBatch,
    GraphBatchDone,
    ObjectCreate,
    ObjectRead,
    ObjectResult,
    RelationshipCreate,
    RelationshipRead,
    RelationshipResult,
)
from app.objects.service import store_objects
from app.objects.versions import present
from app.web.idempotency import Answer, Once


async def create_batch(db: Database, who: Principal, *, data: GraphBatch, once: Once) -> Answer:
    """Stores a batch; the first error undoes all of it and names the item."""
    check_size([*data.objects, *data.relationships], "objects and relationships")
    if not data.objects and not data.relationships:
        raise BadRequest("objects: send objects, relationships, or both.", code="batch_empty")
    objects = _convert("objects", data.objects, BatchObject)
    links = _convert("relationships", data.relationships, BatchRelationship)
    refs = _refs(objects)
    await refuse_foreign(db, who, [end for item in links for end in (item.src_id, item.dst_id) if end is not None])

    async def write() -> Answer:
        async with once.tenant(db, who) as step:
            return step.stored or await step.answer(201, await _store(step.session, who, objects, links, refs))

    return await retried(write)


async def _store(
    session: Session,
    who: Principal,
    objects: list[BatchObject],
    links: list[BatchRelationship],
    refs: dict[str, int],
) -> GraphBatchDone:
    plain = [_without(item, ObjectCreate, "ref") for item in objects]
    stored: list[Any] = await _placed("objects", store_objects(session, who, plain)) if plain else []
    made = {ref: UUID(str(stored[index][0]["canonical_id"])) for ref, index in refs.items()}
    ready = [_linked(index, item, made) for index, item in enumerate(links)]
    linked: list[Any] = []
    if ready:
        linked = await _placed("relationships", store_relationships(session, who, ready))
    return GraphBatchDone(
        objects=[
            ObjectResult(index=index, outcome="created", ref=item.ref, object=ObjectRead(**present(row)))
            for index, (item, (row, _)) in enumerate(zip(objects, stored, strict=True))
        ],
        relationships=[
            RelationshipResult(index=index, outcome=outcome, relationship=RelationshipRead(**present(row)))
            for index, (row, outcome, _) in enumerate(linked)
        ],
    )


def _convert(name: str, items: list[dict[str, Any]], kind: type[Item]) -> list[Item]:
    converted: list[Item] = []
    for index, item in enumerate(items):
        try:
            converted.append(convert_item(item, kind))
        except AppError as problem:
            stop_if_atomic(name, atomic=True, errors={index: problem})
    return converted


def _refs(objects: list[BatchObject]) -> dict[str, int]:
    refs: dict[str, int] = {}
    for index, item in enumerate(objects):
        if item.ref is not None:
            if item.ref in refs:
                raise BadRequest(
                    f"objects[{index}].ref: {item.ref} names another object too.",
                    code="ref_not_unique",
                    details={"index": index},
                )
            refs[item.ref] = index
    return refs


def _without(item: Any, kind: type[Item], *names: str) -> Item:
    return kind(**{name: value for name, value in msgspec.structs.asdict(item).items() if name not in names})


def _linked(index: int, item: BatchRelationship, made: dict[str, UUID]) -> RelationshipCreate:
    ends: dict[str, UUID] = {}
    for side, given, ref in (("src", item.src_id, item.src_ref), ("dst", item.dst_id, item.dst_ref)):
        place = f"relationships[{index}].{side}"
        if (given is None) == (ref is None):
            raise BadRequest(
                f"{place}_id: name the object by {side}_id or by {side}_ref, and not by both.", details={"index": index}
            )
        if ref is not None and ref not in made:
            raise BadRequest(
                f"{place}_ref: no object of this batch is called {ref}.", code="ref_unknown", details={"index": index}
            )
        found = given if ref is None else made[ref]
        assert found is not None
        ends[f"{side}_id"] = found
    plain: dict[str, Any] = {
        name: value
        for name, value in msgspec.structs.asdict(item).items()
        if name not in ("src_id", "dst_id", "src_ref", "dst_ref")
    }
    return RelationshipCreate(**plain, src_id=ends["src_id"], dst_id=ends["dst_id"])


async def _placed(name: str, work: Any) -> Any:
    """What the work answers; its error says at which item of which list."""
    try:
        return await work
    except AppError as problem:
        index = problem.details.get("index")
        if index is not None:
            problem.message = f"{name}[{index}]: {problem.message}"
        raise
