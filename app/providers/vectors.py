"""Validation and normalisation of vectors that providers return."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from app.providers.base import (
    DIMENSIONALITY_MISMATCH,
    DIMENSIONS_BELOW_FLOOR,
    MIN_DIMENSIONS,
    Matrix,
    ProviderMisconfigured,
    UnusableResponse,
)


def unit_rows(rows: NDArray[np.floating]) -> Matrix:
    """Return the rows at unit length as float32; a row of zeros, which has no direction, becomes the first axis."""
    # Divided by the largest component first, since squares of very large or small numbers overflow or vanish.
    wide = rows.astype(np.float64)
    largest = np.abs(wide).max(axis=1, keepdims=True)
    wide[largest[:, 0] == 0, 0] = 1.0
    wide /= np.where(largest == 0, 1.0, largest)
    wide /= np.linalg.norm(wide, axis=1, keepdims=True)
    return wide.astype(np.float32)


def checked_matrix(vectors: Sequence[Sequence[float]], *, count: int, dimensions: int | None, who: str) -> Matrix:
    """Return the vectors of a response at unit length, or raise UnusableResponse or ProviderMisconfigured."""
    if len(vectors) != count:
        raise UnusableResponse(f"{who} returned {len(vectors)} vectors for {count} texts.")
    lengths = {len(vector) for vector in vectors}
    if len(lengths) > 1:
        raise UnusableResponse(f"{who} returned vectors of different lengths: {sorted(lengths)[:5]}.")
    for length in lengths:
        check_dimensions(length, expected=dimensions, who=who)
    rows = np.array(vectors, dtype=np.float64)
    if not np.isfinite(rows).all():
        raise UnusableResponse(f"{who} returned vectors with numbers that are not finite.")
    if not rows.any(axis=1).all():
        raise UnusableResponse(f"{who} returned a vector of zeros.")
    return unit_rows(rows)


def check_dimensions(dimensions: int, *, expected: int | None, who: str) -> None:
    """Raise ProviderMisconfigured unless vectors of this length can be stored."""
    if expected is not None and dimensions != expected:
        raise ProviderMisconfigured(
            f"{who} makes vectors of {dimensions} dimensions where {expected} are expected.",
            code=DIMENSIONALITY_MISMATCH,
            details={"dimensions": dimensions, "expected": expected},
        )
    if dimensions < MIN_DIMENSIONS:
        raise ProviderMisconfigured(
            f"{who} makes vectors of {dimensions} dimensions; fewer than {MIN_DIMENSIONS} cannot distinguish texts.",
            code=DIMENSIONS_BELOW_FLOOR,
            details={"dimensions": dimensions, "minimum": MIN_DIMENSIONS},
        )
