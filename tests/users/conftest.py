"""Fixtures of the tests of users: the tenants and clients of the tests of facts, and a worker."""

from tests.erasure.conftest import (  # noqa: F401
    admin,
    elsewhere,
    keys,
    rival,
    robin,
    superuser,
    worker,
)
