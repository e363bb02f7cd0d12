"""HTTP of lint."""

from litestar import Router, post
from litestar.di import NamedDependency
from litestar.params import JSONBody, SkipValidation

from app.maintenance.lint import service
from app.maintenance.lint.schemas import CHECKS, Check, LintReport, LintRequest
from app.maintenance.options import MaintenanceOptions
from app.paging import Page
from app.web.auth import Access
from app.web.requests import Cursors, Db, Who

LINT = Access(work="admin", scopes=("admin",), kinds=("admin",))
Options = NamedDependency[SkipValidation[MaintenanceOptions]]


@post("/lint", opt={"access": LINT}, status_code=200, summary="Check the memory of a project", tags=["operations"])
async def lint(
    db: Db, who: Who, cursors: Cursors, maintenance_options: Options, data: JSONBody[LintRequest | None] = None
) -> LintReport:
    """For administrators. Reports what is stale, orphaned, broken or contradictory, with ids and reasons, and changes
    nothing. It speaks only of what you can see: what is hidden from you counts as missing.

    `counts` has a line for each reason, up to 10,000 each. A check that takes more than three seconds is stopped, and
    `truncated` says so."""
    asked = data or LintRequest()
    checks: list[Check] = [name for name in CHECKS if asked.checks is None or name in asked.checks]
    page = Page(cursors, who, "lint", limit=asked.limit, cursor=asked.cursor, checks=checks)
    return await service.lint(db, who, checks=checks, page=page, options=maintenance_options)


router = Router(path="/", route_handlers=[lint])
