"""Fixtures of links between entities and objects: tenants and clients, a worker, and a writer of objects."""

import pytest

from tests.embeddings.conftest import bench, fake_installation  # noqa: F401
from tests.erasure.conftest import worker  # noqa: F401
from tests.facts.conftest import admin, elsewhere, keys, rival, robin, superuser, wren  # noqa: F401
from tests.objects.entity_links.shared import Objects, Superuser


@pytest.fixture
def objects(superuser: Superuser, keys: dict[str, str]) -> Objects:  # noqa: F811
    return Objects(superuser)
