"""Use case of usage: the tokens that models have cost a project."""

from datetime import UTC, datetime, timedelta

from app.access import Principal, require_project
from app.db.database import Database
from app.extraction import queries
from app.extraction.schemas import UsageList, UsageRead
from app.tenancy.settings import find_settings

USAGE_DAYS = 31


async def read_usage(db: Database, who: Principal) -> UsageList:
    """Return the project's usage by day and model of the last 31 days, and its token budget."""
    settings = await find_settings(db, who)
    today = datetime.now(UTC).date()
    project = {"tenant": who.tenant_id, "project": require_project(who)}
    days = {"since": today - timedelta(days=USAGE_DAYS), "until": today + timedelta(days=1)}
    rows = await db.query(who, queries.USAGE, {**project, **days})
    (spent,) = await db.query(who, queries.SPENT, {**project, "period": settings.extraction_budget_period})
    return UsageList(
        usage=[UsageRead(**row) for row in rows],
        spent=spent["tokens"],
        budget=settings.extraction_token_budget,
        period=settings.extraction_budget_period,
    )
