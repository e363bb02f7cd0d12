"""Benches of recall: a tenant of 70,000 notes and 30,000 facts among 200 tenants, 250,000 vectors in one table."""

import asyncio
import statistics
import time
from collections.abc import Sequence
from typing import Any

import httpx
import msgspec
import numpy as np
import psycopg
from pgvector.psycopg import register_vector

from app.access import AGENT_SCOPES, Principal, new_id
from app.db.database import Database, Row, Scoped
from app.recall import queries, service
from app.recall.access_counts import AccessCounts
from app.recall.dependencies import RecallDependencies
from app.recall.query_vectors import QueryVector
from app.recall.rerank import Rerankers
from app.recall.schemas import RecallAsk
from app.retrieval.channels import CHANNEL_LIMIT
from tests.bench.archive import ARCHIVE, NOTES, ROBIN, SUBJECTS, Connection, Vectors, archive
from tests.bench.measure import Figure
from tests.conftest import Tenancy, TestDatabase
from tests.service import start_service

WARM_UP = 30
QUESTIONS = 40
WITHOUT_VECTOR: dict[str, Any] = {"weights": {"lexical": 0.6, "graph": 0.4}, "lambda_mmr": 1}
SET_SCOPE = "SELECT set_scope(%s, %s, %s, %s::uuid[], %s)"


def recall(database: TestDatabase, *, rounds: int) -> list[Figure]:
    """Recall through HTTP, every question another one; and without embedding beside what it asks of the database."""
    stored = archive(database)
    questions = stored.language.questions(WARM_UP + QUESTIONS * rounds)
    stages = asyncio.run(_record(database, questions))
    key = Tenancy(database).key(ARCHIVE, rate_limits={"read": 0})
    ways: dict[str, dict[str, Any]] = {"whole": {}, "words": WITHOUT_VECTOR}
    times: dict[str, list[float]] = {name: [] for name in (*ways, "floor")}
    with (
        start_service(database.url("app"), LOG_LEVEL="warning") as service,
        httpx.Client(
            base_url=service.url, headers={"Authorization": f"Bearer {key}"}, timeout=60, verify=False
        ) as client,
        psycopg.connect(database.app, prepare_threshold=0) as plain,
    ):
        for number, question in enumerate(questions):
            taken: dict[str, float] = {}
            for name, way in ways.items():
                started = time.perf_counter()
                answer = client.post("/v1/recall", json={"query": question, **way})
                taken[name] = time.perf_counter() - started
                assert answer.status_code == 200, answer.text
                assert answer.json()["results"], "something is found"
                assert not answer.json()["meta"]["degraded"]
            taken["floor"] = sum(_run_bare(plain, *stage) for stage in stages[number])
            if number >= WARM_UP:
                for name, seconds in taken.items():
                    times[name].append(seconds * 1e3)
    return [
        Figure(name="recall: p50", value=_share(times["whole"], 50), unit="ms", target=60, kind="at most"),
        Figure(name="recall: p95", value=_share(times["whole"], 95), unit="ms", target=150, kind="at most"),
        Figure(
            name="recall without vectors, beside its statements",
            value=statistics.median(times["words"]),
            floor=statistics.median(times["floor"]),
            unit="ms",
            target=1.5,
            kind="ratio at most",
        ),
    ]


def _share(times: Sequence[float], percent: int) -> float:
    return statistics.quantiles(times, n=100)[percent - 1]


Statement = tuple[tuple[Any, ...] | None, str, Any]


class Recorder(Database):
    """Keeps what was asked of it."""

    sent: list[Statement]

    async def query(self, who: Scoped, query: str, params: dict[str, Any]) -> list[Row]:
        self.sent.append((who.arguments(), query, params))
        return await super().query(who, query, params)

    async def call(self, query: str, params: Sequence[Any] = (), *, again: bool = True) -> list[Row]:
        self.sent.append((None, query, params))
        return await super().call(query, params, again=again)


class NoVectors:
    """Nothing is embedded."""

    async def embed(self, tenant_id: str, query: str) -> QueryVector | None:
        return None

    async def expected(self) -> bool:
        return False


async def _record(database: TestDatabase, questions: list[str]) -> list[list[Statement]]:
    """The statements of each question: what is found, what is read of it, and its trace."""
    db = Recorder(database.app, pool_size=4)
    who = Principal(
        tenant_id=ARCHIVE,
        project_id="default",
        agent_id="robin",
        key_id=new_id(),
        kind="agent",
        scopes=frozenset(AGENT_SCOPES),
    )
    dependencies = RecallDependencies(
        vectors=NoVectors(), access_counts=AccessCounts(db), hold_denied=frozenset(), rerankers=Rerankers()
    )
    kept: list[list[Statement]] = []
    try:
        for question in questions:
            db.sent = []
            ask = msgspec.convert({"query": question, **WITHOUT_VECTOR}, RecallAsk)
            await service.recall(db, who, ask=ask, dependencies=dependencies)
            kept.append(db.sent)
    finally:
        await db.close()
    return kept


def _run_bare(connection: Connection, scope: tuple[Any, ...] | None, query: str, params: Any) -> float:
    """Seconds of one statement, prepared, in a transaction of its own that is begun and ended beside it."""
    if query == queries.RECORD_TRACE:
        # A trace is kept once: under another name, again.
        params = (*params[:5], new_id(), *params[6:])
    if scope is not None:
        connection.execute(SET_SCOPE, scope)
    started = time.perf_counter()
    connection.execute(query.encode(), params).fetchall()
    if scope is None:
        connection.commit()
    seconds = time.perf_counter() - started
    connection.commit()
    return seconds


TERMS = 8
LOOKUPS = 30
# Terms by the share of notes they stand in: what says little, what says something, what says all.
SAMPLES = """
    SELECT term FROM lexical_frequencies
    WHERE tenant_id = 'archive' AND kind = 'note' AND documents >= %s AND documents < %s ORDER BY md5(term)"""
RANGES = {"frequent": (0.01, 1.0), "middling": (0.002, 0.01), "rare": (0.0, 0.002)}
LOOKUP = """
    SELECT count(*) FROM weigh_terms('archive', 'default', 'note', %(query)s, 64) w
    CROSS JOIN LATERAL match_notes(
        ROW(w.terms, ARRAY(SELECT ln(1 + (w.total - d + .5) / (d + .5)) FROM unnest(w.documents) d),
            w.average)::term_query,
        choose_terms(w.terms, w.documents, 2000), 4000, %(limit)s, NULL, NULL) m"""


def lexical(database: TestDatabase, *, rounds: int) -> list[Figure]:
    """Eight terms or-ed over 70,000 notes, as recall looks them up: frequent, rare, and of all kinds."""
    archive(database)
    times: dict[str, list[float]] = {}
    with psycopg.connect(database.superuser) as connection:
        terms = {
            kind: [row[0] for row in connection.execute(SAMPLES.encode(), (low * NOTES, high * NOTES))]
            for kind, (low, high) in RANGES.items()
        }
    mixed = [term for together in zip(*terms.values(), strict=False) for term in together]
    chance = np.random.default_rng(3)
    with psycopg.connect(database.app, prepare_threshold=0) as connection:
        for number in range(WARM_UP + LOOKUPS * rounds):
            for kind, known in {**terms, "mixed": mixed}.items():
                query = " ".join(chance.choice(known, TERMS, replace=False))
                connection.execute(SET_SCOPE, ROBIN)
                started = time.perf_counter()
                found = connection.execute(LOOKUP.encode(), {"query": query, "limit": CHANNEL_LIMIT}).fetchone()
                seconds = time.perf_counter() - started
                connection.commit()
                assert found is not None
                if number >= WARM_UP:
                    times.setdefault(kind, []).append(seconds * 1e3)
    return [
        Figure(
            name=f"{TERMS} {kind} terms or-ed: p{percent}",
            value=_share(taken, percent),
            unit="ms",
            target=40,
            kind="at most",
        )
        for kind, taken in times.items()
        for percent in (50, 95)
    ]


NEAR = """
    SELECT owner_id FROM nearest_units(
        ROW(%(tenant)s, 'default', NULL, NULL, NULL)::read_context, NULL,
        ROW(1, 384, %(vector)s)::vector_query, 'note', %(limit)s)"""
# By the owner, past every index: what there is to be found.
EXACT = """
    SELECT owner_id, vector FROM embeddings
    WHERE tenant_id = %s AND model_id = 1 AND view = 'self' AND owner_kind = 'note' ORDER BY owner_id"""
ASKED = 20


def vectors(database: TestDatabase, *, rounds: int) -> list[Figure]:
    """The nearest twenty notes of tenants of every size in one table: how many of them are found, and how soon.

    Sizes are of all vectors; 70,000 of the largest tenant's are of notes.
    """
    stored = archive(database)
    asked, warm = (
        stored.space.around(stored.space.chance.integers(0, SUBJECTS, count)) for count in (ASKED * rounds, WARM_UP)
    )
    figures: list[Figure] = []
    with (
        psycopg.connect(database.superuser) as owner,
        psycopg.connect(database.app, prepare_threshold=0) as connection,
    ):
        register_vector(owner)
        for size, tenant in sorted(stored.sized.items()):
            rows = owner.execute(EXACT.encode(), (tenant,)).fetchall()
            ids = [str(row[0]) for row in rows]
            there = np.asarray([row[1].to_numpy() for row in rows])
            # As a server that has been running: with the index in its memory, and its plans made.
            for vector in warm:
                _near(connection, tenant, vector, 200)
            for limit in (20, 200):
                found = [_near(connection, tenant, vector, limit) for vector in asked]
                right = [
                    _overlap(answer, there @ vector, ids, limit)
                    for (answer, _), vector in zip(found, asked, strict=True)
                ]
                target = None if limit != 20 else (3 if tenant == ARCHIVE else 30)
                figures += [
                    Figure(
                        name=f"nearest {limit} of {size:,}: found",
                        value=statistics.mean(right) * 100,
                        unit="% of them",
                        target=98 if limit == 20 else None,
                    ),
                    Figure(
                        name=f"nearest {limit} of {size:,}: median",
                        value=statistics.median(seconds for _, seconds in found) * 1e3,
                        unit="ms",
                        target=target,
                        kind="at most",
                    ),
                ]
    return figures


def _near(connection: Connection, tenant: str, vector: Vectors, limit: int) -> tuple[list[str], float]:
    text = f"[{','.join(map(str, vector.tolist()))}]"
    connection.execute(SET_SCOPE, (tenant, *ROBIN[1:]))
    started = time.perf_counter()
    rows = connection.execute(NEAR.encode(), {"tenant": tenant, "vector": text, "limit": limit}).fetchall()
    seconds = time.perf_counter() - started
    connection.commit()
    return [str(row[0]) for row in rows], seconds


def _overlap(found: list[str], cosines: Vectors, ids: list[str], limit: int) -> float:
    best = {ids[index] for index in np.argsort(-cosines, kind="stable")[:limit]}
    return len(best & set(found)) / len(best)
