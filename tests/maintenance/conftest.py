"""What the tests of upkeep share: the tenants and clients of the tests of facts, and rows written past the service."""

from collections.abc import AsyncIterator, Iterator
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import uuid4

import psycopg
import pytest
from psycopg.rows import dict_row
from psycopg.types.json import Jsonb

from app.access import new_id
from app.db.database import Database
from app.main import open_database
from tests.conftest import TestDatabase
from tests.facts.conftest import (  # noqa: F401
    admin,
    elsewhere,
    keys,
    rival,
    robin,
    superuser,
    wren,
)


def now() -> datetime:
    """The time of the test, not of its import: others may have run for long in between."""
    return datetime.now(UTC)


def days(number: float) -> datetime:
    """So many days ago."""
    return now() - timedelta(days=number)


class World:
    """Rows of a database as its superuser writes and sees them."""

    def __init__(self, connection: psycopg.Connection[dict[str, Any]]) -> None:
        self.connection = connection

    def run(self, statement: str, *values: Any) -> list[dict[str, Any]]:
        cursor = self.connection.execute(statement.encode(), values)
        return cursor.fetchall() if cursor.description else []

    def one(self, statement: str, *values: Any) -> Any:
        (row,) = self.run(statement, *values)
        return next(iter(row.values()))

    def insert(self, table: str, **fields: Any) -> None:
        names = ", ".join(fields)
        places = ", ".join(["%s"] * len(fields))
        values = [Jsonb(value) if isinstance(value, dict) else value for value in fields.values()]
        self.run(f"INSERT INTO {table} ({names}) VALUES ({places})", *values)

    def project(self, tenant: str, project: str = "default", **pipeline: Any) -> None:
        """A tenant and a project, long since made."""
        self.run("INSERT INTO tenants (tenant_id, name, created_at) VALUES (%s, %s, %s) ON CONFLICT DO NOTHING",
                 tenant, tenant, days(400))  # fmt: skip
        self.insert(
            "projects",
            tenant_id=tenant,
            project_id=project,
            name=project,
            settings={"pipeline": pipeline},
            created_at=days(400),
        )

    def note(self, tenant: str, project: str = "default", *, terms: bool = True, **fields: Any) -> str:
        note_id = new_id()
        content = fields.pop("content", f"words {uuid4().hex[:10]}")
        row = {
            "agent_id": "robin",
            "scope": "project_shared",
            "owner_key": "",
            "type": "fact",
            "content_hash": uuid4().hex,
            "tags": [],
            "occurred_at": days(100),
            "pinned": False,
            "created_at": days(100),
            "updated_at": days(100),
            **fields,
        }
        self.insert("memory_notes", tenant_id=tenant, project_id=project, note_id=note_id, content=content, **row)
        if terms:
            self.run(
                "UPDATE memory_notes SET terms = note_terms(tenant_id, project_id, author, occurred_at, tags, content) "
                "WHERE note_id = %s",
                note_id,
            )
        return note_id

    def entity(self, tenant: str, project: str = "default", *, at: datetime | None = None) -> str:
        entity_id, name = new_id(), f"entity {uuid4().hex[:10]}"
        self.insert(
            "graph_entities",
            tenant_id=tenant,
            entity_id=entity_id,
            project_id=project,
            canonical=name,
            canonical_norm=name,
            created_at=at or days(50),
            updated_at=days(50),
        )
        return entity_id

    def mention(self, tenant: str, note_id: str, entity_id: str, project: str = "default") -> None:
        self.insert(
            "note_entity_mentions",
            tenant_id=tenant,
            project_id=project,
            note_id=note_id,
            entity_id=entity_id,
            created_at=days(50),
        )

    def history(self, tenant: str, note_id: str, at: datetime, project: str = "default", **fields: Any) -> str:
        history_id = self.one("SELECT overlay(first_id(%s)::text PLACING right(make_id()::text, 12) FROM 25)::uuid", at)
        row = {"agent_id": "robin", "scope": "project_shared", "event": "updated", "version": 1, **fields}
        self.insert(
            "memory_history",
            tenant_id=tenant,
            history_id=history_id,
            project_id=project,
            note_id=note_id,
            changed_by="robin",
            created_at=at,
            **row,
        )
        return str(history_id)

    def job(self, tenant: str, project: str | None = "default", *, status: str, **fields: Any) -> str:
        job_id = new_id()
        row: dict[str, Any] = {"kind": "extract", "payload": {}, "available_at": now(), "created_at": now(), **fields}
        if status == "leased":
            row = {"lease_owner": "gone", "lease_expires_at": now() + timedelta(hours=1), "started_at": now(), **row}
        elif status != "pending":
            row = {"finished_at": now(), **row}
        self.insert(
            "jobs", tenant_id=tenant, job_id=job_id, project_id=project, status=status, created_by="test", **row
        )
        return job_id

    def status(self, job_id: str) -> str:
        return self.one("SELECT status FROM jobs WHERE job_id = %s", job_id)

    def ids(self, table: str, column: str, tenant: str) -> set[str]:
        return {str(row["id"]) for row in self.run(f"SELECT {column} AS id FROM {table} WHERE tenant_id = %s", tenant)}


@pytest.fixture
def world(database: TestDatabase) -> Iterator[World]:
    kind = psycopg.Connection[dict[str, Any]]
    with kind.connect(database.superuser, autocommit=True, row_factory=dict_row) as connection:
        yield World(connection)


@pytest.fixture
def tenant() -> str:
    """A tenant of its own for each test."""
    return f"t{uuid4().hex[:10]}"


@pytest.fixture
async def db(database: TestDatabase) -> AsyncIterator[Database]:
    made = open_database(database.settings())
    await made.open()
    yield made
    await made.close()
