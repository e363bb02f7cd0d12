"""The tests of the audit log use the tenants and clients of the tests of facts, and a worker beside the service."""

from tests.erasure.conftest import (  # noqa: F401
    admin,
    elsewhere,
    keys,
    rival,
    robin,
    superuser,
    worker,
    wren,
)
