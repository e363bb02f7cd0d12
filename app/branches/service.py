"""Use cases of branches: find the branches that a request reads or writes."""

from typing import NewType
from uuid import UUID

import msgspec

from app.access import Principal, require_project
from app.branches import queries
from app.db.database import Row, Session
from app.errors import BadRequest, NotFound
from app.read_context import ReadContext

BranchId = NewType("BranchId", str)


class Branches(msgspec.Struct, frozen=True):
    """The branches that a request reads or writes."""

    own: BranchId | None
    """The project's; None when it has none of that name, and so no objects on it."""
    shared: BranchId | None
    """The one of objects of no project."""
    named: BranchId | None = None
    """The one that the request names by its id."""
    named_project: str | None = None
    """The project of the named branch; None for the shared one."""

    @property
    def target(self) -> BranchId | None:
        """The branch that is written, or read first."""
        return self.named or self.own

    @property
    def readable(self) -> list[BranchId | None]:
        """The branches to look in, in this order."""
        return [self.named] if self.named else [self.own, self.shared]

    def check_project(self, project: str | None) -> None:
        """Raise BadRequest when the named branch belongs to another project than what is written."""
        if self.named is not None and self.named_project != project:
            raise BadRequest(
                "branch_id: this branch belongs to another project or to none; leave branch_id out to use the right "
                "one.",
                code="branch_mismatch",
            )


async def find_branches(session: Session, context: ReadContext, *, branch_id: UUID | None = None) -> Branches:
    """Return the branches that a read looks in; raise NotFound for an unknown branch_id."""
    place = {"tenant": context.who.tenant_id, "project": require_project(context.who), "name": context.branch}
    return await _branches(session, context.who, await session.row(queries.READ_BRANCHES, place), branch_id)


async def find_write_branches(session: Session, who: Principal, *, branch_id: UUID | None = None) -> Branches:
    """Return the branches that a write uses, creating the project's main; raise NotFound for an unknown branch_id."""
    place = {"tenant": who.tenant_id, "project": require_project(who)}
    return await _branches(session, who, await session.row(queries.MAIN_BRANCHES, place), branch_id)


async def _branches(session: Session, who: Principal, row: Row | None, branch_id: UUID | None) -> Branches:
    assert row is not None
    own, shared = _as_id(row["own"]), _as_id(row["shared"])
    if branch_id is None:
        return Branches(own, shared)
    found = await session.row(queries.FIND_BRANCH, {"tenant": who.tenant_id, "branch": str(branch_id)})
    if found is None or found["project_id"] not in (None, who.project_id):
        raise NotFound("branch_id: there is no such branch.", code="branch_not_found")
    return Branches(own, shared, _as_id(found["branch_id"]), found["project_id"])


def _as_id(value: object) -> BranchId | None:
    return None if value is None else BranchId(str(value))


async def shared_branch(session: Session) -> BranchId:
    """Return the main branch of objects of no project, creating it when it is missing."""
    row = await session.row(queries.SHARED_BRANCH)
    assert row is not None
    return BranchId(str(row["shared"]))
