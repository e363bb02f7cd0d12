"""The size of long tests: the short form in `make test`, the whole one in `make test-long`."""

import os
from typing import cast

from hypothesis import HealthCheck

LONG = bool(os.environ.get("PALIMPSEST_LONG"))
ALL_HEALTH_CHECKS = cast("list[HealthCheck]", list(HealthCheck))


def sized(short: int, whole: int) -> int:
    """Return the number that fits this run; both forms make the same assertions."""
    return whole if LONG else short
