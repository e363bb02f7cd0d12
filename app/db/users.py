"""Lists of rows that belong to an end user or to all users, so that each is read by an index."""

from typing import Any

from sqlalchemy import Column, Select, select, union_all

from app.db.scope import EVERY_USER, Scope


def newest(
    found: Select[Any], order: tuple[Column[Any], ...], user: Column[str], who: Scope, *, limit: int
) -> Select[Any]:
    """Return the newest rows of a statement: of a user and of all users, each read in order and then merged."""
    descending = [column.desc() for column in order]
    if who.user_id == EVERY_USER:
        return found.order_by(*descending).limit(limit)
    owners = dict.fromkeys((who.user_id, ""))
    parts = [found.where(user == owner).order_by(*descending).limit(limit).subquery().select() for owner in owners]
    merged = union_all(*parts).subquery()
    return select(merged).order_by(*[merged.c[column.name].desc() for column in order]).limit(limit)
