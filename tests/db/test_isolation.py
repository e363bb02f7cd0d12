"""Isolation: no row of another tenant or project can be read, written, changed or removed, on any table there is."""

import queue
import threading
from collections.abc import Callable
from typing import Any
from uuid import uuid4

import psycopg
import pytest
from psycopg import sql
from psycopg_pool import ConnectionPool

from app.db.catalogue import tenant_rules
from app.db.rls import Rule
from app.db.schema import load_metadata
from tests.conftest import TestDatabase
from tests.long import sized
from tests.pooling_proxy import PoolingProxy

ALPHA, BETA = "alpha", "beta"
ONE, TWO = "one", "two"

WALK = """
    SELECT c.relname FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
    WHERE n.nspname = 'public' AND c.relkind IN ('r', 'p') AND NOT c.relispartition
      AND EXISTS (
        SELECT FROM pg_attribute a WHERE a.attrelid = c.oid AND a.attname = 'tenant_id' AND NOT a.attisdropped)
    ORDER BY 1"""

COLUMNS = """
    SELECT a.attname, format_type(a.atttypid, NULL) FROM pg_attribute a
    WHERE a.attrelid = %s::regclass AND a.attnum > 0 AND NOT a.attisdropped AND a.attgenerated = ''"""

KEY_COLUMNS = """
    SELECT a.attname FROM pg_index i JOIN pg_attribute a ON a.attrelid = i.indrelid AND a.attnum = ANY (i.indkey)
    WHERE i.indrelid = %s::regclass AND i.indisprimary"""

# What a table wants beyond a value of the right type. A new table with a CHECK of its own adds its line here.
SPECIAL: dict[str, dict[str, Any]] = {
    "api_keys": {"kind": "agent", "secret_hash": b"x" * 32},
    "gardens": {"scope": "project_shared"},
    "garden_members": {"role": "reader"},
    "memory_history": {"scope": "project_shared", "event": "created", "garden_id": None, "suppression": 0},
    "memory_notes": {
        "scope": "project_shared",
        "type": "fact",
        "garden_id": None,
        "suppression": 0,
        "deleted_at": None,
        "extraction_status": "none",
        "confidence": 0.5,
    },
    "memory_reviews": {
        "scope": "project_shared",
        "garden_id": None,
        "suppression": 0,
        "action": "update",
        "status": "pending",
    },
    "documents": {
        "scope": "project_shared",
        "garden_id": None,
        "suppression": 0,
        "source_type": "text",
        "status": "queued",
    },
    "document_notes": {"scope": "project_shared", "garden_id": None, "suppression": 0},
    "document_entity_mentions": {"suppression": 0},
    "graph_entities": {"merged_into": None, "suppression": 0},
    "branches": {"parent_branch_id": None},
    "object_type_schemas": {"status": "active", "embedding_policy": "optional"},
    "relationship_type_schemas": {"status": "active", "multiplicity_src": "many", "multiplicity_dst": "many"},
    "graph_objects": {"suppression": 0},
    "graph_object_versions": {"suppression": 0},
    "graph_relationships": {"suppression": 0},
    "graph_relationship_versions": {"suppression": 0},
    "object_entity_mentions": {"suppression": 0},
    "graph_entity_aliases": {"suppression": 0},
    "graph_predicates": {"cardinality": "multi", "status": "pending"},
    "graph_facts": {
        "scope": "project_shared",
        "garden_id": None,
        "object_value": None,
        "value_type": "entity",
        "suppression": 0,
        "valid_to": None,
        "retracted_at": None,
    },
    "graph_fact_evidence": {"suppression": 0},
    "graph_fact_mentions": {"suppression": 0},
    "graph_fact_supersessions": {"suppression": 0},
    "fact_closings": {"suppression": 0},
    "fact_confidences": {"suppression": 0},
    "fact_derivations": {"kind": "derived", "suppression": 0},
    "note_entity_mentions": {"suppression": 0},
    "fact_conflicts": {"status": "open", "suppression": 0},
    "sources": {"identity": "none", "authority": "other"},
    "decay_policies": {"mode": "retract", "scope": "public"},
    "audit_log": {"event_type": "fact_write", "sequence": None},
    "fact_retractions": {"kind": "retracted", "scope": "project_shared", "garden_id": None, "suppression": 0},
    "entity_edges": {"scope": "project_shared", "garden_id": None, "suppression": 0},
    "embeddings": {
        "model_id": 2,
        "owner_kind": "note",
        "view": "self",
        "scope": "project_shared",
        "garden_id": None,
        "suppression": 0,
        "vector": "[1,0]",
    },
    "embedding_queue": {"owner_kind": "note"},
    "embedding_counts": {"view": "self"},
    "lexical_statistics": {"kind": "note"},
    "lexical_frequencies": {"kind": "note"},
    "memory_cards": {"scope": "project_shared", "garden_id": None, "suppression": 0},
    "recall_traces": {"suppression": 0},
    "jobs": {"status": "pending", "kind": "embed", "lease_owner": None, "max_attempts": 5},
}
BY_TYPE: dict[str, Any] = {
    "text": "words",
    "uuid": None,
    "jsonb": "{}",
    "bytea": b"bytes",
    "boolean": False,
    "smallint": 1,
    "integer": 1,
    "bigint": 1,
    "timestamp with time zone": "2026-01-01T00:00:00Z",
    "text[]": [],
    "bigint[]": [],
    "integer[]": [],
    "uuid[]": [],
    "double precision": 0.5,
    "real": 0.5,
    "date": "2026-01-01",
    "tsvector": "",
    "vector": "[1,0]",
}


REACH_OF_RULE = {Rule.CUSTODY: "legal_hold", Rule.JOURNAL: "legal_hold", Rule.USER_JOURNAL: "legal_hold"}
BOB, CAROL = "bob", "carol"


def reach_of(table: str) -> str:
    """The reach without which not even one's own rows of a table are seen."""
    return REACH_OF_RULE.get(tenant_rules(load_metadata())[table], "")


def tables(connection: psycopg.Connection[Any]) -> list[str]:
    """Every table with a tenant_id that the catalogue knows."""
    return [row[0] for row in connection.execute(WALK.encode()).fetchall()]


def make_row(connection: psycopg.Connection[Any], table: str, tenant: str, project: str) -> dict[str, Any]:
    """A plausible row of any table, unique by its ids; parents that it refers to are those of the fixture."""
    row: dict[str, Any] = {}
    for name, kind in connection.execute(COLUMNS.encode(), (table,)).fetchall():
        row[name] = str(uuid4()) if kind == "uuid" else BY_TYPE[kind]
        if kind == "text":
            row[name] = f"w{uuid4().hex[:12]}"
    row.update(SPECIAL.get(table, {}))
    row["tenant_id"] = tenant
    if "project_id" in row:
        row["project_id"] = project
    if "scope_key" in row:
        row["scope_key"] = f"{tenant}:{project}"
    return row


def insert(connection: psycopg.Connection[Any], table: str, row: dict[str, Any]) -> None:
    """Inserts a row given by its columns."""
    connection.execute(
        sql.SQL("INSERT INTO {} ({}) VALUES ({})").format(
            sql.Identifier(table),
            sql.SQL(", ").join(map(sql.Identifier, row)),
            sql.SQL(", ").join(sql.Placeholder() * len(row)),
        ),
        list(row.values()),
    )


def scope(connection: psycopg.Connection[Any], tenant: str, project: str, reach: str = "", user: str = "*") -> None:
    """Enters a tenant's project for this transaction, for one user or for all of them."""
    connection.execute("SELECT set_scope(%s, %s, 'robin', NULL, %s, %s)", (tenant, project, reach, user))


@pytest.fixture(scope="module")
def filled(database: TestDatabase) -> dict[tuple[str, str, str], dict[str, Any]]:
    """One row in every table for two tenants with two projects each, written past the policies."""
    rows: dict[tuple[str, str, str], dict[str, Any]] = {}
    with psycopg.connect(database.superuser) as connection:
        # References are not the subject here, and a generic row cannot know them.
        connection.execute("SET session_replication_role = replica")
        for table in tables(connection):
            for tenant in (ALPHA, BETA):
                for project in (ONE, TWO):
                    row = make_row(connection, table, tenant, project)
                    if table in ("tenants", "audit_chains") and project == TWO:
                        continue
                    insert(connection, table, row)
                    rows[table, tenant, project] = row
        connection.commit()
    return rows


def all_tables() -> list[str]:
    """The tables this version declares; the walk below proves that the database has no others."""
    return sorted(tenant_rules(load_metadata()))


def address(connection: psycopg.Connection[Any], table: str, row: dict[str, Any]) -> tuple[sql.Composed, list[Any]]:
    """A WHERE clause that finds one row by its primary key."""
    names = [name for (name,) in connection.execute(KEY_COLUMNS.encode(), (table,)).fetchall()]
    clause = sql.SQL(" AND ").join(sql.SQL("{} = %s").format(sql.Identifier(name)) for name in names)
    return clause, [row[name] for name in names]


def seen(connection: psycopg.Connection[Any], table: str, row: dict[str, Any]) -> int:
    """How many rows answer to this row's key from here."""
    clause, values = address(connection, table, row)
    found = connection.execute(
        sql.SQL("SELECT count(*) FROM {} WHERE {}").format(sql.Identifier(table), clause), values
    ).fetchone()
    assert found is not None
    return found[0]


def attack(connection: psycopg.Connection[Any], table: str, row: dict[str, Any]) -> None:
    """Fails unless reading, changing, removing and forging this row are all impossible from the present scope."""
    assert seen(connection, table, row) == 0, "read"
    clause, values = address(connection, table, row)
    name = sql.Identifier(table)
    for statement in (
        sql.SQL("UPDATE {} SET tenant_id = tenant_id WHERE {}").format(name, clause),
        sql.SQL("DELETE FROM {} WHERE {}").format(name, clause),
    ):
        try:
            with connection.transaction():
                assert connection.execute(statement, values).rowcount == 0, statement.as_string()
        except psycopg.errors.InsufficientPrivilege:
            pass  # not granted at all: refused before any policy is asked
    forged = make_row(connection, table, row["tenant_id"], row.get("project_id") or ONE)
    with pytest.raises(psycopg.errors.InsufficientPrivilege), connection.transaction():
        insert(connection, table, forged)


def test_the_database_has_no_tenant_table_that_this_version_does_not_declare(database: TestDatabase) -> None:
    with psycopg.connect(database.superuser) as connection:
        assert tables(connection) == all_tables()


@pytest.mark.parametrize("table", all_tables())
def test_rows_of_another_tenant_cannot_be_touched(
    database: TestDatabase, filled: dict[tuple[str, str, str], dict[str, Any]], table: str
) -> None:
    with psycopg.connect(database.app) as connection:
        for reach in ("", "cross_project", "shared", "legal_hold"):
            scope(connection, ALPHA, ONE, reach)
            attack(connection, table, filled[table, BETA, ONE])
            connection.rollback()


@pytest.mark.parametrize("table", [name for name, rule in tenant_rules(load_metadata()).items() if rule != Rule.TENANT])
@pytest.mark.parametrize("reach", ["", "shared"])
def test_rows_of_another_project_cannot_be_touched(
    database: TestDatabase, filled: dict[tuple[str, str, str], dict[str, Any]], table: str, reach: str
) -> None:
    """With reach shared neither: these rows are not shared, and no name is readable but through one that is."""
    with psycopg.connect(database.app) as connection:
        scope(connection, ALPHA, ONE, reach)
        attack(connection, table, filled[table, ALPHA, TWO])


@pytest.mark.parametrize("table", all_tables())
@pytest.mark.parametrize("context", ["never set", "set to nothing", "left over from another transaction"])
def test_without_a_scope_there_is_nothing(
    database: TestDatabase, filled: dict[tuple[str, str, str], dict[str, Any]], table: str, context: str
) -> None:
    with psycopg.connect(database.app) as connection:
        if context == "set to nothing":
            scope(connection, "", "")
        if context == "left over from another transaction":
            scope(connection, ALPHA, ONE, reach_of(table) or "cross_project")
            assert seen(connection, table, filled[table, ALPHA, ONE]) == 1
            connection.commit()
        attack(connection, table, filled[table, ALPHA, ONE])


@pytest.mark.parametrize("table", all_tables())
def test_ones_own_rows_are_there(
    database: TestDatabase, filled: dict[tuple[str, str, str], dict[str, Any]], table: str
) -> None:
    """Without this, an empty policy would pass every test above."""
    with psycopg.connect(database.app) as connection:
        scope(connection, ALPHA, ONE, reach_of(table))
        assert seen(connection, table, filled[table, ALPHA, ONE]) == 1


@pytest.mark.parametrize(
    "table", [name for name, rule in tenant_rules(load_metadata()).items() if rule == Rule.CUSTODY]
)
@pytest.mark.parametrize("reach", ["", "cross_project"])
def test_nobody_but_custodians_learns_of_a_tombstone(
    database: TestDatabase, filled: dict[tuple[str, str, str], dict[str, Any]], table: str, reach: str
) -> None:
    with psycopg.connect(database.app) as connection:
        scope(connection, ALPHA, ONE, reach)
        attack(connection, table, filled[table, ALPHA, ONE])


def tables_of_users() -> list[str]:
    """The tables whose rows belong to an end user, or to all of them."""
    return [name for name, rule in tenant_rules(load_metadata()).items() if rule.name.startswith("USER_")]


def test_no_table_with_a_user_is_forgotten(database: TestDatabase) -> None:
    with psycopg.connect(database.superuser) as connection:
        found = connection.execute(
            "SELECT c.relname FROM pg_class c JOIN pg_attribute a ON a.attrelid = c.oid AND a.attname = 'user_id' "
            "WHERE c.relnamespace = 'public'::regnamespace AND c.relkind IN ('r', 'p') AND NOT c.relispartition "
            "ORDER BY 1"
        ).fetchall()
    # A key is no memory: whose key it is can be seen by who may see keys.
    assert [name for (name,) in found if name != "api_keys"] == sorted(tables_of_users())


@pytest.mark.parametrize("table", tables_of_users())
@pytest.mark.parametrize("user", [BOB, ""])
def test_rows_of_another_user_cannot_be_touched(
    database: TestDatabase, filled: dict[tuple[str, str, str], dict[str, Any]], table: str, user: str
) -> None:
    with psycopg.connect(database.app) as connection:
        for reach in ("", "cross_project", "legal_hold"):
            scope(connection, ALPHA, ONE, reach, user)
            attack(connection, table, filled[table, ALPHA, ONE])
            connection.rollback()


@pytest.mark.parametrize("table", tables_of_users())
def test_a_user_sees_their_own_rows(
    database: TestDatabase, filled: dict[tuple[str, str, str], dict[str, Any]], table: str
) -> None:
    row = filled[table, ALPHA, ONE]
    with psycopg.connect(database.app) as connection:
        scope(connection, ALPHA, ONE, reach_of(table), row["user_id"])
        assert seen(connection, table, row) == 1


@pytest.mark.slow
def test_a_race_of_two_users_over_two_connections_sees_no_foreign_row(
    database: TestDatabase, filled: dict[tuple[str, str, str], dict[str, Any]]
) -> None:
    with psycopg.connect(database.superuser) as connection:
        connection.execute("SET session_replication_role = replica")
        for user in (BOB, CAROL):
            for table in ("memory_notes", "graph_facts", "memory_cards"):
                insert(connection, table, make_row(connection, table, ALPHA, ONE) | {"user_id": user})
    with ConnectionPool(database.app, min_size=2, max_size=2, open=True, timeout=120) as pool:
        assert race(pool, threads=8, transactions=sized(2_000, 20_000), count=count_of_other_users) == 0


def count_of_other_users(connection: psycopg.Connection[Any], turn: int) -> int:
    """Rows of other users that a transaction of one user can see, over several tables at once."""
    user = (BOB, CAROL)[turn % 2]
    scope(connection, ALPHA, ONE, user=user)
    parts = [
        sql.SQL(
            "SELECT count(*) FILTER (WHERE user_id NOT IN ('', {0})) AS others, "
            "count(*) FILTER (WHERE user_id = {0}) AS own FROM {1}"
        ).format(sql.Literal(user), sql.Identifier(table))
        for table in ("memory_notes", "graph_facts", "memory_cards")
    ]
    found = connection.execute(
        sql.SQL("SELECT sum(others), min(own) FROM ({}) x").format(sql.SQL(" UNION ALL ").join(parts))
    ).fetchone()
    assert found is not None
    assert found[1] > 0, "the user's own rows have to be there, or nothing was tested"
    return int(found[0])


def count_foreign(connection: psycopg.Connection[Any], turn: int) -> int:
    """Rows of anybody else that a transaction of one tenant can see, over all tables at once."""
    tenant = (BETA, ALPHA)[turn % 2]
    scope(connection, tenant, ONE, "cross_project")
    parts = [
        sql.SQL("SELECT count(*) FILTER (WHERE tenant_id <> {}) AS foreign_rows, count(*) AS own FROM {}").format(
            sql.Literal(tenant), sql.Identifier(table)
        )
        for table in ("jobs", "gardens", "api_keys")
    ]
    found = connection.execute(
        sql.SQL("SELECT sum(foreign_rows), min(own) FROM ({}) x").format(sql.SQL(" UNION ALL ").join(parts))
    ).fetchone()
    assert found is not None
    assert found[1] > 0, "the tenant's own rows have to be there, or nothing was tested"
    return int(found[0])


def race(
    pool: ConnectionPool[Any],
    *,
    threads: int,
    transactions: int,
    count: Callable[[psycopg.Connection[Any], int], int] = count_foreign,
) -> int:
    """Alternating transactions on shared connections; answers the number of foreign rows seen."""
    foreign: queue.SimpleQueue[int] = queue.SimpleQueue()
    failures: queue.SimpleQueue[BaseException] = queue.SimpleQueue()

    def work(number: int) -> None:
        try:
            total = 0
            for turn in range(transactions // threads):
                with pool.connection() as connection:
                    total += count(connection, turn + number)
            foreign.put(total)
        except BaseException as problem:
            failures.put(problem)
            raise

    workers = [threading.Thread(target=work, args=(number,)) for number in range(threads)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert failures.empty()
    return sum(foreign.get() for _ in range(threads))


@pytest.mark.slow
def test_a_race_of_two_tenants_over_two_connections_sees_no_foreign_row(
    database: TestDatabase, filled: dict[tuple[str, str, str], dict[str, Any]]
) -> None:
    with ConnectionPool(database.app, min_size=2, max_size=2, open=True, timeout=120) as pool:
        assert race(pool, threads=8, transactions=sized(2_000, 20_000)) == 0


@pytest.mark.slow
def test_the_same_through_a_pooler_in_transaction_mode(
    database: TestDatabase, filled: dict[tuple[str, str, str], dict[str, Any]]
) -> None:
    proxy = PoolingProxy(database.app, server_connections=2)
    proxy.start_in_thread()
    try:
        with ConnectionPool(
            proxy.conninfo, min_size=8, max_size=8, open=True, timeout=120, kwargs={"prepare_threshold": None}
        ) as pool:
            assert race(pool, threads=8, transactions=sized(800, 4_000)) == 0
    finally:
        proxy.stop()


def test_a_pooled_connection_that_another_client_used_shows_nothing(
    database: TestDatabase, filled: dict[tuple[str, str, str], dict[str, Any]]
) -> None:
    proxy = PoolingProxy(database.app, server_connections=1)
    proxy.start_in_thread()
    try:
        with (
            psycopg.connect(proxy.conninfo, prepare_threshold=None) as first,
            psycopg.connect(proxy.conninfo, prepare_threshold=None) as second,
        ):
            scope(first, ALPHA, ONE, "cross_project")
            pid = first.execute("SELECT pg_backend_pid()").fetchone()
            assert seen(first, "jobs", filled["jobs", ALPHA, ONE]) == 1
            first.commit()
            assert second.execute("SELECT pg_backend_pid()").fetchone() == pid
            for table in all_tables():
                attack(second, table, filled[table, ALPHA, ONE])
    finally:
        proxy.stop()
