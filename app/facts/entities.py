"""Use cases of entities: make, find, name, merge."""

from datetime import datetime
from typing import Any
from uuid import UUID

import msgspec
from msgspec import UNSET, UnsetType

from app.access import Principal, new_id, require_project
from app.db.database import Database, Row, Session
from app.db.retries import retried
from app.errors import BadRequest, Conflict, NotFound
from app.facts import queries
from app.facts.as_of import HELD, hold_notices, look_back
from app.facts.names import Name, as_id, entity_name, normalize_entity_name, plain_text
from app.facts.schemas import (
    AliasCreate,
    AliasCreated,
    AliasRead,
    EntityCreate,
    EntityCreated,
    EntityList,
    EntityMerge,
    EntityMerged,
    EntityRead,
    TombstoneNotice,
)
from app.paging import Page
from app.read_context import reader
from app.web.idempotency import Answer, Once


def present_entity(row: Row) -> EntityRead:
    """An entity as it goes out."""
    return EntityRead(
        entity_id=UUID(str(row["entity_id"])),
        canonical=row["canonical"],
        kind=row["kind"],
        aliases=list(row["aliases"]),
        object_canonical_id=row["object_canonical_id"],
        created_at=row["created_at"],
        updated_at=row["updated_at"],
        tombstone_status="legal_hold" if row["suppression"] == HELD else UNSET,
    )


def entity_not_found(field: str | None = None) -> NotFound:
    """The one answer for an entity that is unknown, hidden or of another tenant."""
    return NotFound(
        f"{field}: there is no such entity." if field else "There is no such entity.", code="entity_not_found"
    )


def ambiguous(rows: list[Row], field: str) -> Conflict:
    """The error for a name that several entities share, with the candidates."""
    candidates: list[dict[str, Any]] = [
        {"entity_id": str(row["entity_id"]), "canonical": row["canonical"], "kind": row["kind"]} for row in rows
    ]
    names = ", ".join(row["canonical"] for row in rows[:5])
    return Conflict(
        f"{field}: this name fits several entities ({names}); use a canonical name or an id.",
        code="entity_ambiguous",
        details={"candidates": candidates},
    )


async def create_entity(db: Database, who: Principal, *, data: EntityCreate, once: Once) -> Answer:
    """Makes an entity, or answers the one of that name; a kind and aliases that are said are taken on."""
    name = entity_name(data.canonical, "canonical")
    kind = plain_text(data.kind, "kind")
    aliases = [entity_name(alias, f"aliases[{index}]") for index, alias in enumerate(data.aliases)]

    async def write() -> Answer:
        async with once.tenant(db, who) as step:
            if step.stored:
                return step.stored
            made = await step.session.row(
                queries.PUT_ENTITY,
                {
                    "id": new_id(),
                    "canonical": name.shown,
                    "norm": name.norm,
                    "kind": kind,
                    "aliases": msgspec.json.encode(_alias_rows(aliases)).decode(),
                },
            )
            assert made is not None
            if made["hidden"] is not None:
                return await step.answer(201, _as_if_new(who, made, name=name, kind=kind, aliases=aliases))
            entity = await _read(step.session, who, str(made["entity_id"]))
            return await step.answer(
                201 if made["created"] else 200, EntityCreated(entity=entity, created=made["created"])
            )

    return await retried(write)


def _as_if_new(who: Principal, made: Row, *, name: Name, kind: str | None, aliases: list[Name]) -> EntityCreated:
    """What an agent is told of a name that a tombstone hides: that of one nobody ever used."""
    if who.is_admin:
        raise tombstoned("canonical")
    names = {alias.norm: alias.shown for alias in aliases if alias.norm != name.norm}
    entity = EntityRead(
        entity_id=UUID(str(made["hidden"])),
        canonical=name.shown,
        kind=kind,
        aliases=[names[norm] for norm in sorted(names)],
        object_canonical_id=None,
        created_at=made["created_at"],
        updated_at=made["created_at"],
    )
    return EntityCreated(entity=entity, created=True)


def tombstoned(field: str) -> Conflict:
    """The error for administrators who write about what a tombstone hides."""
    return Conflict(
        f"{field}: this entity is under a tombstone; revoke it before writing about it.", code="entity_tombstoned"
    )


def _alias_rows(aliases: list[Name]) -> list[dict[str, str]]:
    return [{"new_id": new_id(), "alias": alias.shown, "norm": alias.norm} for alias in aliases]


async def read_entities(session: Session, who: Principal, *, ids: list[UUID]) -> list[Row]:
    """Those of these entities that the caller can see."""
    return await session.query(queries.ENTITIES_BY_ID, {"tenant": who.tenant_id, "ids": [str(found) for found in ids]})


async def _read(session: Session, who: Principal, entity_id: str) -> EntityRead:
    rows = await read_entities(session, who, ids=[UUID(entity_id)])
    if not rows:
        raise entity_not_found()
    return present_entity(rows[0])


async def find_named(
    db: Database, who: Principal, text: str, field: str, *, as_of: datetime | None = None
) -> list[Row]:
    """The entities that a name, URI, alias or id means."""
    entity_id = as_id(text)
    params = {
        "tenant": who.tenant_id,
        "project": require_project(who),
        "meant": entity_id or entity_name(text, field).norm,
        "as_of": as_of,
    }
    statement = queries.select_meant(by_id=entity_id is not None, at_past=as_of is not None)
    return await look_back(db, who, statement, params)


async def get_entity(
    db: Database,
    who: Principal,
    *,
    reference: str,
    as_of: datetime | None = None,
    denied: frozenset[str] = frozenset(),
) -> EntityRead:
    """One entity by id, canonical name, alias or URI; a merged one answers as what it became."""
    who = reader(who, as_of)
    rows = await find_named(db, who, reference, "entity", as_of=as_of)
    if not rows:
        raise entity_not_found()
    notices = await notices_of(db, who, rows, denied)
    if len(rows) > 1:
        raise ambiguous(rows, "entity")
    return msgspec.structs.replace(present_entity(rows[0]), tombstone_notices=notices)


async def notices_of(
    db: Database, who: Principal, rows: list[Row], denied: frozenset[str]
) -> list[TombstoneNotice] | UnsetType:
    """The holds on those of these entities that are only seen because the caller looks back, put on record."""
    held = {row["entity_id"] for row in rows if row["suppression"] == HELD}
    if not held:
        return UNSET
    return await hold_notices(
        db, who, entities={(found, None) for found in held}, denied=denied, entity_ids=sorted(held)
    )


async def list_entities(
    db: Database,
    who: Principal,
    *,
    filters: dict[str, str | None],
    as_of: datetime | None,
    page: Page,
    denied: frozenset[str] = frozenset(),
) -> EntityList:
    """Entities by name; with a name those it means, with a prefix those that begin so."""
    who = reader(who, as_of)
    if (name := filters["name"]) is not None:
        rows, next_cursor = await find_named(db, who, name, "name", as_of=as_of), None
    else:
        prefix = filters["prefix"]
        given = {
            "prefix": None if prefix is None else _normal_prefix(prefix),
            "kind": filters["kind"],
            "after": None if page.after is None else page.after[0],
        }
        asked = {name: value for name, value in given.items() if value}
        place = {"tenant": who.tenant_id, "project": require_project(who), "as_of": as_of}
        statement = queries.select_entities(set(asked), at_past=as_of is not None)
        found = await look_back(db, who, statement, {**asked, **place, "limit": page.limit + 1})
        rows, next_cursor = page.cut(found, key=lambda row: [row["canonical_norm"]])
    notices = await notices_of(db, who, rows, denied)
    return EntityList(
        entities=[present_entity(row) for row in rows], next_cursor=next_cursor, tombstone_notices=notices
    )


def _normal_prefix(prefix: str) -> str:
    norm = normalize_entity_name(prefix)
    # "alice " must not find "alicent": a trailing blank is part of what was typed.
    return f"{norm} " if norm and prefix[-1:].isspace() and ":" not in norm else norm


async def add_alias(db: Database, who: Principal, *, entity_id: UUID, data: AliasCreate, once: Once) -> Answer:
    """Gives an entity one more name."""
    name = entity_name(data.alias, "alias")

    async def write() -> Answer:
        async with once.tenant(db, who) as step:
            if step.stored:
                return step.stored
            arguments = {"entity": str(entity_id), "id": new_id(), "alias": name.shown, "norm": name.norm}
            row = await step.session.row(queries.PUT_ALIAS, arguments)
            if row is None:
                raise entity_not_found()
            if row["alias_id"] is None:
                raise Conflict("alias: this is the entity's own name already.", code="alias_is_name")
            alias = AliasRead(
                alias_id=row["alias_id"], entity_id=row["entity_id"], alias=row["alias"], created_at=row["created_at"]
            )
            return await step.answer(201 if row["created"] else 200, AliasCreated(alias=alias, created=row["created"]))

    return await retried(write)


async def merge_entity(db: Database, who: Principal, *, entity_id: UUID, data: EntityMerge, once: Once) -> Answer:
    """Merges two entities into one, with all that is known of either."""
    if (data.into is None) == (data.source is None):
        raise BadRequest("into: name the entity to merge into, or the one to merge as from, and not both.")
    source, target = (entity_id, data.into) if data.into is not None else (data.source, entity_id)

    async def write() -> Answer:
        async with once.tenant(db, who) as step:
            if step.stored:
                return step.stored
            arguments = {"source": str(source), "target": str(target), "key": who.key_id}
            row = await step.session.row(queries.MERGE_ENTITIES, arguments)
            assert row is not None
            _check_merge(row["refused"])
            entity = await _read(step.session, who, str(target))
            body = EntityMerged(
                entity=entity,
                merged=UUID(str(source)),
                facts_moved=row["facts_moved"],
                facts_folded=row["facts_folded"],
            )
            return await step.answer(200, body)

    return await retried(write)


def _check_merge(refused: str | None) -> None:
    if refused == "same_entity":
        raise Conflict("into: an entity cannot be merged into itself.", code="same_entity")
    if refused == "entity_merged":
        raise Conflict(
            "One of the two has been merged already; read it by its id to see what it became.", code="entity_merged"
        )
    if refused is not None:
        raise entity_not_found()
