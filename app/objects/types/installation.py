"""Types of the whole installation: the operator registers them, tenants use or override them."""

from datetime import UTC, datetime
from typing import Any

import msgspec

from app.batches import convert_item
from app.db.database import Database, Row, Session
from app.errors import BadRequest
from app.objects.types import queries
from app.objects.types.queries import Kind
from app.objects.types.schemas import ObjectTypeCreate, RelationshipTypeCreate
from app.objects.types.search_settings import JOB, hash_settings
from app.objects.types.service import type_content, type_row


class TypesFile(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A file of types: the request bodies of the two registries."""

    objects: list[dict[str, Any]] = []
    relationships: list[dict[str, Any]] = []


def read_file(text: bytes) -> TypesFile:
    """Return the types of a file; raise BadRequest when it is not valid."""
    try:
        return msgspec.json.decode(text, type=TypesFile)
    except msgspec.MsgspecError as problem:
        raise BadRequest(f"FILE: {problem}; it has to contain the lists objects and relationships.") from problem


async def load_types(owner: Database, data: TypesFile) -> list[dict[str, Any]]:
    """Register types for all tenants; a type that equals its active version gets no new one.

    Tenants whose objects follow a type that says something else about search now get a job each.
    """
    loaded: list[dict[str, Any]] = []
    given: list[tuple[Kind, ObjectTypeCreate | RelationshipTypeCreate]] = [
        *(("object", convert_item(item, ObjectTypeCreate)) for item in data.objects),
        *(("relationship", convert_item(item, RelationshipTypeCreate)) for item in data.relationships),
    ]
    async with owner.system() as session:
        for kind, item in given:
            row = type_row(kind, item)
            found = await session.rows(queries.GLOBAL_VERSIONS[kind], {"type": item.type})
            active = [one for one in found if one["status"] == "active"]
            same = [one for one in active if type_content(kind, one) == type_content(kind, row)]
            if same:
                known = {"kind": kind, "type": item.type, "version": same[0]["version"], "created": False, "jobs": 0}
                loaded.append(known)
                continue
            version = max((one["version"] for one in found), default=0) + 1
            await session.execute(queries.GLOBAL_RETIRE[kind], {"type": item.type})
            made = row | {
                "version": version,
                "status": "active",
                "created_by": "operator",
                "created_at": datetime.now(UTC),
            }
            await session.execute(queries.insert_global(kind), made)
            jobs = await _apply_change(session, item.type, active, made) if kind == "object" else 0
            loaded.append({"kind": kind, "type": item.type, "version": version, "created": True, "jobs": jobs})
    return loaded


async def _apply_change(session: Session, name: str, active: list[Row], made: Row) -> int:
    """Queue the jobs for existing objects if a type says something else about search; return how many."""
    settings = hash_settings(made)
    if settings == hash_settings(active[0] if active else None):
        return 0
    payload = msgspec.json.encode({"type": name, "settings": settings}).decode()
    return len(await session.rows(queries.QUEUE_JOBS, {"kind": JOB, "type": name, "payload": payload}))


async def list_types(owner: Database) -> list[dict[str, Any]]:
    """Return the active versions by kind and name."""
    kinds: tuple[Kind, ...] = ("object", "relationship")
    async with owner.system() as session:
        return [
            {"kind": kind, "type": row["type"], "version": row["version"], "description": row["description"]}
            for kind in kinds
            for row in await session.rows(queries.GLOBAL_ACTIVE[kind])
        ]
