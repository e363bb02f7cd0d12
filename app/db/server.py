"""Which PostgreSQL servers this release works with."""

import psycopg

from app.errors import StartupError

# As PostgreSQL writes 16.0.
MINIMUM_VERSION = 160000
NEEDED = f"PostgreSQL {MINIMUM_VERSION // 10000} or newer"


def describe_version(version: int) -> str:
    """Return a version number of the server as people write it, such as PostgreSQL 16.3."""
    return f"PostgreSQL {version // 10000}.{version % 10000}"


def check_version(info: psycopg.ConnectionInfo) -> None:
    """Raise StartupError when a connection's server is too old; everything else would fail with stranger words."""
    if info.server_version < MINIMUM_VERSION:
        raise StartupError(
            f"The database server is {describe_version(info.server_version)}, and Palimpsest needs {NEEDED}; upgrade "
            "the server, or name another one.",
            code="server_too_old",
            details={"found": info.server_version, "needed": MINIMUM_VERSION},
        )
