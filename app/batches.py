"""Batches: many items in one request, all or none, or each on its own with a result for each."""

from typing import Any, TypeVar

import msgspec

from app.errors import AppError, BadRequest
from app.inputs import invalid_body

MAX_BATCH = 1000

Item = TypeVar("Item", bound=msgspec.Struct)


class ItemError(msgspec.Struct, frozen=True, kw_only=True):
    """Why one item of a batch was refused."""

    code: str
    message: str
    details: dict[str, Any]


def check_size(items: list[Any], name: str) -> None:
    """Refuses a batch that is too long."""
    if len(items) > MAX_BATCH:
        raise BadRequest(f"{name}: at most {MAX_BATCH} at once, this has {len(items)}.", code="batch_too_large")


def convert_item(item: dict[str, Any], kind: type[Item]) -> Item:
    """One item as its type."""
    try:
        return msgspec.convert(item, kind)
    except msgspec.ValidationError as problem:
        raise invalid_body(problem, kind) from problem


def stop_if_atomic(name: str, *, atomic: bool, errors: dict[int, AppError]) -> None:
    """Refuses the whole batch for its first error, which is named by its index."""
    if atomic and errors:
        index, problem = min(errors.items())
        problem.message = f"{name}[{index}]: {problem.message}"
        problem.details = {**problem.details, "index": index}
        raise problem


def item_error(problem: AppError) -> ItemError:
    """What a result says of its error."""
    return ItemError(code=problem.code, message=problem.message, details=problem.details)
