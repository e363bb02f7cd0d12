"""The data of the benches of recall: 70,000 notes and 30,000 facts of one tenant, and 199 other tenants beside it."""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from importlib.resources import files
from typing import Any
from uuid import UUID

import numpy as np
import psycopg
import uuid_utils
from numpy.typing import NDArray
from pgvector.psycopg import register_vector

from app.embeddings.tasks import FREQUENT
from app.providers.local import LocalEmbedder
from tests.conftest import Tenancy, TestDatabase

ARCHIVE = "archive"
NOTES = 70_000
FACTS = 30_000
ENTITIES = 5_000
# Beside the archive: some of a given size, with their vectors in the same partition, and many small ones.
SIZED = (30, 2_000, 20_000)
SMALL, SMALL_NOTES = 196, 653
THREAD = 40
TOPICS, TOPIC_WORDS = 400, 60
# Each in the words of one topic.
SUBJECTS = 5_000
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
        # What is said of everything belongs to no topic.
        drawn = self._draw(4 * TOPICS * TOPIC_WORDS)
        self.topics = drawn[drawn > 200][: TOPICS * TOPIC_WORDS].reshape(TOPICS, TOPIC_WORDS)

    def _draw(self, count: int) -> NDArray[np.intp]:
        return np.searchsorted(self._share, self.chance.random(count))

    def say(self, topics: Sequence[int] | NDArray[np.int64], *, shortest: int, longest: int) -> list[list[str]]:
        """Some words on each of these topics."""
        lengths = self.chance.integers(shortest, longest + 1, len(topics))
        drawn = self._draw(lengths.sum())
        own = self.chance.random(len(drawn)) < 0.5
        of = np.repeat(topics, lengths)[own]
        drawn[own] = self.topics[of, self.chance.integers(0, TOPIC_WORDS, len(of))]
        return [[self.words[index] for index in part] for part in np.split(drawn, np.cumsum(lengths)[:-1])]

    def names(self, count: int) -> list[str]:
        """Different names of two words."""
        first, second = (self.chance.permutation(len(self.words))[:count] for _ in range(2))
        return [f"{self.words[a].title()} {self.words[b].title()}" for a, b in zip(first, second, strict=True)]

    def questions(self, count: int) -> list[str]:
        """Five to ten words each."""
        topics = self.chance.integers(0, TOPICS, count)
        return [" ".join(said) for said in self.say(topics, shortest=5, longest=10)]


class Space:
    """Vectors as embeddings lie: many around each of many subjects, the subjects between topics.

    Noise that is the same in all directions has nothing to be found: everything is equally far from everything. Here
    the model itself makes the vectors of topics; a subject is a mixture of them, and a note its subject with other
    topics mixed in and a little noise. Among 11,000 such vectors the nearest twenty are as near, as spread and as hard
    to find by an index as among as many real notes: cosines of .6 to .4 where any two have .1, local dimension 20.
    """

    def __init__(self, language: Language, seed: int) -> None:
        self.chance = np.random.default_rng(seed)
        texts = [" ".join(said) for said in language.say(range(TOPICS), shortest=40, longest=40)]
        topics = asyncio.run(_embedded(texts))
        self._middle = 0.5 * topics.mean(axis=0)
        self._topics = topics - topics.mean(axis=0)
        self._subjects = 0.7 * self._topics[np.arange(SUBJECTS) % TOPICS] + 0.7 * self._mix(SUBJECTS)

    def _mix(self, count: int) -> NDArray[np.float64]:
        """So many mixtures of three topics."""
        weights = self.chance.normal(0, 3**-0.5, (3, count, 1))
        return (weights * self._topics[self.chance.integers(0, TOPICS, (3, count))]).sum(axis=0)

    def around(self, subjects: NDArray[np.intp]) -> Vectors:
        """One vector on each of these subjects."""
        made = self._middle + 0.6 * self._subjects[subjects] + 0.6 * self._mix(len(subjects))
        made += self.chance.normal(0, 0.02, made.shape)
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
        tenant_id text, note_id uuid, content text, author text, occurred_at timestamptz, thread_id text,
        position int)"""
FILL_NOTES = """
    INSERT INTO memory_notes (
        tenant_id, note_id, project_id, agent_id, scope, owner_key, type, content, content_hash, tags, author,
        occurred_at, thread_id, position, pinned, created_at, updated_at, terms, telling)
    SELECT tenant_id, note_id, 'default', 'robin', 'project_shared', '', 'semantic', content, md5(content), '{}',
           author, occurred_at, thread_id, position, false, now(), now(),
           note_terms(tenant_id, 'default', author, occurred_at, '{}', content),
           count_content_terms(tenant_id, 'default', content)
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
# Each of them evidence of two facts about the entity it mentions.
FILL_MENTIONS = """
    INSERT INTO note_entity_mentions (tenant_id, project_id, note_id, entity_id, created_at)
    SELECT 'archive', 'default', u.note, md5(u.name)::uuid, now()
    FROM unnest(%(notes)s::uuid[], %(names)s::text[]) u(note, name);
    INSERT INTO graph_fact_evidence (tenant_id, project_id, evidence_id, fact_id, note_id, created_at)
    SELECT 'archive', 'default', gen_random_uuid(), f.fact_id, u.note, now()
    FROM unnest(%(notes)s::uuid[], %(names)s::text[]) u(note, name)
    JOIN (SELECT f.fact_id, f.subject_entity_id, row_number() OVER (PARTITION BY f.subject_entity_id) AS place
          FROM graph_facts f WHERE f.tenant_id = 'archive') f
        ON f.subject_entity_id = md5(u.name)::uuid AND f.place <= 2"""
COPY_VECTORS = """
    COPY embeddings (tenant_id, project_id, owner_kind, owner_id, view, model_id, agent_id, scope, text_hash,
                     embedded_at, vector) FROM STDIN (FORMAT binary)"""
VECTOR_TYPES = [*("text", "text", "text", "uuid", "text", "int2", "text", "text", "bytea", "timestamptz", "vector")]
FILL_COUNTS = """
    INSERT INTO embedding_counts (tenant_id, project_id, model_id, view, vectors, notes, facts, counted_at)
    SELECT tenant_id, project_id, model_id, view, count(*), count(*) FILTER (WHERE owner_kind = 'note'),
           count(*) FILTER (WHERE owner_kind = 'fact'), now()
    FROM embeddings GROUP BY 1, 2, 3, 4
    ON CONFLICT DO NOTHING"""
INDEXES = """
    SELECT i.indexrelid::regclass::text, pg_get_indexdef(i.indexrelid) FROM pg_index i
    JOIN pg_class c ON c.oid = i.indexrelid JOIN pg_am a ON a.oid = c.relam
    WHERE i.indrelid = 'embeddings'::regclass AND a.amname = 'hnsw'"""
# Names whose vectors are kept where the archive's are.
BESIDE = """
    SELECT t FROM generate_series(1, 1000) i, LATERAL (SELECT 'sized-' || i AS t) n, generate_series(0, 7) r
    WHERE satisfies_hash_partition('embeddings'::regclass, 8, r, text 'archive')
      AND satisfies_hash_partition('embeddings'::regclass, 8, r, t) ORDER BY i LIMIT %s"""


@dataclass(frozen=True)
class Archive:
    """What is stored, for who asks about it."""

    language: Language
    space: Space
    sized: dict[int, str]


_filled: dict[str, Archive] = {}


def archive(database: TestDatabase) -> Archive:
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
    indexes = connection.execute(INDEXES.encode()).fetchall()
    for name, _ in indexes:
        connection.execute(f"DROP INDEX {name}".encode())
    entities = language.names(ENTITIES)
    mentioned = _fill_notes(connection, language, space, ARCHIVE, NOTES, entities)
    for name, count in zip([*names, *small], [*SIZED, *(SMALL * [SMALL_NOTES])], strict=True):
        _fill_notes(connection, language, space, name, count, [])
    _fill_facts(connection, language, space, entities)
    with psycopg.ClientCursor(connection) as cursor:
        cursor.execute(FILL_MENTIONS.encode(), {"notes": list(mentioned), "names": list(mentioned.values())})
    connection.execute(FILL_COUNTS.encode())
    connection.execute("SET maintenance_work_mem = '1GB'")
    for _, definition in indexes:
        connection.execute(definition.replace(" ON ONLY ", " ON ").encode())
    for kind in ("note", "fact"):
        with connection.transaction():
            connection.execute("SELECT set_scope(%s, %s, %s, %s::uuid[], %s)", ROBIN)
            connection.execute("SELECT refresh_lexicon(%s, %s)", (kind, FREQUENT))
    connection.execute("VACUUM ANALYZE")
    return Archive(language, space, {NOTES + FACTS: ARCHIVE, **dict(zip(SIZED, names, strict=True))})


def _fill_notes(
    connection: Connection, language: Language, space: Space, tenant: str, count: int, entities: list[str]
) -> dict[str, str]:
    """Notes in threads, each on a subject; answers which of them speaks of which entity."""
    mentioned: dict[str, str] = {}
    authors = language.names(40)
    began = datetime(2025, 1, 1, tzinfo=UTC)
    for start in range(0, count, CHUNK):
        size = min(CHUNK, count - start)
        subjects = language.chance.integers(0, SUBJECTS, size // THREAD + 1).repeat(THREAD)[:size]
        ids = [str(uuid_utils.uuid7()) for _ in range(size)]
        connection.execute("TRUNCATE drafts")
        with connection.cursor().copy("COPY drafts FROM STDIN") as copy:
            for place, note, said in zip(
                range(start, start + size), ids, language.say(subjects % TOPICS, shortest=8, longest=35), strict=True
            ):
                if entities and place % 3 == 0:
                    mentioned[note] = entities[place // 3 * 7 % len(entities)]
                    said.insert(len(said) // 2, mentioned[note])
                content = f"{' '.join(said)}{'?' if place % 5 == 0 else '.'}"
                author = authors[place // THREAD % 20 + place % 2]
                when = began + timedelta(minutes=place)
                copy.write_row((tenant, note, content, author, when, f"thread {place // THREAD}", place % THREAD))
        connection.execute(FILL_NOTES.encode())
        _copy_vectors(connection, tenant, "note", ids, space.around(subjects))
    return mentioned


def _fill_facts(connection: Connection, language: Language, space: Space, entities: list[str]) -> None:
    chance = language.chance
    predicates = [" ".join(said) for said in language.say(range(20), shortest=2, longest=2)]
    subjects = chance.integers(0, SUBJECTS, FACTS)
    named = chance.random(FACTS) < 0.5
    facts: dict[str, list[Any]] = {
        "ids": [str(uuid_utils.uuid7()) for _ in range(FACTS)],
        "subjects": [entities[index] for index in chance.integers(0, ENTITIES, FACTS)],
        "predicates": [predicates[index] for index in chance.integers(0, len(predicates), FACTS)],
        "objects": [
            entities[other] if is_named else " ".join(said)
            for other, is_named, said in zip(
                chance.integers(0, ENTITIES, FACTS),
                named,
                language.say(subjects % TOPICS, shortest=2, longest=12),
                strict=True,
            )
        ],
        "named": named.tolist(),
    }
    with psycopg.ClientCursor(connection) as cursor:
        cursor.execute(FILL_ENTITIES.encode(), {"names": entities, "predicates": sorted(set(predicates))})
        cursor.execute(FILL_FACTS.encode(), facts)
    _copy_vectors(connection, ARCHIVE, "fact", facts["ids"], space.around(subjects))


def _copy_vectors(connection: Connection, tenant: str, kind: str, ids: list[str], vectors: Vectors) -> None:
    now = datetime.now(UTC)
    with connection.cursor().copy(COPY_VECTORS.encode()) as copy:
        copy.set_types(VECTOR_TYPES)
        for unit, vector in zip(ids, vectors, strict=True):
            head = (tenant, "default", kind, UUID(unit), "self", 1, "robin", "project_shared", b"", now)
            copy.write_row((*head, vector))
