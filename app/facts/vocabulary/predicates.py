"""Use cases of predicates: the vocabulary that grows by itself, and the decisions about it."""

from datetime import UTC, datetime
from typing import Any
from uuid import UUID

import msgspec

from app.access import Principal, new_id, require_project
from app.db.database import Database, Row, Session
from app.db.retries import retried
from app.errors import BadRequest, Conflict, Forbidden, NotFound
from app.facts import queries as fact_queries
from app.facts.drafts import alone, predicate_row
from app.facts.names import predicate_name
from app.facts.schemas import (
    AliasCreate,
    PredicateAliasCreated,
    PredicateAliasRead,
    PredicateCreate,
    PredicateCreated,
    PredicateList,
    PredicatePatch,
    PredicateRead,
)
from app.facts.vocabulary import queries
from app.paging import Page
from app.web.idempotency import Answer, Once


def _present(row: Row, who: Principal) -> PredicateRead:
    scopes: dict[str, Any] = {"__global__": "global", f"{who.tenant_id}:*": "tenant"}
    return PredicateRead(
        predicate_id=UUID(str(row["predicate_id"])),
        name=row["canonical"],
        status=row["status"],
        cardinality=row["cardinality"],
        scope=scopes.get(row["scope_key"], "project"),
        aliases=list(row["aliases"]),
        created_at=row["created_at"],
        updated_at=row["updated_at"],
    )


def predicate_not_found() -> NotFound:
    """The one answer for a predicate that is unknown or of another project or tenant."""
    return NotFound("There is no such predicate.", code="predicate_not_found")


def _read_only() -> Forbidden:
    return Forbidden(
        "This predicate belongs to the whole installation; only its operator changes it.", code="predicate_global"
    )


def _require_administrator(who: Principal) -> None:
    if not who.is_admin:
        raise Forbidden("A predicate of all projects is for administrators.", code="wrong_key_kind")


async def list_predicates(db: Database, who: Principal, *, filters: dict[str, Any], page: Page) -> PredicateList:
    """The predicates this project can use."""
    asked = {name: value for name, value in filters.items() if value}
    if page.after is not None:
        asked |= {"after": page.after[0]}
    statement = queries.select_predicates(set(asked))
    params = {**asked, "tenant": who.tenant_id, "limit": page.limit + 1}
    params["after_id"] = None if page.after is None else page.after[1]
    rows, next_cursor = page.cut(
        await db.query(who, statement, params), key=lambda row: [row["canonical_norm"], str(row["predicate_id"])]
    )
    return PredicateList(predicates=[_present(row, who) for row in rows], next_cursor=next_cursor)


async def get_predicate(db: Database, who: Principal, *, predicate_id: UUID) -> PredicateRead:
    """One predicate."""
    return _present(_only(await db.query(who, SELECT_ONE, _one(who, predicate_id))), who)


SELECT_ONE = queries.select_predicates({"predicate_id"})


async def find_ids(db: Database, who: Principal, *, name: str) -> list[str]:
    """The predicates a name, alias or id means: one, or none."""
    params = {"tenant": who.tenant_id, "project": require_project(who), "names": alone(predicate_row(name))}
    rows = await db.query(who, fact_queries.MEANT_PREDICATES, params)
    return [str(row["predicate_id"]) for row in rows if row["predicate_id"] is not None]


def _one(who: Principal, predicate_id: UUID | str) -> dict[str, Any]:
    return {"tenant": who.tenant_id, "predicate_id": str(predicate_id), "limit": 1}


def _only(rows: list[Row]) -> Row:
    if not rows:
        raise predicate_not_found()
    return rows[0]


async def create_predicate(db: Database, who: Principal, *, data: PredicateCreate, once: Once) -> Answer:
    """Registers a predicate with its decisions; one that is there already is answered as it is."""
    name = predicate_name(data.name, "name")
    project_id = require_project(who)
    if data.status == "deprecated":
        raise BadRequest("status: a new predicate is pending or active.")
    if data.scope == "tenant":
        _require_administrator(who)
    shared = data.scope == "tenant"
    now = datetime.now(UTC)
    row: Row = {
        "tenant_id": who.tenant_id,
        "predicate_id": new_id(),
        "scope_key": f"{who.tenant_id}:*" if shared else f"{who.tenant_id}:{project_id}",
        "project_id": None if shared else project_id,
        "canonical": name.shown,
        "canonical_norm": name.norm,
        "cardinality": data.cardinality,
        "status": data.status,
        "created_at": now,
        "updated_at": now,
    }
    async with once.tenant(db, who) as step:
        if step.stored:
            return step.stored
        place = {"tenant_id": who.tenant_id, "scope_key": row["scope_key"], "norm": name.norm}
        found = await queries.find_predicate_named(step.session, **place)
        created = found is None and await queries.insert_predicate(step.session, row=row)
        if found is None and not created:
            found = await queries.find_predicate_named(step.session, **place)
        chosen = row["predicate_id"] if found is None else str(found["predicate_id"])
        shown = _present(_only(await step.session.query(SELECT_ONE, _one(who, chosen))), who)
        if not created and (shown.cardinality, shown.status) != (data.cardinality, data.status):
            if shown.status == "deprecated":
                raise Conflict(f"name: {shown.name} is deprecated; use another name.", code="predicate_deprecated")
            raise Conflict(
                f"name: {shown.name} is there already, {shown.status} and {shown.cardinality}; change it with PATCH.",
                code="predicate_exists",
                details={"predicate_id": str(shown.predicate_id)},
            )
        return await step.answer(201 if created else 200, PredicateCreated(predicate=shown, created=created))


async def _require_changeable(session: Session, who: Principal, predicate_id: UUID) -> Row:
    row = await queries.find_predicate(session, tenant_id=who.tenant_id, predicate_id=str(predicate_id))
    if row is None:
        # One of the installation that this tenant has never used is as read-only as its copy would be.
        if await session.query(SELECT_ONE, _one(who, predicate_id)):
            raise _read_only()
        raise predicate_not_found()
    if row["global"]:
        raise _read_only()
    if row["project_id"] is None:
        _require_administrator(who)
    return row


async def patch_predicate(db: Database, who: Principal, *, predicate_id: UUID, data: PredicatePatch) -> PredicateRead:
    """Decides status or cardinality; what is already open has to fit, or is resolved."""
    cardinality = None if data.cardinality is msgspec.UNSET else data.cardinality
    status = None if data.status is msgspec.UNSET else data.status
    if cardinality is None and status is None:
        raise BadRequest("Send status, cardinality or both.")

    async def write() -> PredicateRead:
        async with db.tenant(who) as session:
            await _require_changeable(session, who, predicate_id)
            arguments = {
                "predicate": str(predicate_id),
                "cardinality": cardinality,
                "status": status,
                "resolve": data.resolve == "latest",
                "key": who.key_id,
            }
            row = await session.row(queries.CONFIGURE_PREDICATE, arguments)
            assert row is not None
            _check_change(row, status)
            return _present(_only(await session.query(SELECT_ONE, _one(who, predicate_id))), who)

    return await retried(write)


def _check_change(row: Row, status: str | None) -> None:
    refused = row["refused"]
    if refused == "predicate_values_open":
        raise Conflict(
            f'Several values are valid at once on {row["timelines"]} timelines. Send resolve: "latest" to end each '
            "where the next one starts, or retract what is wrong first.",
            code="predicate_values_open",
            details={"timelines": row["timelines"], "facts": [str(fact) for fact in row["open_facts"]]},
        )
    if refused == "predicate_transition":
        raise Conflict(
            f"status: from {row['now_status']} it cannot become {status}; pending becomes active or deprecated, active "
            "becomes deprecated.",
            code="predicate_transition",
        )
    if refused == "predicate_global":
        raise _read_only()
    if refused is not None:
        raise predicate_not_found()


async def add_alias(db: Database, who: Principal, *, predicate_id: UUID, data: AliasCreate, once: Once) -> Answer:
    """Gives a predicate one more name within its scope."""
    name = predicate_name(data.alias, "alias")
    async with once.tenant(db, who) as step:
        if step.stored:
            return step.stored
        predicate = await _require_changeable(step.session, who, predicate_id)
        place = {"tenant_id": who.tenant_id, "scope_key": predicate["scope_key"], "norm": name.norm}
        named = await queries.find_predicate_named(step.session, **place)
        if named is not None and (named["rank"] == 0 or str(named["predicate_id"]) != str(predicate_id)):
            raise Conflict(
                f"alias: {name.shown} already names a predicate in this scope.",
                code="predicate_alias_taken",
                details={"predicate_id": str(named["predicate_id"])},
            )
        made = await queries.insert_predicate_alias(
            step.session,
            row={
                "tenant_id": who.tenant_id,
                "alias_id": new_id(),
                "scope_key": predicate["scope_key"],
                "project_id": predicate["project_id"],
                "predicate_id": str(predicate_id),
                "alias": name.shown,
                "alias_norm": name.norm,
                "created_at": datetime.now(UTC),
            },
        )
        row = made or await queries.find_predicate_alias(step.session, **place)
        if row is None or str(row["predicate_id"]) != str(predicate_id):
            raise Conflict(f"alias: {name.shown} already names a predicate.", code="predicate_alias_taken")
        alias = PredicateAliasRead(
            alias_id=UUID(str(row["alias_id"])),
            predicate_id=UUID(str(row["predicate_id"])),
            alias=row["alias"],
            created_at=row["created_at"],
        )
        return await step.answer(
            200 if made is None else 201, PredicateAliasCreated(alias=alias, created=made is not None)
        )
