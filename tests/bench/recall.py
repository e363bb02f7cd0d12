"""Benches of recall: a tenant of 100,000 notes and 30,000 facts among 200 tenants, with 250,000 vectors in one table."""

import asyncio
import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from importlib.resources import files
from itertools import islice, pairwise
from typing import Any

import httpx
import numpy as np
import psycopg
import uuid_utils
from numpy.typing import NDArray
from pgvector.psycopg import register_vector

from app.db.database import Database, Row, Scoped
from app.providers.local import DIMENSIONS, LocalEmbedder
from app.recall import queries, recalling
from app.recall.accesses import AccessCounts
from app.recall.candidates import NOTE_LIMIT
from app.recall.embedding.tasks import FREQUENT
from app.recall.means import Means, QueryVector
from app.recall.schemas import RecallAsk
from app.web.auth import AGENT_SCOPES, Principal, new_id
from tests.bench.measure import Figure
from tests.conftest import Tenancy, TestDatabase
from tests.service import start_service

ARCHIVE = "archive"
NOTES = 100_000
FACTS = 30_000
ENTITIES = 5_000
# Beside the archive: some of a given size, whose vectors lie in the same partition as the archive's, and many small ones.
SIZED = (30, 2_000, 20_000)
SMALL, SMALL_NOTES = 196, 500
THREAD = 40
TOPICS, TOPIC_WORDS = 400, 60
CHUNK = 20_000
ROBIN = (ARCHIVE, "default", "robin", [], "")

Vectors = NDArray[np.float32]
Connection = psycopg.Connection[Any]


class Language:
    """Texts whose words are as frequent as in a language, the n-th one n-th as often as the first; half of what is said
    of a topic is said in words of its own. The words are English, in the order of their frequency."""

    def __init__(self, seed: int) -> None:
        self.chance = np.random.default_rng(seed)
        listed = files("app.providers").joinpath("wordpiece.txt").read_text(encoding="utf-8").splitlines()
        self.words = [word for word in listed if word.isascii() and word.isalpha() and len(word) > 1]
        share = 1 / (np.arange(len(self.words)) + 2.7)
        self._share = np.cumsum(share / share.sum())
        self.topics = [self._topic() for _ in range(TOPICS)]

    def _draw(self, count: int) -> NDArray[np.intp]:
        return np.searchsorted(self._share, self.chance.random(count))

    def _topic(self) -> NDArray[np.intp]:
        drawn = self._draw(10 * TOPIC_WORDS)
        # What is said of everything belongs to no topic.
        return drawn[drawn > 200][:TOPIC_WORDS]

    def say(self, topic: int, length: int) -> list[str]:
        """So many words on a topic."""
        drawn = self._draw(length)
        own = self.chance.random(length) < 0.5
        drawn[own] = self.chance.choice(self.topics[topic], int(own.sum()))
        return [self.words[index] for index in drawn]

    def names(self, count: int) -> list[str]:
        """Different names of two words."""
        first, second = (self.chance.permutation(len(self.words))[:count] for _ in range(2))
        return [f"{self.words[a].title()} {self.words[b].title()}" for a, b in zip(first, second, strict=True)]

    def question(self) -> str:
        """Five to ten words on some topic."""
        return " ".join(self.say(self.chance.integers(TOPICS), self.chance.integers(5, 11)))


class Space:
    """Vectors as embeddings lie: around topics, with most of what tells them apart in some hundred directions.

    Noise that is the same in all directions has nothing to be found: everything is equally far from everything. Here
    each vector is that of its topic, which the model made, with parts of other topics mixed in and a little noise:
    the nearest is at a cosine of about .7 and the twentieth at .4, as among real notes.
    """

    def __init__(self, language: Language, seed: int) -> None:
        self.chance = np.random.default_rng(seed)
        texts = [" ".join(language.say(topic, 40)) for topic in range(TOPICS)]
        centres = asyncio.run(_embedded(texts))
        self._middle = centres.mean(axis=0)
        self._apart = centres - self._middle

    def around(self, topics: NDArray[np.intp]) -> Vectors:
        """One vector on each of these topics."""
        made = self._middle + 0.7 * self._apart[topics]
        for _ in range(3):
            others = self._apart[self.chance.integers(0, TOPICS, len(topics))]
            made += 0.4 * self.chance.normal(size=(len(topics), 1)) * others
        made += self.chance.normal(0, 0.01, made.shape)
        return (made / np.linalg.norm(made, axis=1, keepdims=True)).astype(np.float32)


async def _embedded(texts: list[str]) -> Vectors:
    embedder = LocalEmbedder()
    try:
        return await embedder.embed(texts)
    finally:
        await embedder.aclose()


FILL_TENANTS = """
    INSERT INTO tenants (tenant_id, name, created_at) SELECT t, t, now() FROM unnest(%(names)s::text[]) t;
    INSERT INTO projects (tenant_id, project_id, name, created_at)
    SELECT t, 'default', 'default', now() FROM unnest(%(names)s::text[]) t"""
DRAFTS = """
    CREATE TEMPORARY TABLE drafts (
        tenant_id text, note_id uuid, content text, author text, occurred_at timestamptz, thread_id text, position int)"""
FILL_NOTES = """
    INSERT INTO memory_notes (
        tenant_id, note_id, project_id, agent_id, scope, owner_key, type, content, content_hash, tags, author,
        occurred_at, thread_id, position, pinned, created_at, updated_at, terms, telling)
    SELECT tenant_id, note_id, 'default', 'robin', 'project_shared', '', 'semantic', content, md5(content), '{}', author,
           occurred_at, thread_id, position, false, now(), now(),
           note_terms(tenant_id, 'default', author, occurred_at, '{}', content),
           count_telling(tenant_id, 'default', content)
    FROM drafts"""
FILL_ENTITIES = """
    INSERT INTO graph_entities (tenant_id, entity_id, project_id, canonical, canonical_norm, created_at, updated_at)
    SELECT 'archive', md5(name)::uuid, 'default', name, lower(name), now(), now() FROM unnest(%(names)s::text[]) name;
    INSERT INTO graph_predicates (tenant_id, predicate_id, scope_key, project_id, canonical, canonical_norm,
                                  cardinality, status, created_at, updated_at)
    SELECT 'archive', md5(name)::uuid, 'archive:default', 'default', name, name, 'multi', 'active', now(), now()
    FROM unnest(%(predicates)s::text[]) name"""
# Half of them between two entities, with their edges.
FILL_FACTS = """
    INSERT INTO graph_facts (
        tenant_id, fact_id, project_id, agent_id, scope, owner_key, subject_entity_id, predicate, predicate_id,
        object_entity_id, object_value, object_hash, value_type, confidence, source_trust, fact_hash, hlc,
        single_valued, valid_from, created_at, updated_at, terms)
    SELECT 'archive', u.id, 'default', 'robin', 'project_shared', '', md5(u.subject)::uuid, u.predicate,
           md5(u.predicate)::uuid, CASE WHEN u.named THEN md5(u.object)::uuid END,
           CASE WHEN NOT u.named THEN u.object END, sha256(u.object::bytea),
           CASE WHEN u.named THEN 'entity' ELSE 'string' END, .5 + .5 * random(), .5, sha256(u.id::text::bytea),
           '1700000000000.000', false, now(), now(), now(), fact_terms('english', u.subject, u.predicate, u.object)
    FROM unnest(%(ids)s::uuid[], %(subjects)s::text[], %(predicates)s::text[], %(objects)s::text[], %(named)s::bool[])
        u(id, subject, predicate, object, named)
    ON CONFLICT DO NOTHING;
    INSERT INTO entity_edges (
        tenant_id, edge_id, project_id, agent_id, scope, owner_key, subject_entity_id, predicate_id, object_entity_id,
        confidence, source_trust, valid_from, created_at)
    SELECT tenant_id, fact_id, project_id, agent_id, scope, owner_key, subject_entity_id, predicate_id,
           object_entity_id, confidence, source_trust, valid_from, created_at
    FROM graph_facts WHERE tenant_id = 'archive' AND object_entity_id IS NOT NULL"""
FILL_MENTIONS = """
    INSERT INTO note_entity_mentions (tenant_id, project_id, note_id, entity_id, created_at)
    SELECT 'archive', 'default', u.note, md5(u.name)::uuid, now()
    FROM unnest(%(notes)s::uuid[], %(names)s::text[]) u(note, name)"""
COPY_VECTORS = """
    COPY embeddings (tenant_id, project_id, owner_kind, owner_id, view, model_id, agent_id, scope, text_hash,
                     embedded_at, vector) FROM STDIN (FORMAT binary)"""
VECTOR_TYPES = [*("text", "text", "text", "uuid", "text", "int2", "text", "text", "bytea", "timestamptz", "vector")]
FILL_COUNTS = """
    INSERT INTO embedding_counts (tenant_id, project_id, model_id, view, vectors, counted_at)
    SELECT tenant_id, project_id, model_id, view, count(*), now() FROM embeddings GROUP BY 1, 2, 3, 4
    ON CONFLICT DO NOTHING"""
# Names whose vectors are kept where the archive's are.
BESIDE = """
    SELECT t FROM generate_series(1, 1000) i, LATERAL (SELECT 'sized-' || i AS t) n, generate_series(0, 7) r
    WHERE satisfies_hash_partition('embeddings'::regclass, 8, r, 'archive')
      AND satisfies_hash_partition('embeddings'::regclass, 8, r, t) ORDER BY i LIMIT %s"""
INDEX = """
    CREATE INDEX embeddings_1_idx ON embeddings
    USING hnsw ((vector::vector(384)) vector_ip_ops) WHERE model_id = 1"""


@dataclass(frozen=True)
class Archive:
    """What is stored, for who asks about it."""

    language: Language
    space: Space
    sized: dict[int, str]


_filled: dict[str, Archive] = {}


def _archive(database: TestDatabase) -> Archive:
    """The data of these benches, made once in a database."""
    if database.name not in _filled:
        language = Language(1)
        tenancy = Tenancy(database)
        tenancy.tenant(ARCHIVE)
        with psycopg.connect(database.superuser, autocommit=True) as connection:
            space = Space(language, 2)
            _filled[database.name] = _fill(connection, language, space)
    return _filled[database.name]


def _fill(connection: Connection, language: Language, space: Space) -> Archive:
    register_vector(connection)
    connection.execute("SELECT setseed(.5)")
    names = [row[0] for row in connection.execute(BESIDE.encode(), (len(SIZED),))]
    small = [f"small-{number}" for number in range(SMALL)]
    with psycopg.ClientCursor(connection) as cursor:
        cursor.execute(FILL_TENANTS.encode(), {"names": [*names, *small]})
    connection.execute(DRAFTS.encode())
    # Faster in one go than one by one.
    connection.execute("DROP INDEX embeddings_1_idx")
    entities = language.names(ENTITIES)
    mentioned = _fill_notes(connection, language, space, ARCHIVE, NOTES, entities)
    for name, count in zip([*names, *small], [*SIZED, *(SMALL * [SMALL_NOTES])], strict=True):
        _fill_notes(connection, language, space, name, count, [])
    _fill_facts(connection, language, space, entities)
    connection.execute(FILL_MENTIONS.encode(), {"notes": list(mentioned), "names": list(mentioned.values())})
    connection.execute(FILL_COUNTS.encode())
    connection.execute("SET maintenance_work_mem = '1GB'")
    connection.execute(INDEX.encode())
    for kind in ("note", "fact"):
        with connection.transaction():
            connection.execute("SELECT set_scope(%s, %s, %s, %s::uuid[], %s)", ROBIN)
            connection.execute("SELECT refresh_lexicon(%s, %s)", (kind, FREQUENT))
    connection.execute("VACUUM ANALYZE")
    return Archive(language, space, {NOTES: ARCHIVE, **dict(zip(SIZED, names, strict=True))})


def _fill_notes(
    connection: Connection, language: Language, space: Space, tenant: str, count: int, entities: list[str]
) -> dict[str, str]:
    """Notes in threads, each on a topic; answers which of them speaks of which entity."""
    mentioned: dict[str, str] = {}
    authors = language.names(40)
    began = datetime(2025, 1, 1, tzinfo=UTC)
    for start in range(0, count, CHUNK):
        size = min(CHUNK, count - start)
        topics = language.chance.integers(0, TOPICS, size // THREAD + 1).repeat(THREAD)[:size]
        ids = [str(uuid_utils.uuid7()) for _ in range(size)]
        connection.execute("TRUNCATE drafts")
        with connection.cursor().copy("COPY drafts FROM STDIN") as copy:
            for index, (note, topic) in enumerate(zip(ids, topics, strict=True)):
                said = language.say(topic, language.chance.integers(8, 36))
                if entities and language.chance.random() < 0.3:
                    mentioned[note] = entities[language.chance.integers(len(entities))]
                    said.insert(len(said) // 2, mentioned[note])
                content = " ".join(said).capitalize() if note not in mentioned else " ".join(said)
                place = start + index
                row = (
                    tenant,
                    note,
                    f"{content}{'?' if place % 5 == 0 else '.'}",
                    authors[place // THREAD % 20 + place % 2],
                )
                copy.write_row((*row, began + timedelta(minutes=place), f"thread {place // THREAD}", place % THREAD))
        connection.execute(FILL_NOTES.encode())
        _copy_vectors(connection, tenant, "note", ids, space.around(topics))
    return mentioned


def _fill_facts(connection: Connection, language: Language, space: Space, entities: list[str]) -> None:
    chance = language.chance
    predicates = [" ".join(language.say(topic, 2)) for topic in range(20)]
    topics = chance.integers(0, TOPICS, FACTS)
    named = chance.random(FACTS) < 0.5
    facts: dict[str, list[Any]] = {
        "ids": [str(uuid_utils.uuid7()) for _ in range(FACTS)],
        "subjects": [entities[index] for index in chance.integers(0, ENTITIES, FACTS)],
        "predicates": [predicates[index] for index in chance.integers(0, len(predicates), FACTS)],
        "objects": [
            entities[chance.integers(ENTITIES)] if is_named else " ".join(language.say(topic, chance.integers(2, 12)))
            for topic, is_named in zip(topics, named, strict=True)
        ],
        "named": named.tolist(),
    }
    with psycopg.ClientCursor(connection) as cursor:
        cursor.execute(FILL_ENTITIES.encode(), {"names": entities, "predicates": sorted(set(predicates))})
        cursor.execute(FILL_FACTS.encode(), facts)
    _copy_vectors(connection, ARCHIVE, "fact", facts["ids"], space.around(topics))


def _copy_vectors(connection: Connection, tenant: str, kind: str, ids: list[str], vectors: Vectors) -> None:
    now = datetime.now(UTC)
    with connection.cursor().copy(COPY_VECTORS.encode()) as copy:
        copy.set_types(VECTOR_TYPES)
        for unit, vector in zip(ids, vectors, strict=True):
            head = (tenant, "default", kind, unit, "self", 1, "robin", "project_shared", b"", now)
            copy.write_row((*head, vector))
