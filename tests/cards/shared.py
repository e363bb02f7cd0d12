"""Short ways to ask for cards, to read what they say, and to let their jobs be done."""

import asyncio
import re
import time
from typing import Any

import httpx
import psycopg

from app.cards.tasks import refresh_cards
from app.jobs.registry import Registry
from app.jobs.worker import Worker
from app.main import open_database
from tests.conftest import TestDatabase

Superuser = psycopg.Connection[dict[str, Any]]


def cards(client: httpx.Client, **params: Any) -> list[dict[str, Any]]:
    """Cards as they are; nothing is made anew."""
    answer = client.get("/v1/cards", params={"limit": 200, **params})
    assert answer.status_code == 200, answer.text
    return answer.json()["cards"]


def forced(client: httpx.Client, entity: str, **params: Any) -> dict[str, Any]:
    """The whole answer to a request that has the cards made first."""
    answer = client.get("/v1/cards", params={"entity": entity, "force_refresh": "true", **params})
    assert answer.status_code == 200, answer.text
    return answer.json()


def built(client: httpx.Client, entity: str, **params: Any) -> list[dict[str, Any]]:
    """The cards of an entity, made this moment; again where the machine was too busy for half a second."""
    for _ in range(20):
        body = forced(client, entity, **params)
        if "force_refresh_timeout" not in body:
            break
    assert "force_refresh_timeout" not in body
    assert not any(card["card_stale"] for card in body["cards"])
    return body["cards"]


def card(client: httpx.Client, entity: str, **params: Any) -> dict[str, Any]:
    """The only card of an entity, made this moment."""
    (found,) = built(client, entity, **params)
    return found


def text(found: dict[str, Any]) -> str:
    assert found["value"]["type"] == "text"
    return found["value"]["v"]


def section(markdown: str, title: str) -> list[str]:
    """The lines of a section, without blank ones."""
    _, found, rest = markdown.partition(f"\n## {title}\n")
    assert found, markdown
    return [line for line in rest.split("\n## ")[0].splitlines() if line]


def table(markdown: str) -> list[list[str]]:
    """The cells of the facts, as they are written."""
    lines = [line for line in section(markdown, "Facts") if line.startswith("|")]
    assert lines[0] == "| Relation | Value | Confidence | Source | Valid from | Since |"
    found = [[cell.strip() for cell in re.split(r"(?<!\\)\|", line)[1:-1]] for line in lines[2:]]
    assert all(len(cells) == 6 for cells in found), markdown
    return found


def values(found: dict[str, Any]) -> set[str]:
    """The values a card tells."""
    return {cells[1] for cells in table(text(found))}


def jobs(superuser: Superuser, entity_id: str, *, status: str | None = None) -> list[dict[str, Any]]:
    """The jobs for the cards of an entity."""
    return superuser.execute(
        "SELECT * FROM jobs WHERE kind = 'card_refresh' AND payload ->> 'entity_id' = %s "
        "AND (%s::text IS NULL OR status = %s) ORDER BY created_at",
        (entity_id, status, status),
    ).fetchall()


def do_jobs(database: TestDatabase, superuser: Superuser, *, seconds: float = 60) -> None:
    """Lets a worker do all jobs for cards that are open."""

    def open_jobs() -> int:
        row = superuser.execute(
            "SELECT count(*) AS n FROM jobs WHERE kind = 'card_refresh' AND status IN ('pending', 'leased')"
        ).fetchone()
        assert row is not None
        return row["n"]

    async def work() -> None:
        settings = database.settings(poll_seconds=0.05, lease_seconds=10.0, drain_seconds=5.0)
        db = open_database(settings)
        await db.open()
        registry = Registry()
        registry.register("card_refresh", refresh_cards)
        worker = Worker(db, registry, settings)
        running = asyncio.create_task(worker.run())
        try:
            deadline = time.monotonic() + seconds
            while open_jobs():
                assert time.monotonic() < deadline, f"not done after {seconds} s"
                await asyncio.sleep(0.02)
        finally:
            worker.stop()
            await running
            await db.close()

    asyncio.run(work())
