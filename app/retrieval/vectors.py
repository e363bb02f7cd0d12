"""Vectors on the wire between PostgreSQL and Python."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

Vector = NDArray[np.float32]


def decode_halfvecs(ids: Sequence[str] | None, data: bytes | None) -> dict[str, Vector]:
    """Return vectors by id from concatenated outputs of halfvec_send: a header of two shorts, then the numbers."""
    if not ids:
        return {}
    assert data is not None
    numbers = np.frombuffer(data, dtype=">f2").reshape(len(ids), -1)[:, 2:].astype(np.float32)
    return dict(zip(ids, numbers, strict=True))


def stack_vectors(vectors: dict[str, Vector], ids: Sequence[str]) -> Vector | None:
    """Return the vectors of these ids as rows, zeros for an id without one; None when there are no vectors at all."""
    if not vectors:
        return None
    missing = np.zeros_like(next(iter(vectors.values())))
    return np.asarray([vectors.get(id_, missing) for id_ in ids], dtype=np.float32)


def format_vector(numbers: Sequence[float]) -> str:
    """Return a vector in the text form that PostgreSQL reads."""
    return "[" + ",".join(f"{number:.8g}" for number in numbers) + "]"
