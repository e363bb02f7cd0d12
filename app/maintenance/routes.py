"""HTTP of upkeep."""

from typing import Annotated

from litestar import Router, get, post
from litestar.params import PathParameter

from app.maintenance import diagnosing, repairing
from app.maintenance.schemas import Diagnostics, Repaired
from app.web.auth import Access
from app.web.requests import Db, Who

LOOK = Access(work="read", scopes=("graph:admin:metrics", "admin"))
REPAIR = Access(work="admin", scopes=("admin",), kinds=("admin",))


@get("/diagnostics", opt={"access": LOOK}, summary="How the project is", tags=["operations"])
async def get_diagnostics(db: Db, who: Who) -> Diagnostics:
    """A score of five parts, what should be repaired, and what models have cost. Counts are of the whole project,
    private notes included and hidden ones not; no content."""
    return await diagnosing.diagnose(db, who)


@post("/repair/{action:str}", opt={"access": REPAIR}, status_code=200, summary="Repair", tags=["operations"])
async def repair(
    db: Db,
    who: Who,
    action: Annotated[
        str, PathParameter(description="requeue-dead, release-leases, check-index, retention-sweep or reembed.")
    ],
) -> Repaired:
    """For administrators. `requeue-dead` gives up to 50 dead jobs another round, never one that died again after a
    repair or whose work is gone; `release-leases` returns leases that ran out; `check-index` reads notes anew that are
    not found by their words; `retention-sweep` purges what is due; `reembed` queues what has no vector. 429 while an
    action cools down (`repair_cooling_down`) or has used up its hour (`repair_budget_spent`), with Retry-After."""
    return await repairing.repair(db, who, action=action)


router = Router(path="/", route_handlers=[get_diagnostics, repair])
