"""HTTP routes of maintenance."""

from typing import Annotated

from litestar import Router, get, post
from litestar.di import NamedDependency
from litestar.params import PathParameter, SkipValidation

from app.maintenance import diagnostics, repairs
from app.maintenance.options import MaintenanceOptions
from app.maintenance.schemas import Diagnostics, Repaired
from app.web.auth import Access
from app.web.requests import Db, Who

METRICS = Access(work="read", scopes=("graph:admin:metrics", "admin"))
Options = NamedDependency[SkipValidation[MaintenanceOptions]]
REPAIR = Access(work="admin", scopes=("admin",), kinds=("admin",))


@get("/diagnostics", opt={"access": METRICS}, summary="Get diagnostics", tags=["operations"])
async def get_diagnostics(db: Db, who: Who, maintenance_options: Options) -> Diagnostics:
    """Returns a health score of five parts, recommended repairs, and the token usage of models. Counts cover the whole
    project, including private notes but not hidden ones; no content is returned."""
    return await diagnostics.diagnose(db, who, options=maintenance_options)


@post("/repair/{action:str}", opt={"access": REPAIR}, status_code=200, summary="Run a repair", tags=["operations"])
async def repair(
    db: Db,
    who: Who,
    maintenance_options: Options,
    action: Annotated[
        str, PathParameter(description="requeue-dead, release-leases, check-index, retention-sweep or reembed.")
    ],
) -> Repaired:
    """For administrators.

    - `requeue-dead` requeues up to 50 dead jobs, except those that died again after a repair or have nothing to do.
    - `release-leases` releases expired leases.
    - `check-index` reindexes notes whose search terms are missing or stale.
    - `retention-sweep` purges rows whose retention has ended.
    - `reembed` queues what has no vector.

    Returns 429 with Retry-After while an action cools down (`repair_cooling_down`) or has used up its hourly budget
    (`repair_budget_spent`).
    """
    return await repairs.repair(db, who, action=action, options=maintenance_options)


router = Router(path="/", route_handlers=[get_diagnostics, repair])
