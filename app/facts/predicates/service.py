"""Use cases of predicates: list, register, change status and cardinality, add aliases."""

from datetime import UTC, datetime
from typing import Any
from uuid import UUID

import msgspec

from app.access import Principal, new_id, require_project, require_whole_tenant
from app.audit import events as audit
from app.db.counts import COUNT_LIMIT, count_query
from app.db.database import Database, Row, Session
from app.db.retries import retried
from app.errors import BadRequest, Conflict, Forbidden, NotFound
from app.facts.drafts import encode_reference, predicate_reference
from app.facts.names import Name, predicate_name
from app.facts.predicates import queries
from app.facts.schemas import (
    AliasCreate,
    PredicateAliasCreated,
    PredicateAliasRead,
    PredicateCreate,
    PredicateList,
    PredicatePatch,
    PredicateRead,
    PredicateWritten,
)
from app.outcomes import Outcome
from app.paging import Page

# The scope of keys that decide about predicates without being an administrator's.
ACTIVATE = "predicates:admin"

_SELECT_ONE = queries.select_predicates({"predicate_id"})


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
    """Return the error for a predicate that is unknown or of another project or tenant."""
    return NotFound("There is no such predicate.", code="predicate_not_found")


def _read_only() -> Forbidden:
    return Forbidden(
        "This predicate belongs to the whole installation; only its operator can change it.", code="predicate_global"
    )


def _require_administrator(who: Principal) -> None:
    if not who.is_admin:
        raise Forbidden(
            "scope: only administrators can register or change predicates of the whole tenant.", code="wrong_key_kind"
        )
    require_whole_tenant(who, "scope: this predicate")


def _may_activate(who: Principal) -> bool:
    return who.is_admin or ACTIVATE in who.scopes


def _require_activation(who: Principal, what: str) -> None:
    if not _may_activate(who):
        raise Forbidden(
            f"{what} needs an admin key, or one with the scope {ACTIVATE}.",
            code="missing_scope",
            details={"needs": [ACTIVATE]},
        )


async def list_predicates(db: Database, who: Principal, *, filters: dict[str, Any], page: Page) -> PredicateList:
    """Return the predicates the project can use, in the order of their names."""
    given: dict[str, Any] = {name: value for name, value in filters.items() if value}
    after = {} if page.after is None else {"after": page.after[0], "after_id": page.after[1]}
    found = await _read(db, who, limit=page.limit + 1, **given, **after)
    rows, next_cursor = page.cut(found, key=lambda row: [row["canonical_norm"], str(row["predicate_id"])])
    total = await page.count(lambda: _read(db, who, count=True, limit=COUNT_LIMIT, **given))
    return PredicateList(predicates=[_present(row, who) for row in rows], next_cursor=next_cursor, total=total)


async def _read(db: Database, who: Principal, *, limit: int, count: bool = False, **given: Any) -> list[Row]:
    query = queries.select_predicates(given.keys() - {"after_id"})
    params = {**given, "tenant": who.tenant_id, "limit": limit}
    return await db.query(who, count_query(query) if count else query, params)


async def get_predicate(db: Database, who: Principal, *, predicate_id: UUID) -> PredicateRead:
    """Return one predicate or raise NotFound."""
    return _present(_only(await db.query(who, _SELECT_ONE, _one(who, predicate_id))), who)


async def find_ids(db: Database, who: Principal, *, name: str) -> list[str]:
    """Return the ids of the predicates that a name, alias or id refers to: one, or none."""
    params = {
        "tenant": who.tenant_id,
        "project": require_project(who),
        "names": encode_reference(predicate_reference(name)),
    }
    rows = await db.query(who, queries.READ_PREDICATES, params)
    return [str(row["predicate_id"]) for row in rows if row["predicate_id"] is not None]


def _one(who: Principal, predicate_id: UUID | str) -> dict[str, Any]:
    return {"tenant": who.tenant_id, "predicate_id": str(predicate_id), "limit": 1}


def _only(rows: list[Row]) -> Row:
    if not rows:
        raise predicate_not_found()
    return rows[0]


async def create_predicate(session: Session, who: Principal, *, data: PredicateCreate) -> Outcome[PredicateWritten]:
    """Register a predicate; return the one of that name if it agrees, and raise Conflict if it does not."""
    name = predicate_name(data.name, "name")
    if data.status == "deprecated":
        raise BadRequest("status: must be pending or active for a new predicate.")
    if data.scope == "tenant":
        _require_administrator(who)
    if data.status == "active":
        _require_activation(who, "status: registering an active predicate")
    wanted = data.status
    if wanted is msgspec.UNSET:
        wanted = "active" if _may_activate(who) else "pending"
    row = _new_row(who, name, data, wanted)
    place = {"tenant_id": who.tenant_id, "scope_key": row["scope_key"], "norm": name.norm}
    found = await queries.find_predicate_named(session, **place)
    created = found is None and await queries.insert_predicate(session, row=row)
    if found is None and not created:
        found = await queries.find_predicate_named(session, **place)
    chosen = row["predicate_id"] if found is None else str(found["predicate_id"])
    shown = _present(_only(await session.query(_SELECT_ONE, _one(who, chosen))), who)
    if created:
        await audit.record(
            session,
            "admin_action",
            key_id=who.key_id,
            action="predicate_create",
            predicate_id=chosen,
            status=shown.status,
            cardinality=shown.cardinality,
            scope=shown.scope,
        )
    elif shown.cardinality != data.cardinality or not _agrees(who, shown, data):
        raise _exists(shown)
    return Outcome(PredicateWritten(predicate=shown, created=created), created=created)


def _agrees(who: Principal, shown: PredicateRead, data: PredicateCreate) -> bool:
    """Return whether a registered predicate has the status that is asked for."""
    if data.status is msgspec.UNSET:
        # Those who cannot activate asked for no status, and take one that was decided.
        return shown.status == "active" or (shown.status == "pending" and not _may_activate(who))
    return shown.status == data.status


def _new_row(who: Principal, name: Name, data: PredicateCreate, status: str) -> Row:
    project_id = require_project(who)
    shared = data.scope == "tenant"
    now = datetime.now(UTC)
    return {
        "tenant_id": who.tenant_id,
        "predicate_id": new_id(),
        "scope_key": f"{who.tenant_id}:*" if shared else f"{who.tenant_id}:{project_id}",
        "project_id": None if shared else project_id,
        "canonical": name.shown,
        "canonical_norm": name.norm,
        "cardinality": data.cardinality,
        "status": status,
        "created_at": now,
        "updated_at": now,
    }


def _exists(found: PredicateRead) -> Conflict:
    if found.status == "deprecated":
        return Conflict(f"name: {found.name} is deprecated; use another name.", code="predicate_deprecated")
    return Conflict(
        f"name: {found.name} exists already, {found.status} and {found.cardinality}; change it with PATCH.",
        code="predicate_exists",
        details={"predicate_id": str(found.predicate_id)},
    )


async def _require_changeable(session: Session, who: Principal, predicate_id: UUID) -> Row:
    row = await queries.find_predicate(session, tenant_id=who.tenant_id, predicate_id=str(predicate_id))
    if row is None:
        # A predicate of the installation that this tenant has no copy of yet is read-only too.
        if await session.query(_SELECT_ONE, _one(who, predicate_id)):
            raise _read_only()
        raise predicate_not_found()
    if row["global"]:
        raise _read_only()
    if row["project_id"] is None:
        _require_administrator(who)
    return row


async def patch_predicate(
    db: Database, who: Principal, *, predicate_id: UUID, data: PredicatePatch
) -> PredicateWritten:
    """Change status or cardinality; raise Conflict when open facts do not fit and `resolve` is not given."""
    cardinality = None if data.cardinality is msgspec.UNSET else data.cardinality
    status = None if data.status is msgspec.UNSET else data.status
    if cardinality is None and status is None:
        raise BadRequest("status: send status, cardinality or both.")

    async def write() -> PredicateWritten:
        async with db.tenant(who) as session:
            held = await _require_changeable(session, who, predicate_id)
            if status == "active" and held["status"] != "active":
                _require_activation(who, "status: activating a predicate")
            elif held["status"] == "active" and (status or "active", cardinality) != ("active", None):
                _require_activation(who, "status: changing an active predicate")
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
            changed = _present(_only(await session.query(_SELECT_ONE, _one(who, predicate_id))), who)
            return PredicateWritten(predicate=changed, created=False)

    return await retried(write)


def _check_change(row: Row, status: str | None) -> None:
    refused = row["refused"]
    if refused == "predicate_values_open":
        raise Conflict(
            f'cardinality: {row["timelines"]} timelines have several valid values. Send resolve: "latest" to end each '
            "where the next one starts, or retract the wrong facts first.",
            code="predicate_values_open",
            details={"timelines": row["timelines"], "facts": [str(fact) for fact in row["open_facts"]]},
        )
    if refused == "predicate_transition":
        raise Conflict(
            f"status: cannot change from {row['now_status']} to {status}; pending can become active or deprecated, "
            "active can become deprecated.",
            code="predicate_transition",
        )
    if refused == "predicate_deprecated":
        raise Conflict(
            "cardinality: a deprecated predicate takes no more facts, so that its cardinality stays as it is.",
            code="predicate_deprecated",
        )
    if refused == "predicate_global":
        raise _read_only()
    if refused is not None:
        raise predicate_not_found()


async def add_alias(
    session: Session, who: Principal, *, predicate_id: UUID, data: AliasCreate
) -> Outcome[PredicateAliasCreated]:
    """Give a predicate one more name within its scope; raise Conflict when another predicate has it."""
    name = predicate_name(data.alias, "alias")
    predicate = await _require_changeable(session, who, predicate_id)
    place = {"tenant_id": who.tenant_id, "scope_key": predicate["scope_key"], "norm": name.norm}
    named = await queries.find_predicate_named(session, **place)
    if named is not None and (named["rank"] == 0 or str(named["predicate_id"]) != str(predicate_id)):
        raise Conflict(
            f"alias: {name.shown} already names a predicate in this scope.",
            code="predicate_alias_taken",
            details={"predicate_id": str(named["predicate_id"])},
        )
    made = await queries.insert_predicate_alias(
        session,
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
    row = made or await queries.find_predicate_alias(session, **place)
    if row is None or str(row["predicate_id"]) != str(predicate_id):
        raise Conflict(f"alias: {name.shown} already names a predicate.", code="predicate_alias_taken")
    created = made is not None
    if created:
        await audit.record(
            session,
            "admin_action",
            key_id=who.key_id,
            action="predicate_alias_create",
            predicate_id=str(predicate_id),
            alias_id=str(row["alias_id"]),
        )
    return Outcome(PredicateAliasCreated(alias=_present_alias(row), created=created), created=created)


def _present_alias(row: Row) -> PredicateAliasRead:
    return PredicateAliasRead(
        alias_id=UUID(str(row["alias_id"])),
        predicate_id=UUID(str(row["predicate_id"])),
        alias=row["alias"],
        created_at=row["created_at"],
    )
