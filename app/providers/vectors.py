"""What every embedder's numbers go through before anybody sees them."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from app.providers.base import (
    DIMENSIONALITY_MISMATCH,
    DIMENSIONS_BELOW_FLOOR,
    MIN_DIMENSIONS,
    AnswerUnusable,
    Matrix,
    ProviderMisconfigured,
)


def unit_rows(rows: NDArray[np.floating]) -> Matrix:
    """The rows at length one, as float32; a row of zeros becomes the first axis, because it has no direction."""
    # Divided by the largest part first: the square of a large number is infinite, that of a small one zero.
    wide = rows.astype(np.float64)
    largest = np.abs(wide).max(axis=1, keepdims=True)
    wide[largest[:, 0] == 0, 0] = 1.0
    wide /= np.where(largest == 0, 1.0, largest)
    wide /= np.linalg.norm(wide, axis=1, keepdims=True)
    return wide.astype(np.float32)


def matrix_from_answer(vectors: Sequence[Sequence[float]], *, count: int, dimensions: int | None, who: str) -> Matrix:
    """What a provider sent, checked and at length one; the error says which of its promises it broke."""
    if len(vectors) != count:
        raise AnswerUnusable(f"{who} answered {len(vectors)} vectors for {count} texts.")
    lengths = {len(vector) for vector in vectors}
    if len(lengths) > 1:
        raise AnswerUnusable(f"{who} answered vectors of different lengths: {sorted(lengths)[:5]}.")
    for length in lengths:
        check_dimensions(length, expected=dimensions, who=who)
    rows = np.array(vectors, dtype=np.float64)
    if not np.isfinite(rows).all():
        raise AnswerUnusable(f"{who} answered vectors that hold numbers which are not finite.")
    if not rows.any(axis=1).all():
        raise AnswerUnusable(f"{who} answered a vector of zeros.")
    return unit_rows(rows)


def check_dimensions(dimensions: int, *, expected: int | None, who: str) -> None:
    """Raises ProviderMisconfigured unless vectors of this length can be stored."""
    if expected is not None and dimensions != expected:
        raise ProviderMisconfigured(
            f"{who} makes vectors of {dimensions} dimensions where {expected} are expected.",
            code=DIMENSIONALITY_MISMATCH,
            details={"dimensions": dimensions, "expected": expected},
        )
    if dimensions < MIN_DIMENSIONS:
        raise ProviderMisconfigured(
            f"{who} makes vectors of {dimensions} dimensions; fewer than {MIN_DIMENSIONS} cannot tell texts apart.",
            code=DIMENSIONS_BELOW_FLOOR,
            details={"dimensions": dimensions, "minimum": MIN_DIMENSIONS},
        )
