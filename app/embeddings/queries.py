"""SQL of embeddings."""

from collections.abc import Sequence
from datetime import date
from typing import Any

import psycopg
from sqlalchemy import Executable, delete, func, select, text
from sqlalchemy.dialects.postgresql import insert as upsert
from sqlalchemy.exc import DBAPIError

from app.db.database import Row, Session
from app.embeddings.tables import embedding_redactions, redaction_counts

# For long work in the background.
NO_TIMEOUT = text("SET LOCAL statement_timeout = 0")
# Limit each following statement of this transaction.
TIMEOUT = text("SELECT set_config('statement_timeout', CAST(:milliseconds AS text), true)")

# The registered models.
LIST_MODELS = (
    "SELECT model_id, provider, model, version, dimensions, active, created_at FROM embedding_models ORDER BY model_id"
)

# Units that are due for a model, with their redacted texts; a batch, or one unit.
READ_UNITS = text("""
    SELECT * FROM read_units(CAST(:model AS smallint), :limit, CAST(:least AS float8), CAST(:patterns AS text[]),
                             :characters, CAST(:owner AS uuid))""")
# The same units in the same order, without texts.
DUE_UNITS = text("""
    SELECT q.owner_kind, q.owner_id, q.queued_at, q.attempts FROM embedding_queue q
    WHERE q.tenant_id = :tenant AND q.project_id = :project AND q.model_id = :model
      AND q.available_at <= clock_timestamp()
    ORDER BY q.available_at, q.owner_id LIMIT :limit""")

# Store vectors and remove their units from the queue.
STORE_VECTORS = text(
    "SELECT * FROM store_vectors(CAST(:model AS smallint), :created_at, CAST(:units AS json), CAST(:vectors AS text[]))"
)

# Postpone units.
DELAY_UNITS = text("SELECT delay_units(CAST(:model AS smallint), CAST(:units AS json))")

# Make every job due that waits for the provider of this model.
RESUME = "SELECT resume_embeddings(%s::smallint)"

# Kinds whose term statistics are out of date: a fifth is new, and they were not counted just now.
STALE_LEXICON = """
    SELECT s.kind FROM lexical_statistics s
    WHERE s.tenant_id = %(tenant)s AND s.project_id = %(project)s
      AND (s.added > 0.2 * s.documents OR s.counted_at = '-infinity')
      AND (s.added >= 200 OR s.counted_at < clock_timestamp() - interval '60 seconds')"""

# Count terms again.
REFRESH_LEXICON = text("SELECT refresh_lexicon(:kind, :frequent)")

# Make vectors and queue match the units.
RECONCILE = text("SELECT * FROM reconcile_embeddings(CAST(:least AS float8))")

# How many units there are in all tenants, for the owner of the database.
COUNT_UNITS = text("""
    SELECT (SELECT count(*) FROM memory_notes n WHERE n.deleted_at IS NULL AND n.suppression = 0)
         + (SELECT count(*) FROM graph_facts f WHERE f.confidence > :least AND f.suppression = 0)
         + (SELECT count(*) FROM memory_cards c WHERE c.suppression = 0)
         + (SELECT count(*) FROM graph_objects o
            JOIN branches b ON b.tenant_id = o.tenant_id AND b.branch_id = o.branch_id AND b.name = 'main'
            WHERE o.project_id IS NOT NULL AND o.embed_text IS NOT NULL AND o.deleted_at IS NULL
              AND o.suppression = 0) AS units""")
# How many vectors each model has.
COUNT_VECTORS = text("""
    SELECT e.model_id, count(*) AS vectors FROM embeddings e WHERE e.suppression = 0 AND e.view = 'self'
    GROUP BY e.model_id""")
# How many units are queued for each model.
COUNT_QUEUE = text("""
    SELECT q.model_id, count(*) AS pending, count(*) FILTER (WHERE q.attempts > 0) AS failed,
           min(q.queued_at) AS oldest
    FROM embedding_queue q GROUP BY q.model_id""")
# Redacted texts, in order.
REDACTED = text("""
    SELECT (redact_text(t.words, CAST(:patterns AS text[]), ARRAY(
        SELECT r.pattern FROM embedding_redactions r WHERE r.tenant_id = :tenant
        ORDER BY r.created_at, r.pattern_id), CAST(:characters AS int))).words
    FROM unnest(CAST(:texts AS text[])) WITH ORDINALITY t(words, place) ORDER BY t.place""")
# Whether a pattern matches the empty string in one of these texts, or in an empty one. The marks are noncharacters and
# adjacent where the match is empty.
TRY_PATTERN = text(r"""
    SELECT bool_or(regexp_replace(p.probe, :pattern, E'\uFDD1\\&\uFDD2', 'gi') LIKE E'%\uFDD1\uFDD2%') AS empty
    FROM (SELECT repeat(u, :characters / length(u)) AS probe FROM unnest(CAST(:units AS text[])) u
          UNION ALL SELECT '') p""")
# Whether there is any vector.
ANY_VECTOR = text("SELECT EXISTS (SELECT FROM embeddings) AS found")
LIST_PROJECTS = text("SELECT p.tenant_id, p.project_id FROM projects p ORDER BY p.tenant_id, p.project_id")

# Serialise the commands of operators.
LOCK_MODELS = text("LOCK TABLE embedding_models IN SHARE ROW EXCLUSIVE MODE")
NEXT_MODEL = text("SELECT coalesce(max(m.model_id), 0) + 1 AS model_id FROM embedding_models m")
INSERT_MODEL = text("""
    INSERT INTO embedding_models (model_id, provider, model, version, dimensions, active, created_at)
    VALUES (:model_id, :provider, :model, :version, :dimensions, false, clock_timestamp())""")
DEACTIVATE = text("UPDATE embedding_models SET active = false WHERE active")
ACTIVATE = text(
    "UPDATE embedding_models SET active = true, activated_at = clock_timestamp() WHERE model_id = :model_id"
)
DELETE_MODEL = text("DELETE FROM embedding_models WHERE model_id = :model_id AND NOT active RETURNING model_id")
# In batches by tenant: deleting from a vector index is slow.
DELETE_VECTORS = text("""
    DELETE FROM embeddings e
    WHERE e.tenant_id = :tenant AND e.model_id = :model_id AND (e.view, e.owner_kind, e.owner_id) IN (
        SELECT x.view, x.owner_kind, x.owner_id FROM embeddings x
        WHERE x.tenant_id = :tenant AND x.model_id = :model_id LIMIT :limit)""")
TENANTS_WITH_VECTORS = text("SELECT DISTINCT e.tenant_id FROM embeddings e WHERE e.model_id = :model_id")
DELETE_QUEUE = text("DELETE FROM embedding_queue q WHERE q.model_id = :model_id")
DELETE_COUNTS = text("DELETE FROM embedding_counts c WHERE c.model_id = :model_id")

# Indexes are created for each partition.
PARTITIONS = """
    SELECT c.relname FROM pg_inherits i JOIN pg_class c ON c.oid = i.inhrelid
    WHERE i.inhparent = 'embeddings'::regclass ORDER BY 1"""
# Valid and of these dimensions: an interrupted removal may leave an index of the same name.
VALID_INDEX = """
    SELECT i.indisvalid AND position(%s IN pg_get_indexdef(i.indexrelid)) > 0 AS usable
    FROM pg_index i WHERE i.indexrelid = to_regclass(%s)"""


# One index for each kind, since in a common one a search for facts would visit notes. Cards and objects are few and
# are scanned.
INDEXED = ("note", "fact")


def index_name(model_id: int, kind: str) -> str:
    """Return the name of the index of a model and kind."""
    return f"embeddings_{model_id:d}_{kind}_idx"


def index_type(dimensions: int) -> str:
    """Return the type that the index of such vectors stores."""
    return f"halfvec({dimensions:d})"


def create_index(model_id: int, kind: str, dimensions: int, partitions: list[str]) -> list[str]:
    """Return the statements that create an index without blocking writes, to be run one by one."""
    definition = (
        f"USING hnsw ((vector::{index_type(dimensions)}) halfvec_ip_ops) WITH (m = 24, ef_construction = 256) "
        f"WHERE model_id = {model_id:d} AND owner_kind = '{kind}'"
    )
    whole = index_name(model_id, kind)
    statements = [f"CREATE INDEX {whole} ON ONLY embeddings {definition}"]
    for part in partitions:
        name = _part_name(part, model_id, kind)
        statements.append(f"CREATE INDEX CONCURRENTLY {name} ON {part} {definition}")
        statements.append(f"ALTER INDEX {whole} ATTACH PARTITION {name}")
    return statements


def drop_index(model_id: int, kind: str, partitions: list[str]) -> list[str]:
    """Return the statements that drop an index, complete or not."""
    names = [index_name(model_id, kind), *(_part_name(part, model_id, kind) for part in partitions)]
    return [f"DROP INDEX IF EXISTS {name}" for name in names]


def _part_name(part: str, model_id: int, kind: str) -> str:
    return f"{part}_{model_id:d}_{kind}_idx"


async def count_redactions(session: Session, *, tenant_id: str, project_id: str, day: date, redactions: int) -> None:
    """Add to the number of redactions of a day."""
    row = {"tenant_id": tenant_id, "project_id": project_id, "day": day, "redactions": redactions}
    statement = upsert(redaction_counts).values(row)
    more = {"redactions": redaction_counts.c.redactions + statement.excluded.redactions}
    await session.execute(statement.on_conflict_do_update(constraint="redaction_counts_pkey", set_=more))


async def take_redactions(session: Session, *, tenant_id: str, project_id: str, before: date) -> list[Row]:
    """Delete and return the counts of days before this one."""
    c = redaction_counts.c
    rows = await session.rows(
        delete(redaction_counts)
        .where(c.tenant_id == tenant_id, c.project_id == project_id, c.day < before)
        .returning(c.day, c.redactions)
    )
    return sorted(rows, key=lambda row: row["day"])


class TooSlow(Exception):
    """A statement took longer than allowed."""


class PatternUnusable(Exception):
    """PostgreSQL cannot use a pattern; the message says why."""


async def rows_within(session: Session, statement: Executable, params: Row, *, seconds: float) -> list[Row]:
    """Return all rows of a statement; raise TooSlow after `seconds`, which ends the transaction."""
    await session.execute(TIMEOUT, {"milliseconds": int(seconds * 1000)})
    try:
        return await session.rows(statement, params)
    except DBAPIError as problem:
        if isinstance(problem.orig, psycopg.errors.QueryCanceled):
            raise TooSlow from problem
        raise


async def try_pattern(session: Session, *, pattern: str, units: Sequence[str], characters: int, seconds: float) -> bool:
    """Return whether a pattern matches the empty string in repetitions of these units; raise PatternUnusable."""
    params: Row = {"pattern": pattern, "units": list(units), "characters": characters}
    try:
        (row,) = await rows_within(session, TRY_PATTERN, params, seconds=seconds)
    except TooSlow as problem:
        raise PatternUnusable("it takes too long to search for") from problem
    except DBAPIError as problem:
        if isinstance(problem.orig, psycopg.errors.InvalidRegularExpression):
            raise PatternUnusable(str(problem.orig).strip().splitlines()[0].rpartition(": ")[2]) from problem
        raise
    return row["empty"]


async def count_patterns(session: Session, *, tenant_id: str) -> int:
    """Return how many patterns a tenant has."""
    c = embedding_redactions.c
    row = await session.row(select(func.count().label("n")).where(c.tenant_id == tenant_id))
    assert row is not None
    return row["n"]


async def put_pattern(session: Session, *, row: Row) -> tuple[Row, bool]:
    """Insert a pattern or find it; return its row and whether it is new."""
    c = embedding_redactions.c
    inserted = await session.row(
        upsert(embedding_redactions)
        .values(row)
        .on_conflict_do_nothing(constraint="embedding_redactions_pattern_key")
        .returning(embedding_redactions)
    )
    if inserted is not None:
        return inserted, True
    same = (c.tenant_id == row["tenant_id"], c.pattern == row["pattern"])
    found = await session.row(select(embedding_redactions).where(*same))
    assert found is not None
    return found, False


def select_patterns(*, tenant_id: str, after: str | None, limit: int) -> Any:
    """Return the statement for the patterns of a tenant, oldest first."""
    c = embedding_redactions.c
    statement = select(embedding_redactions).where(c.tenant_id == tenant_id)
    if after is not None:
        statement = statement.where(c.pattern_id > after)
    return statement.order_by(c.pattern_id).limit(limit)


async def delete_pattern(session: Session, *, tenant_id: str, pattern_id: str) -> bool:
    """Delete a pattern; return False when there is none."""
    c = embedding_redactions.c
    found = await session.execute(
        delete(embedding_redactions).where(c.tenant_id == tenant_id, c.pattern_id == pattern_id)
    )
    return found.rowcount == 1
