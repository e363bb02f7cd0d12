"""The search by vectors through its indexes, as for a tenant of many: what it finds and what it never finds."""

import hashlib
import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import psycopg
import pytest
from numpy.typing import NDArray
from pgvector.psycopg import register_vector

from tests.conftest import Tenancy, TestDatabase, cloned

COUNT = 600
LIMIT = 20
# Every so manieth is not for the caller, each for another reason.
EVERY = 6
Connection = psycopg.Connection[Any]
Vectors = NDArray[np.float32]

# As the command adds one, but for the parts: with other dimensions than the model that is there from the beginning.
SECOND_MODEL = """
    INSERT INTO embedding_models (model_id, provider, model, version, dimensions, active, created_at)
    VALUES (2, 'fake', 'small', 1, 64, false, now());
    CREATE INDEX embeddings_2_note_idx ON embeddings USING hnsw ((vector::halfvec(64)) halfvec_ip_ops)
        WHERE model_id = 2 AND owner_kind = 'note';
    CREATE INDEX embeddings_2_fact_idx ON embeddings USING hnsw ((vector::halfvec(64)) halfvec_ip_ops)
        WHERE model_id = 2 AND owner_kind = 'fact'"""
# Vectors are kept for what was believed and is no more, too.
UNITS = """
    INSERT INTO memory_notes (
        tenant_id, note_id, project_id, agent_id, scope, owner_key, type, content, content_hash, tags, pinned,
        occurred_at, created_at, updated_at)
    SELECT 'acme', md5('note ' || i)::uuid, 'default', 'robin', 'project_shared', '', 'semantic', 'note ' || i,
           md5('note ' || i), '{}', false, now(), t.made, t.made
    FROM generate_series(0, %(count)s - 1) i
    CROSS JOIN LATERAL (SELECT now() - CASE i %% %(every)s WHEN 3 THEN interval '1 hour' ELSE interval '3 days' END
                            AS made) t;
    INSERT INTO graph_entities (tenant_id, entity_id, project_id, canonical, canonical_norm, created_at, updated_at)
    VALUES ('acme', md5('Ada')::uuid, 'default', 'Ada', 'ada', now(), now());
    INSERT INTO graph_predicates (tenant_id, predicate_id, scope_key, project_id, canonical, canonical_norm,
                                  cardinality, status, created_at, updated_at)
    VALUES ('acme', md5('says')::uuid, 'acme:default', 'default', 'says', 'says', 'multi', 'active', now(), now());
    INSERT INTO graph_facts (
        tenant_id, fact_id, project_id, agent_id, scope, owner_key, subject_entity_id, predicate, predicate_id,
        object_value, object_hash, value_type, confidence, source_trust, fact_hash, hlc, single_valued, valid_from,
        valid_to, created_at, closed_at, updated_at)
    SELECT 'acme', md5('fact ' || i)::uuid, 'default', 'robin', 'project_shared', '', md5('Ada')::uuid, 'says',
           md5('says')::uuid, 'value ' || i, sha256(int4send(i)), 'string',
           CASE i %% %(every)s WHEN 4 THEN .2 ELSE .9 END, CASE i %% %(every)s WHEN 5 THEN .1 ELSE .8 END,
           sha256(int4send(i)), '1700000000000.000', false, now() - interval '3 days',
           CASE i %% %(every)s WHEN 3 THEN now() - interval '1 hour' END, now() - interval '3 days',
           CASE i %% %(every)s WHEN 3 THEN now() - interval '1 hour' END, now()
    FROM generate_series(0, %(count)s - 1) i;
    INSERT INTO fact_closings (tenant_id, project_id, closing_id, fact_id, recorded_at)
    SELECT f.tenant_id, f.project_id, f.fact_id, f.fact_id, f.closed_at FROM graph_facts f
    WHERE f.closed_at IS NOT NULL"""
# Of every six one is another agent's own, and one shared with everybody.
VECTORS = """
    INSERT INTO embeddings (tenant_id, project_id, owner_kind, owner_id, view, model_id, agent_id, scope, text_hash,
                            embedded_at, vector)
    SELECT 'acme', 'default', %(kind)s, md5(%(kind)s || ' ' || v.i - 1)::uuid, 'self', %(model)s,
           CASE (v.i - 1) %% %(every)s WHEN 1 THEN 'wren' ELSE 'robin' END,
           CASE (v.i - 1) %% %(every)s WHEN 1 THEN 'agent_private' WHEN 2 THEN 'org_shared' ELSE 'project_shared' END,
           '', now(), v.vector
    FROM unnest(%(vectors)s::vector[]) WITH ORDINALITY v(vector, i)"""
# So many that looking through them all would take long.
MANY = """
    INSERT INTO embedding_counts (tenant_id, project_id, model_id, view, vectors, notes, facts, counted_at)
    SELECT 'acme', 'default', m, 'self', 60000, 30000, 30000, now() FROM unnest(ARRAY[1, 2]) m"""
SCANS = """
    SELECT sum(s.idx_scan) FROM pg_stat_user_indexes s
    JOIN pg_class c ON c.oid = s.indexrelid JOIN pg_am a ON a.oid = c.relam WHERE a.amname = 'hnsw'"""
NEAR = """
    SELECT n.owner_id::text, n.cosine FROM nearest_units(
        ROW('acme', 'default', NULL, now() - %(ago)s::interval, %(scope)s)::read_context,
        ROW(NULL, %(sure)s, %(trusted)s, true)::fact_filter,
        ROW(%(model)s, %(dimensions)s, %(vector)s)::vector_query, %(kind)s, %(limit)s) n"""


@dataclass
class Space:
    """What is stored, and who asks for it."""

    owner: Connection
    caller: Connection
    there: dict[tuple[int, str], Vectors]

    def near(self, model: int, kind: str, vector: Vectors, **changes: Any) -> list[tuple[str, float]]:
        asked = {"scope": None, "ago": None, "sure": 0.0, "trusted": 0.0, "limit": LIMIT, **changes}
        text = f"[{','.join(map(str, vector.tolist()))}]"
        with self.caller.transaction():
            self.caller.execute("SELECT set_scope('acme', 'default', 'robin', '{}', '', '*')")
            params = {**asked, "kind": kind, "model": model, "dimensions": len(vector), "vector": text}
            return self.caller.execute(NEAR.encode(), params).fetchall()

    def scans(self) -> int:
        self.caller.execute("SELECT pg_stat_force_next_flush()")
        return int(self.owner.execute(SCANS.encode()).fetchall()[0][0])


def name(kind: str, number: int) -> str:
    """The id of a unit, as SQL makes it."""
    return str(uuid.UUID(hashlib.md5(f"{kind} {number}".encode(), usedforsecurity=False).hexdigest()))


@pytest.fixture(scope="module")
def space(superuser_conninfo: str, template: str, app_password: str) -> Iterator[Space]:
    with cloned(superuser_conninfo, template, app_password) as database:
        yield from _filled(database)


def _filled(database: TestDatabase) -> Iterator[Space]:
    Tenancy(database).tenant("acme")
    chance = np.random.default_rng(7)
    with (
        psycopg.connect(database.superuser, autocommit=True) as owner,
        psycopg.connect(database.app, autocommit=True) as caller,
    ):
        register_vector(owner)
        owner.execute(SECOND_MODEL.encode())
        place = {"count": COUNT, "every": EVERY}
        with psycopg.ClientCursor(owner) as cursor:
            cursor.execute(UNITS.encode(), place)
        there: dict[tuple[int, str], Vectors] = {}
        for model, dimensions in ((1, 384), (2, 64)):
            for kind in ("note", "fact"):
                made = chance.normal(size=(COUNT, dimensions)).astype(np.float32)
                there[model, kind] = made / np.linalg.norm(made, axis=1, keepdims=True)
                owner.execute(
                    VECTORS.encode(), {**place, "kind": kind, "model": model, "vectors": list(there[model, kind])}
                )
        owner.execute(MANY.encode())
        owner.execute("VACUUM ANALYZE")
        yield Space(owner, caller, there)


def expected(space: Space, model: int, kind: str, vector: Vectors, hidden: set[int]) -> list[str]:
    """The nearest of those that are not hidden, by their place among every six."""
    order = np.argsort(-(space.there[model, kind] @ vector), kind="stable")
    return [name(kind, number) for number in order.tolist() if number % EVERY not in hidden][:LIMIT]


@pytest.mark.parametrize("model", [1, 2])
@pytest.mark.parametrize(
    ("kind", "changes", "hidden"),
    [
        ("note", {}, {1}),
        ("note", {"scope": "project_shared"}, {1, 2}),
        ("note", {"ago": "1 day"}, {1, 3}),
        ("fact", {}, {1, 3}),
        ("fact", {"scope": "org_shared"}, {0, 1, 3, 4, 5}),
        ("fact", {"ago": "1 day"}, {1}),
        ("fact", {"sure": 0.5}, {1, 3, 4}),
        ("fact", {"trusted": 0.3}, {1, 3, 4, 5}),
    ],
)
def test_by_the_index_the_nearest_are_found_and_none_that_is_hidden(
    space: Space, model: int, kind: str, changes: dict[str, Any], hidden: set[int]
) -> None:
    before = space.scans()
    asked = space.there[model, kind][:10] + 0.02
    shares: list[float] = []
    for vector in asked:
        found = space.near(model, kind, vector, **changes)
        right = expected(space, model, kind, vector, hidden)
        assert len(found) == LIMIT, "as many as are wanted"
        assert not {unit for unit, _ in found} - set(expected_all(space, kind, hidden))
        assert [cosine for _, cosine in found] == sorted((cosine for _, cosine in found), reverse=True)
        shares.append(len({unit for unit, _ in found} & set(right)) / LIMIT)
    assert sum(shares) / len(shares) >= 0.95
    assert space.scans() >= before + len(asked), "the index was asked, each time"


def expected_all(space: Space, kind: str, hidden: set[int]) -> list[str]:
    """Everything that may be found."""
    return [name(kind, number) for number in range(COUNT) if number % EVERY not in hidden]


@pytest.mark.parametrize("model", [1, 2])
@pytest.mark.parametrize("kind", ["note", "fact"])
def test_where_the_index_has_too_few_all_are_looked_through(space: Space, model: int, kind: str) -> None:
    before = space.scans()
    hidden = {0, 1, 3, 4, 5}
    found = space.near(model, kind, space.there[model, kind][0], scope="org_shared", limit=200)
    assert space.scans() > before
    assert {unit for unit, _ in found} == set(expected_all(space, kind, hidden))
    assert len(found) == COUNT // EVERY


@pytest.mark.parametrize("model", [1, 2])
@pytest.mark.parametrize("kind", ["note", "fact"])
def test_all_are_looked_through_where_nearly_all_are_wanted(space: Space, model: int, kind: str) -> None:
    before = space.scans()
    vector = space.there[model, kind][0]
    found = space.near(model, kind, vector, limit=30_000)
    assert {unit for unit, _ in found} == set(expected_all(space, kind, {1} if kind == "note" else {1, 3}))
    cosines = [cosine for _, cosine in found]
    assert cosines == sorted(cosines, reverse=True)
    assert space.scans() == before
