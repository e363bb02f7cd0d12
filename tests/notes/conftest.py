"""Fixtures of the tests of notes: the tenants and clients of the tests of facts."""

from tests.facts.conftest import (  # noqa: F401
    admin,
    keys,
    robin,
    superuser,
    wren,
)
