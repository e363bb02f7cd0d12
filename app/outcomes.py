"""What a use case that writes returns: the value, and whether it is new."""

from typing import Generic, TypeVar

import msgspec

T = TypeVar("T")


class Outcome(msgspec.Struct, Generic[T], frozen=True):
    """The value a use case made or found; over HTTP `created` is 201, `accepted` 202, otherwise 200."""

    value: T
    created: bool = True
    accepted: bool = False
    """Whether a job does the work, which the value names."""
