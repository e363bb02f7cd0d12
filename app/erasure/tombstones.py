"""Use cases of tombstones: hide an entity, hold or erase it, revoke the tombstone, read the receipt."""

from typing import Any, cast, get_args
from uuid import UUID

import msgspec

from app.access import Principal, new_id, require_project
from app.db.counts import COUNT_LIMIT, count_query
from app.db.database import Database, Row, Session
from app.db.scope import LEGAL_HOLD
from app.erasure import queries
from app.erasure.schemas import (
    HiddenCount,
    Receipt,
    RevocationRead,
    TombstoneCreate,
    TombstoneCreated,
    TombstoneList,
    TombstoneRead,
    TombstoneRevoke,
    TombstoneRevoked,
)
from app.errors import AppError, BadRequest, Conflict, Forbidden, NotFound
from app.facts.drafts import encode_reference, entity_reference
from app.facts.entities import service as entities
from app.facts.names import plain_text
from app.outcomes import Outcome
from app.paging import Page
from app.signing import ALGORITHM, encode_base64
from app.tenancy.schemas import SYNONYMS, Visibility

SCOPES: tuple[str, ...] = get_args(Visibility)


def custodian(who: Principal) -> Principal:
    """Return the administrator with access to hidden rows; raise Forbidden for everybody else."""
    if not who.is_admin or "admin" not in who.scopes:
        raise Forbidden(
            "Only administrators can use tombstones: use a key of kind admin with the scope admin.",
            code="tombstone_access_denied",
        )
    require_project(who)
    return msgspec.structs.replace(who, reach=LEGAL_HOLD)


def tombstone_not_found() -> NotFound:
    """Return the error for a tombstone that is unknown or of another tenant."""
    return NotFound("There is no such tombstone.", code="tombstone_not_found")


def _scopes(given: Any) -> list[str] | None:
    """Return the scopes a tombstone covers; None is all of them."""
    if given == "*":
        return None
    names = cast(list[Any], given) if isinstance(given, list) else [given]
    found = [SYNONYMS.get(name, name) for name in names if isinstance(name, str)]
    if not found or len(found) != len(names) or not set(found) <= set(SCOPES):
        raise BadRequest(
            f"scope: must be * for all, or one or several of {', '.join(SCOPES)}.", code="tombstone_invalid_scope"
        )
    return None if set(found) == set(SCOPES) else list(dict.fromkeys(found))


def _entity(data: TombstoneCreate) -> Row:
    given = [text for text in (data.entity, data.entity_uri) if text is not msgspec.UNSET]
    if len(given) != 1:
        raise BadRequest(
            "entity: give only one of entity or entity_uri." if given else "entity: required.",
            code="tombstone_entity_invalid",
        )
    try:
        return entity_reference(given[0], "entity")
    except BadRequest as problem:
        raise BadRequest(problem.message, code="tombstone_entity_invalid") from problem


async def create_tombstone(session: Session, who: Principal, *, data: TombstoneCreate) -> Outcome[TombstoneCreated]:
    """Hide an entity at once; with `erase` a job destroys it after the grace period.

    The same request again, while its tombstone is active, returns that one. The session must be open in the scope of
    `custodian(who)`.
    """
    who = custodian(who)
    arguments = _new_tombstone(who, data)
    await session.execute(queries.NO_TIMEOUT)
    row = await session.row(queries.ISSUE_TOMBSTONE, arguments)
    assert row is not None
    repeated = row["refused"] == "repeated"
    if row["refused"] is not None and not repeated:
        raise await _refusal(session, who, row)
    session.wake_workers()
    created = TombstoneCreated(
        tombstone=await _read(session, who, str(row["tombstone_id"])),
        # A key bound to a project cannot read jobs of the whole tenant; it reads `erased_at` of the tombstone instead.
        job_id=row["job_id"] if who.key_project is None else None,
        hidden=HiddenCount(facts=row["facts_hidden"], notes=row["notes_hidden"], objects=row["objects_hidden"]),
        possible_notes=row["possible"] or [],
    )
    return Outcome(created, created=not repeated)


def _new_tombstone(who: Principal, data: TombstoneCreate) -> dict[str, Any]:
    """Return the arguments of issue_tombstone or raise what is wrong with the request."""
    entity, scopes = _entity(data), _scopes(data.scope)
    reason = plain_text(data.reason, "reason")
    if data.legal_hold and data.erase:
        raise Conflict(
            "erase: cannot be combined with legal_hold, which keeps what it hides.", code="legal_hold_active"
        )
    if data.grace_seconds and not data.erase:
        raise BadRequest("grace_seconds: only with erase, which it delays.")
    return {
        "id": new_id(),
        "entity": encode_reference(entity),
        "scopes": scopes,
        "reason": reason,
        "hold": data.legal_hold,
        "erase": data.erase,
        "grace": data.grace_seconds,
        "named": data.notes == "named",
        "key": who.key_id,
        "job": new_id(),
    }


async def _refusal(session: Session, who: Principal, row: Row) -> AppError:
    code = row["refused"]
    if code == "entity_not_found":
        return entities.entity_not_found("entity")
    if code == "entity_ambiguous":
        found = await entities.read_entities(session, who, ids=row["candidates"])
        return entities.ambiguous(found, "entity")
    if code == "erasure_blocked":
        return Conflict(
            "erase: a legal hold covers this entity, or facts or notes it shares with another; revoke the hold first.",
            code="legal_hold_active",
            details={"tombstone_id": str(row["other"])},
        )
    return Conflict(
        "entity: it has an active tombstone already; revoke that one first.",
        code="tombstone_already_exists",
        details={"tombstone_id": str(row["other"])},
    )


def _place(who: Principal) -> dict[str, str]:
    return {"tenant": who.tenant_id, "project": require_project(who)}


async def _read(session: Session, who: Principal, tombstone_id: str) -> TombstoneRead:
    params = {**_place(who), "tombstone": tombstone_id, "limit": 1}
    rows = await session.query(queries.select_tombstones({"tombstone"}), params)
    if not rows:
        raise tombstone_not_found()
    return _present(rows[0])


def _present(row: Row) -> TombstoneRead:
    scopes: list[str] | None = row["scopes"]
    names = (
        "tombstone_id", "entity", "entity_id", "reason", "created_by", "created_at", "legal_hold", "erase", "erase_at",
        "erased_at",
    )  # fmt: skip
    revocation = None
    if row["revoked_at"] is not None:
        revocation = RevocationRead(
            reason=row["revocation_reason"], revoked_by=row["revoked_by"], revoked_at=row["revoked_at"]
        )
    return TombstoneRead(
        **{name: row[name] for name in names},
        scope="*" if scopes is None else scopes[0] if len(scopes) == 1 else scopes,
        revocation=revocation,
    )


async def list_tombstones(db: Database, who: Principal, *, active: bool | None, page: Page) -> TombstoneList:
    """Return the tombstones of the project, newest first."""
    who = custodian(who)
    given: dict[str, Any] = {} if active is None else {"active": active}
    after = {} if page.after is None else {"after": page.after[0], "after_id": page.after[1]}
    query = queries.select_tombstones({*given, *after} - {"after_id"})
    found = await db.query(who, query, {**_place(who), **given, **after, "limit": page.limit + 1})
    rows, next_cursor = page.cut(found, key=lambda row: [row["created_at"].isoformat(), str(row["tombstone_id"])])
    every = {**_place(who), **given, "limit": COUNT_LIMIT}
    total = await page.count(lambda: db.query(who, count_query(queries.select_tombstones(set(given))), every))
    return TombstoneList(tombstones=[_present(row) for row in rows], next_cursor=next_cursor, total=total)


async def get_tombstone(db: Database, who: Principal, *, tombstone_id: UUID) -> TombstoneRead:
    """Return one tombstone or raise NotFound."""
    who = custodian(who)
    async with db.tenant(who) as session:
        return await _read(session, who, str(tombstone_id))


async def revoke_tombstone(
    session: Session, who: Principal, *, tombstone_id: UUID, data: TombstoneRevoke
) -> Outcome[TombstoneRevoked]:
    """Revoke a tombstone and restore what no other one hides; erasures that a hold blocked continue.

    The session must be open in the scope of `custodian(who)`.
    """
    who = custodian(who)
    reason = plain_text(data.reason, "reason")
    await session.execute(queries.NO_TIMEOUT)
    arguments = {"tombstone": str(tombstone_id), "id": new_id(), "reason": reason, "key": who.key_id}
    row = await session.row(queries.REVOKE_TOMBSTONE, arguments)
    assert row is not None
    if row["refused"] == "tombstone_not_found":
        raise tombstone_not_found()
    if row["refused"] == "tombstone_erased":
        raise Conflict("What this tombstone hid has been erased and cannot be restored.", code="tombstone_erased")
    if row["refused"] is not None:
        raise Conflict("This tombstone has been revoked already.", code="tombstone_already_revoked")
    session.wake_workers()
    return Outcome(TombstoneRevoked(tombstone=await _read(session, who, str(tombstone_id))), created=False)


async def get_receipt(db: Database, who: Principal, *, tombstone_id: UUID) -> Receipt:
    """Return the signed receipt of a completed erasure or raise NotFound."""
    who = custodian(who)
    async with db.tenant(who) as session:
        tombstone = await _read(session, who, str(tombstone_id))
        rows = await session.query(queries.RECEIPT, {**_place(who), "tombstone": str(tombstone_id)})
    if not rows:
        raise NotFound(
            "There is no receipt yet: the erasure is not done, or a legal hold blocks it; read the status of its job."
            if tombstone.erase
            else "There is no receipt: this tombstone hides the entity without erasing it.",
            code="receipt_not_found",
        )
    (row,) = rows
    return Receipt(
        receipt=msgspec.json.decode(row["signed"]),
        signed=row["signed"],
        signature=encode_base64(row["signature"]),
        public_key=encode_base64(row["public_key"]),
        algorithm=ALGORITHM,
    )
