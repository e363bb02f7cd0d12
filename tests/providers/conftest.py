from collections.abc import AsyncIterator

import pytest

from app.providers.local import LocalEmbedder


@pytest.fixture(scope="package")
async def local(anyio_backend: str) -> AsyncIterator[LocalEmbedder]:
    """Loaded once: the model takes a third of a second."""
    embedder = LocalEmbedder()
    await embedder.warm()
    yield embedder
    await embedder.aclose()
