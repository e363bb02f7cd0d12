"""The context of a read: who reads, at which two times, within which visibility scope, on which branch."""

from datetime import UTC, datetime, timedelta
from typing import Any, Protocol, Self
from uuid import UUID

import msgspec
import psycopg

from app.access import Principal, require_project
from app.db.database import Database, Row
from app.db.scope import LEGAL_HOLD, SHARED
from app.errors import BadRequest, Forbidden
from app.inputs import parse_moment

# Clocks of callers may be a little ahead of ours.
FUTURE_TOLERANCE = timedelta(seconds=5)
MAIN_BRANCH = "main"
# The state that check_as_of raises.
BELOW_FLOOR = "PA001"


class ReadContext(msgspec.Struct, frozen=True, kw_only=True):
    """Made once where a request comes in, and passed on as one value."""

    who: Principal
    """The caller, with the right to read held rows where looking back gives it."""
    valid_at: datetime | None = None
    """World time; None is now, or `as_of` where that is given."""
    as_of: datetime | None = None
    """What was recorded by then; None is everything recorded."""
    scope: str | None = None
    """Only what has this visibility scope; None is every scope the caller may read."""
    hold_denied: frozenset[str] = frozenset()
    """Names of entities under legal hold whose past not even administrators read."""
    branch: str = MAIN_BRANCH

    @classmethod
    def of(
        cls,
        who: Principal,
        *,
        valid_at: datetime | None = None,
        as_of: datetime | None = None,
        scope: str | None = None,
        hold_denied: frozenset[str] = frozenset(),
        shared: bool = False,
    ) -> Self:
        """Return the context of a caller's read; raise Forbidden or BadRequest for an `as_of` they may not use.

        With `shared` keys that may also read what other projects share, as it is now: reads with `as_of` stay in the
        caller's project.
        """
        reader = _reader(who.with_shared() if shared and as_of is None else who, as_of)
        return cls(who=reader, valid_at=valid_at, as_of=as_of, scope=scope, hold_denied=hold_denied)

    @property
    def shared(self) -> bool:
        """Whether the read includes what other projects of the tenant share."""
        return self.who.reach == SHARED

    def parameters(self) -> dict[str, Any]:
        """Return the context as parameters of a statement."""
        return {
            "tenant": self.who.tenant_id,
            "project": require_project(self.who),
            "valid_at": self.valid_at,
            "as_of": self.as_of,
            "scope": self.scope,
        }


class CheckHeldNotes(Protocol):
    """Records a read of notes under legal hold in the audit log, if there are any.

    Raises Forbidden when this deployment keeps one of them from administrators. It is handed in, because notes may not
    import the domain of legal holds.
    """

    async def __call__(self, db: Database, context: ReadContext, *, note_ids: list[UUID]) -> None: ...


def _reader(who: Principal, as_of: datetime | None) -> Principal:
    """Return the caller as they read at that time: administrators who look back also read what a legal hold hides."""
    if as_of is None:
        return who
    if "history:as_of" not in who.scopes:
        raise Forbidden(
            "as_of: this key lacks the scope history:as_of.",
            code="missing_scope",
            details={"needs": ["history:as_of"]},
        )
    if as_of > datetime.now(UTC) + FUTURE_TOLERANCE:
        raise BadRequest("as_of must not be in the future.", code="as_of_future")
    return msgspec.structs.replace(who, reach=LEGAL_HOLD) if who.is_admin and "admin" in who.scopes else who


def shared_from(row: Row) -> dict[str, Any]:
    """Return the field `project_id` for a row that another project shares, whose query selected `other_project`."""
    project = row.get("other_project")
    return {} if project is None else {"project_id": project}


def parse_as_of(text: str | None) -> datetime | None:
    """Return `as_of` of a query string as a time."""
    return parse_moment(text, "as_of", code="as_of_invalid_timestamp")


async def look_back(db: Database, who: Principal, query: str, params: dict[str, Any]) -> list[Row]:
    """Run one read; raise BadRequest when its `as_of` is before the project's retention floor."""
    try:
        return await db.query(who, query, params)
    except psycopg.Error as problem:
        if problem.sqlstate != BELOW_FLOOR:
            raise
        floor = datetime.fromisoformat(problem.diag.message_detail or "").astimezone(UTC).isoformat()
        raise BadRequest(
            f"as_of: this project keeps history from {floor} on; ask for that time or a later one.",
            code="as_of_before_retention_floor",
            details={"floor": floor},
        ) from problem
