"""Short ways to fill a tenant of one's own, to ask for what is in it, and to choose vectors by hand."""

import asyncio
import math
import secrets
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any, TypeVar

import httpx
import numpy as np
import psycopg

from app.cli import administration
from app.providers.local import LocalEmbedder
from app.tenancy.schemas import KeyCreate, ProjectCreate, RateLimits, TenantCreate
from tests.conftest import Tenancy
from tests.facts import shared as facts

Superuser = psycopg.Connection[dict[str, Any]]
Found = dict[str, Any]
T = TypeVar("T")

LEXICAL = {"lexical": 1.0}
VECTOR = {"vector": 1.0}
GRAPH = {"graph": 1.0}
BY_HAND: dict[str, Any] = {"lambda_mmr": 1.0, "debug": True}


class Vectors:
    """What the model makes of queries, and unit vectors at a chosen cosine from that."""

    def __init__(self) -> None:
        self._embedder = LocalEmbedder()
        self._known: dict[str, np.ndarray] = {}
        self._axes: dict[str, list[np.ndarray]] = {}

    def of(self, query: str) -> np.ndarray:
        if query not in self._known:
            made = asyncio.run(self._embedder.embed([query], query=True))
            self._known[query] = made[0].astype(np.float64)
        return self._known[query]

    def at(self, query: str, cosine: float, *, turn: int = 0) -> np.ndarray:
        """At this cosine from the query; those of different turns differ from each other beside that."""
        return cosine * self.of(query) + math.sqrt(1 - cosine**2) * self._aside(query, turn)

    def _aside(self, query: str, turn: int) -> np.ndarray:
        """The axis of this turn, at right angles to the query and to those of the turns before it."""
        axes = self._axes.setdefault(query, [self.of(query)])
        while len(axes) < turn + 2:
            aside = np.zeros_like(axes[0])
            aside[len(axes) - 1] = 1.0
            for axis in axes:
                aside -= (aside @ axis) * axis
            axes.append(aside / np.linalg.norm(aside))
        return axes[turn + 1]

    def close(self) -> None:
        asyncio.run(self._embedder.aclose())


@dataclass
class World:
    """A tenant with two agents and an administrator."""

    tenant_id: str
    robin: httpx.Client
    wren: httpx.Client
    admin: httpx.Client
    superuser: Superuser
    vectors: Vectors
    issue: Callable[..., httpx.Client]
    placed: dict[str, np.ndarray] = field(default_factory=dict)

    @classmethod
    def make(
        cls,
        tenancy: Tenancy,
        client: Callable[..., httpx.Client],
        superuser: Superuser,
        vectors: Vectors,
        *,
        projects: Iterable[str],
        limits: RateLimits,
    ) -> "World":
        tenant_id = f"t{secrets.token_hex(6)}"

        async def found(db: Any) -> dict[str, str]:
            await administration.create_tenant(db, TenantCreate(tenant_id=tenant_id))
            for project in ("default", *projects):
                await administration.create_project(db, ProjectCreate(tenant_id=tenant_id, project_id=project))
            made: dict[str, str] = {}
            for name, kind in (("robin", "agent"), ("wren", "agent"), ("admin", "admin")):
                data = KeyCreate(tenant_id=tenant_id, agent_id=name, kind=kind, rate_limits=limits)  # type: ignore[arg-type]
                made[name] = (await administration.create_key(db, data)).key
            return made

        keys = tenancy.run(found)

        def issue(project: str = "default", **fields: Any) -> httpx.Client:
            """A client with a key of its own."""
            given = {"agent_id": "robin", "project_id": project, "rate_limits": limits, **fields}
            return client(tenancy.key(tenant_id, **given), project)

        return cls(
            tenant_id=tenant_id,
            robin=client(keys["robin"]),
            wren=client(keys["wren"]),
            admin=client(keys["admin"]),
            superuser=superuser,
            vectors=vectors,
            issue=issue,
        )

    def fact(self, subject: Any, predicate: str, target: Any, *, by: httpx.Client | None = None, **fields: Any) -> str:
        return facts.fact(by or self.robin, subject, predicate, target, **fields)["fact_id"]

    def note(self, content: str, *, by: httpx.Client | None = None, **fields: Any) -> str:
        return facts.note(by or self.robin, content=content, **fields)

    def recall(self, query: str, *, by: httpx.Client | None = None, **fields: Any) -> Found:
        return asked(by or self.robin, query=query, **fields)

    def found(self, query: str, *, by: httpx.Client | None = None, **fields: Any) -> list[str]:
        """The ids that come back, in their order."""
        return [one["id"] for one in self.recall(query, by=by, **fields)["results"]]

    def scores(self, query: str, *, by: httpx.Client | None = None, **fields: Any) -> dict[str, Found]:
        """How each score came about, by id; nothing is left out for being like another."""
        answer = self.recall(query, by=by, **{**BY_HAND, "token_budget": 100_000, "max_results": 200, **fields})
        return {one["id"]: one for one in answer["scores_debug"]}

    def place(self, owner_id: str, query: str, cosine: float, *, turn: int = 0) -> None:
        """Gives a unit a vector at this cosine from a query."""
        self.put_vector(owner_id, self.vectors.at(query, cosine, turn=turn))

    def place_again(self) -> None:
        """All vectors that were chosen, once more."""
        for owner_id, vector in self.placed.items():
            self.put_vector(owner_id, vector)

    def put_vector(self, owner_id: str, vector: np.ndarray) -> None:
        self.placed[owner_id] = vector
        text = "[" + ",".join(f"{number:.9g}" for number in vector) + "]"
        row = self.superuser.execute(
            "INSERT INTO embeddings (tenant_id, project_id, owner_kind, owner_id, view, model_id, agent_id, scope,"
            "                        garden_id, suppression, text_hash, embedded_at, vector) "
            "SELECT u.tenant_id, u.project_id, u.kind, u.id, 'self', m.model_id, u.agent_id, u.scope, u.garden_id,"
            "       u.suppression, '', now(), %(vector)s::vector "
            "FROM (SELECT 'fact' AS kind, fact_id AS id, tenant_id, project_id, agent_id, scope, garden_id, suppression"
            "      FROM graph_facts WHERE tenant_id = %(tenant)s AND fact_id = %(id)s "
            "      UNION ALL "
            "      SELECT 'note', note_id, tenant_id, project_id, agent_id, scope, garden_id, suppression"
            "      FROM memory_notes WHERE tenant_id = %(tenant)s AND note_id = %(id)s) u "
            "JOIN embedding_models m ON m.active "
            "ON CONFLICT (tenant_id, model_id, view, owner_kind, owner_id) DO UPDATE SET vector = excluded.vector "
            "RETURNING owner_id",
            {"vector": text, "tenant": self.tenant_id, "id": owner_id},
        ).fetchone()
        assert row is not None

    def age(self, fact_id: str, days: float) -> None:
        """Makes a fact that much older."""
        self.superuser.execute(
            "UPDATE graph_facts SET created_at = created_at - make_interval(secs => %s), "
            "valid_from = valid_from - make_interval(secs => %s) WHERE tenant_id = %s AND fact_id = %s",
            (days * 86_400, days * 86_400, self.tenant_id, fact_id),
        )

    def undisturbed(self, work: Callable[[], T]) -> T:
        """Done at a stretch: none of the accesses that are counted now and then was counted meanwhile."""
        while True:
            before = self._accesses()
            made = work()
            if self._accesses() == before:
                return made

    def _accesses(self) -> int:
        return self.one("SELECT sum(access_count) FROM graph_facts WHERE tenant_id = %s", self.tenant_id)

    def one(self, query: str, *values: Any) -> Any:
        row = self.superuser.execute(query.encode(), values).fetchone()
        assert row is not None
        return next(iter(row.values()))

    def now(self) -> str:
        """The database's time."""
        return self.one("SELECT clock_timestamp()").isoformat()


def asked(client: httpx.Client, **fields: Any) -> Found:
    """A recall that is answered."""
    answer = client.post("/v1/recall", json=fields)
    assert answer.status_code == 200, answer.text
    return answer.json()


def edge(name: str) -> dict[str, Any]:
    """An object that is an entity."""
    return {"entity": name}
