"""What the tests of embedding share: a database whose model is a fake one, and a worker inside the test."""

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from typing import Any

import msgspec
import psycopg
import pytest
from psycopg.rows import dict_row

from app.access import AGENT_SCOPES, Principal, new_id
from app.cli.administration import create_project, create_tenant
from app.db.database import Database
from app.embeddings.embedders import Embedders
from app.embeddings.models import ModelRow
from app.embeddings.tasks import EmbedTask
from app.facts.schemas import FactCreate
from app.facts.writes import write_fact
from app.jobs.registry import Handler, Registry
from app.jobs.worker import Worker
from app.main import open_database
from app.notes.schemas import NoteBatch
from app.notes.service import create_notes
from app.providers.base import Embedder
from app.providers.fake import FakeEmbedder
from app.tenancy.schemas import ProjectCreate, TenantCreate
from tests.conftest import TestDatabase, cloned
from tests.erasure.conftest import worker  # noqa: F401
from tests.facts.conftest import admin, keys, rival, robin, superuser  # noqa: F401
from tests.shared_installation import SharedInstallation

ROBIN = Principal(
    tenant_id="acme",
    project_id="default",
    agent_id="robin",
    key_id=new_id(),
    kind="agent",
    scopes=frozenset(AGENT_SCOPES),
)
ONLY_FAKE = """
    DROP INDEX embeddings_1_note_idx, embeddings_1_fact_idx;
    DELETE FROM embedding_models;
    INSERT INTO embedding_models (model_id, provider, model, version, dimensions, active, created_at)
    VALUES (1, 'fake', 'words', 1, 64, true, now());
    CREATE INDEX embeddings_1_note_idx ON embeddings USING hnsw ((vector::halfvec(64)) halfvec_ip_ops)
        WHERE model_id = 1 AND owner_kind = 'note';
    CREATE INDEX embeddings_1_fact_idx ON embeddings USING hnsw ((vector::halfvec(64)) halfvec_ip_ops)
        WHERE model_id = 1 AND owner_kind = 'fact'"""


@dataclass
class Bench:
    """One database with a fake model, looked at from outside and worked on from inside."""

    database: TestDatabase
    db: Database
    superuser: psycopg.Connection[dict[str, Any]]
    fakes: dict[str, FakeEmbedder] = field(default_factory=lambda: {"words": FakeEmbedder(64, max_batch=1000)})
    instead: Embedder | None = None
    """Asked in place of the fakes."""
    quick: dict[str, Any] = field(default_factory=lambda: {"embed_reembed_seconds": 0.0})

    @property
    def fake(self) -> FakeEmbedder:
        return self.fakes["words"]

    def build(self, model: ModelRow) -> Embedder:
        return self.instead or self.fakes[model.model]

    def rows(self, query: str, *values: Any) -> list[dict[str, Any]]:
        return self.superuser.execute(query.encode(), values or None).fetchall()

    def one(self, query: str, *values: Any) -> Any:
        (row,) = self.rows(query, *values)
        return next(iter(row.values()))

    @property
    def queue(self) -> list[dict[str, Any]]:
        return self.rows("SELECT * FROM embedding_queue ORDER BY model_id, queued_at, owner_id")

    @property
    def vectors(self) -> list[dict[str, Any]]:
        return self.rows("SELECT * FROM embeddings ORDER BY model_id, embedded_at, owner_id")

    @property
    def seen(self) -> list[str]:
        """Every text the provider was given, in order."""
        return [text for call in self.fake.calls for text in call]

    async def fact(self, subject: str, predicate: str, value: str, *, who: Principal = ROBIN, **fields: Any) -> str:
        body = {"subject": subject, "predicate": predicate, "object": {"value": value}, **fields}
        outcome = await write_fact(self.db, who, data=msgspec.convert(body, FactCreate))
        return str(outcome.value.fact.fact_id)

    async def notes(self, *contents: str, who: Principal = ROBIN, **fields: Any) -> list[str]:
        batch = NoteBatch(notes=[{"content": content, **fields} for content in contents])
        async with self.db.tenant(who) as session:
            await create_notes(session, who, data=batch)
        found = self.rows(
            "SELECT note_id, content FROM memory_notes WHERE content = ANY (%s) AND tenant_id = %s",
            list(contents),
            who.tenant_id,
        )
        ids = {row["content"]: str(row["note_id"]) for row in found}
        return [ids[content] for content in contents]

    def model(self, name: str, dimensions: int = 64, *, model_id: int = 2) -> None:
        """Registers one more fake model, without filling it."""
        self.fakes[name] = FakeEmbedder(dimensions, model=name, max_batch=1000)
        self.superuser.execute(
            "INSERT INTO embedding_models (model_id, provider, model, version, dimensions, active, created_at) "
            "VALUES (%s, 'fake', %s, 1, %s, false, now())",
            (model_id, name, dimensions),
        )

    @asynccontextmanager
    async def working(self, *, handlers: dict[str, Handler] | None = None, **changes: Any) -> AsyncIterator[Worker]:
        """A worker on the queue, drained at the end."""
        settings = self.database.settings(
            **{"poll_seconds": 0.1, "drain_seconds": 1.0, "lease_seconds": 5.0, **self.quick, **changes}
        )
        embedders = Embedders(settings, build=self.build)
        registry = Registry()
        registry.register("embed", EmbedTask(embedders, settings), backoff=(0.1,))
        for kind, handler in (handlers or {}).items():
            registry.register(kind, handler)
        inside = Worker(self.db, registry, settings)
        running = asyncio.create_task(inside.run())
        try:
            yield inside
        finally:
            inside.stop()
            await running

    async def drained(self, *, seconds: float = 60) -> None:
        """Returns once nothing waits."""
        await self.until(lambda: not self.queue, seconds=seconds)

    async def until(self, done: Callable[[], bool], *, seconds: float = 60) -> None:
        deadline = time.monotonic() + seconds
        while not done():
            if time.monotonic() > deadline:
                raise AssertionError(f"not after {seconds} s; queue: {self.queue[:3]}, jobs: {self.jobs}")
            await asyncio.sleep(0.02)

    @property
    def jobs(self) -> list[dict[str, Any]]:
        return self.rows(
            "SELECT kind, status, attempts, last_error, available_at, payload FROM jobs "
            "WHERE kind IN ('embed', 'card_refresh')"
        )

    async def embed_all(self, **changes: Any) -> None:
        """A worker until nothing waits."""
        async with self.working(**changes):
            await self.drained()


@pytest.fixture(scope="session")
def fake_installation(superuser_conninfo: str, template: str, app_password: str) -> Iterator[SharedInstallation]:
    """A database with a fake model alone, which tests use one after the other."""

    @contextmanager
    def with_fake_model() -> Iterator[TestDatabase]:
        with cloned(superuser_conninfo, template, app_password) as made:
            with psycopg.connect(made.superuser, autocommit=True) as connection:
                connection.execute(ONLY_FAKE.encode())
            yield made

    shared = SharedInstallation(with_fake_model)
    yield shared
    shared.close()


@pytest.fixture
async def bench(fake_installation: SharedInstallation) -> AsyncIterator[Bench]:
    database = fake_installation.database()
    db = open_database(database.settings())
    await db.open()
    await create_tenant(db, TenantCreate(tenant_id="acme"))
    await create_project(db, ProjectCreate(tenant_id="acme", project_id="default"))
    kind = psycopg.Connection[dict[str, Any]]
    with kind.connect(database.superuser, autocommit=True, row_factory=dict_row) as past_it:
        yield Bench(database, db, past_it)
    await db.close()
