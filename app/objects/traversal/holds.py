"""Walks of callers who may read what a legal hold hides: each such reading is checked and recorded."""

from typing import Any

from app.db.database import Database, Row
from app.db.scope import LEGAL_HOLD
from app.facts.as_of import check_held, look_back
from app.read_context import ReadContext


async def run_walk(
    db: Database, context: ReadContext, params: dict[str, Any], *, statement: str, with_held: str
) -> Row:
    """Return the row of a walk; raise Forbidden when it shows what this deployment keeps from administrators.

    Callers who may read rows under legal hold run `with_held`, which also returns those that the response shows.
    """
    if context.who.reach != LEGAL_HOLD:
        (row,) = await look_back(db, context.who, statement, params)
        return row
    (row,) = await look_back(db, context.who, with_held, params)
    objects, relationships = row["held_objects"], row["held_relationships"]
    await check_held(
        db,
        context,
        about=[*objects, *relationships, *row["held_ends"]],
        object_ids=objects,
        relationship_ids=relationships,
    )
    return row
