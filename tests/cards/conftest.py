"""What the tests of cards share: the tenants and clients of the tests of facts."""

from tests.facts.conftest import (  # noqa: F401
    admin,
    elsewhere,
    keys,
    rival,
    robin,
    superuser,
    wren,
)
