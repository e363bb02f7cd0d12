"""Use cases of batches: many objects and relationships, with references between them, all or none."""

from collections.abc import Generator
from contextlib import contextmanager
from typing import Any
from uuid import UUID

import msgspec

from app.access import Principal
from app.batches import Item, check_size, convert_item, stop_if_atomic
from app.db.database import Database, Session
from app.errors import AppError, BadRequest
from app.objects.links import StoredRelationship, check_end_projects, store_relationships
from app.objects.schemas import (
    BatchObject,
    BatchRelationship,
    GraphBatch,
    GraphBatchResult,
    ObjectCreate,
    ObjectRead,
    ObjectResult,
    RelationshipCreate,
    RelationshipRead,
    RelationshipResult,
)
from app.objects.service import StoredObject, store_objects
from app.objects.versions import present
from app.outcomes import Outcome


class CheckedBatch(msgspec.Struct, frozen=True):
    """A batch whose items have their types and whose refs are unique."""

    objects: list[BatchObject]
    relationships: list[BatchRelationship]
    refs: dict[str, int]
    """The index of the object that each ref names."""


async def check_batch(db: Database, who: Principal, *, data: GraphBatch) -> CheckedBatch:
    """Return the batch, checked; raise the first error, which names its item."""
    check_size([*data.objects, *data.relationships], "objects and relationships")
    if not data.objects and not data.relationships:
        raise BadRequest("objects: send objects, relationships, or both.", code="batch_empty")
    objects = _convert("objects", data.objects, BatchObject)
    links = _convert("relationships", data.relationships, BatchRelationship)
    refs = _refs(objects)
    ends = [end for item in links for end in (item.src_id, item.dst_id) if end is not None]
    await check_end_projects(db, who, ends)
    return CheckedBatch(objects, links, refs)


async def create_batch(session: Session, who: Principal, *, batch: CheckedBatch) -> Outcome[GraphBatchResult]:
    """Store all of a batch or nothing; errors name their item."""
    objects: list[StoredObject] = []
    relationships: list[StoredRelationship] = []
    if batch.objects:
        with _named_item("objects"):
            objects = await store_objects(session, who, [_plain_object(item) for item in batch.objects])
    ids = {ref: UUID(str(objects[index].row["canonical_id"])) for ref, index in batch.refs.items()}
    links = [_plain_relationship(index, item, ids) for index, item in enumerate(batch.relationships)]
    if links:
        with _named_item("relationships"):
            relationships = await store_relationships(session, who, links)
    return Outcome(_result(batch, objects, relationships))


def _result(
    batch: CheckedBatch, objects: list[StoredObject], relationships: list[StoredRelationship]
) -> GraphBatchResult:
    return GraphBatchResult(
        objects=[
            ObjectResult(index=index, outcome="created", ref=item.ref, object=ObjectRead(**present(stored.row)))
            for index, (item, stored) in enumerate(zip(batch.objects, objects, strict=True))
        ],
        relationships=[
            RelationshipResult(index=index, outcome=stored.result, relationship=RelationshipRead(**present(stored.row)))
            for index, stored in enumerate(relationships)
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
                    f"objects[{index}].ref: {item.ref} is the ref of another object too; make it unique.",
                    code="ref_not_unique",
                    details={"index": index},
                )
            refs[item.ref] = index
    return refs


def _plain_object(item: BatchObject) -> ObjectCreate:
    return ObjectCreate(**{name: getattr(item, name) for name in ObjectCreate.__struct_fields__})


def _plain_relationship(index: int, item: BatchRelationship, ids: dict[str, UUID]) -> RelationshipCreate:
    ends = {side: _end_id(f"relationships[{index}].{side}", index, item, side, ids) for side in ("src", "dst")}
    fields: dict[str, Any] = {
        name: value
        for name, value in msgspec.structs.asdict(item).items()
        if name not in ("src_id", "dst_id", "src_ref", "dst_ref")
    }
    return RelationshipCreate(**fields, src_id=ends["src"], dst_id=ends["dst"])


def _end_id(place: str, index: int, item: BatchRelationship, side: str, ids: dict[str, UUID]) -> UUID:
    given: UUID | None = getattr(item, f"{side}_id")
    ref: str | None = getattr(item, f"{side}_ref")
    if given is not None and ref is None:
        return given
    if given is not None or ref is None:
        raise BadRequest(
            f"{place}_id: name the object by {side}_id or by {side}_ref, and not by both.", details={"index": index}
        )
    if ref not in ids:
        raise BadRequest(
            f"{place}_ref: no object of this batch has the ref {ref}.", code="ref_unknown", details={"index": index}
        )
    return ids[ref]


@contextmanager
def _named_item(name: str) -> Generator[None]:
    """Put the list and the index of the item at the beginning of an error's message."""
    try:
        yield
    except AppError as problem:
        index = problem.details.get("index")
        if index is not None:
            problem.message = f"{name}[{index}]: {problem.message}"
        raise
