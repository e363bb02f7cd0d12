"""Batches: many items in one request, either atomic or with a result for each item."""

from typing import Any, TypeVar

import msgspec

from app.errors import AppError, BadRequest
from app.inputs import invalid_body

MAX_BATCH = 1000

Item = TypeVar("Item", bound=msgspec.Struct)


class ItemError(msgspec.Struct, frozen=True, kw_only=True):
    """The error of one item of a batch."""

    code: str
    message: str
    details: dict[str, Any]


def check_size(items: list[Any], name: str) -> None:
    """Raise BadRequest for a batch that is too long."""
    if len(items) > MAX_BATCH:
        raise BadRequest(f"{name}: at most {MAX_BATCH} items in one request, got {len(items)}.", code="batch_too_large")


def convert_item(item: dict[str, Any], kind: type[Item]) -> Item:
    """Return an item as its type, or raise BadRequest that names the field."""
    try:
        return msgspec.convert(item, kind)
    except msgspec.ValidationError as problem:
        raise invalid_body(problem, kind) from problem


def stop_if_atomic(name: str, *, atomic: bool, errors: dict[int, AppError]) -> None:
    """Raise the first error of an atomic batch, with the index of its item."""
    if atomic and errors:
        index, problem = min(errors.items())
        problem.message = f"{name}[{index}]: {problem.message}"
        problem.details = {**problem.details, "index": index}
        raise problem


def item_error(problem: AppError) -> ItemError:
    """Return an error as part of an item's result."""
    return ItemError(code=problem.code, message=problem.message, details=problem.details)
