"""Migrations: twice without harm, down to nothing and up again, and no drift from the tables in code."""

import re

import psycopg
import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from psycopg.conninfo import make_conninfo

from app.db import migrations
from app.db.functions import all_functions, schema_functions
from tests.conftest import TestDatabase
from tests.service import ROOT, palimpsest

FILES = sorted((ROOT / "alembic" / "functions").rglob("*.sql"), key=lambda path: path.stem)

LEFT_OVER = """
    SELECT 'table ' || c.relname FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
    WHERE n.nspname = 'public' AND c.relkind IN ('r', 'p', 'v', 'm', 'S', 'f') AND c.relname <> 'alembic_version'
    UNION ALL
    SELECT 'function ' || p.proname FROM pg_proc p JOIN pg_namespace n ON n.oid = p.pronamespace
    WHERE n.nspname = 'public' AND NOT EXISTS (SELECT FROM pg_depend d WHERE d.objid = p.oid AND d.deptype = 'e')
    UNION ALL
    SELECT 'type ' || t.typname FROM pg_type t JOIN pg_namespace n ON n.oid = t.typnamespace
    WHERE n.nspname = 'public' AND t.typtype IN ('e', 'd', 'c') AND t.typname <> 'alembic_version'
      AND NOT EXISTS (SELECT FROM pg_depend d WHERE d.objid = t.oid AND d.deptype = 'e')"""

SCHEMA = """
    SELECT c.relname, a.attname, format_type(a.atttypid, a.atttypmod), a.attnotnull,
           pg_get_expr(d.adbin, d.adrelid)
    FROM pg_class c JOIN pg_attribute a ON a.attrelid = c.oid AND a.attnum > 0
    LEFT JOIN pg_attrdef d ON d.adrelid = c.oid AND d.adnum = a.attnum
    WHERE c.relnamespace = 'public'::regnamespace AND c.relkind IN ('r', 'p', 'i') ORDER BY 1, a.attnum"""


def query(conninfo: str, statement: str) -> list[tuple[object, ...]]:
    """All rows of a query."""
    with psycopg.connect(conninfo) as connection:
        return connection.execute(statement.encode()).fetchall()


def test_twice_without_harm(fresh_database: TestDatabase) -> None:
    before = query(fresh_database.superuser, SCHEMA)
    migrations.upgrade(fresh_database.superuser)
    assert query(fresh_database.superuser, SCHEMA) == before


def test_down_to_base_leaves_no_residue_and_up_again_is_the_same(fresh_database: TestDatabase) -> None:
    before = query(fresh_database.superuser, SCHEMA)
    migrations.downgrade(fresh_database.superuser, "base")
    assert query(fresh_database.superuser, LEFT_OVER) == []
    migrations.upgrade(fresh_database.superuser)
    assert query(fresh_database.superuser, SCHEMA) == before


def test_names_get_their_new_normal_form_and_collisions_stay_apart(fresh_database: TestDatabase) -> None:
    migrations.downgrade(fresh_database.superuser, "0007_purge_objects")
    names = ["ａｄａ", "al\u200bice", "alice", "bob", "ｂｏｂ", "c\u200bleo", "ｃleo", "user:Ａ b"]
    with psycopg.connect(fresh_database.superuser) as connection:
        connection.execute("INSERT INTO tenants VALUES ('acme', 'acme', now())")
        connection.execute("INSERT INTO projects VALUES ('acme', 'default', 'd', '{}', now())")
        for name in names:
            connection.execute(
                "WITH made AS (INSERT INTO graph_entities (tenant_id, entity_id, project_id, canonical, "
                "canonical_norm, created_at, updated_at) VALUES ('acme', gen_random_uuid(), 'default', %(name)s, "
                "%(name)s, clock_timestamp(), clock_timestamp()) RETURNING entity_id) "
                "INSERT INTO graph_entity_aliases (tenant_id, alias_id, project_id, entity_id, alias, alias_norm, "
                "created_at) SELECT 'acme', gen_random_uuid(), 'default', entity_id, a, a, now() "
                "FROM made, unnest(ARRAY['ｘ', 'x\u200b']) a",
                {"name": name},
            )
    migrations.upgrade(fresh_database.superuser)
    found = query(fresh_database.superuser, "SELECT canonical, canonical_norm FROM graph_entities ORDER BY created_at")
    assert found == list(
        zip(names, ["ada", "al\u200bice", "alice", "bob", "ｂｏｂ", "cleo", "ｃleo", "user:a-b"], strict=True)
    )
    aliases = query(fresh_database.superuser, "SELECT alias_norm FROM graph_entity_aliases WHERE alias_norm = 'x'")
    assert len(aliases) == len(names), "of two aliases of one entity one"
    with psycopg.connect(fresh_database.superuser) as connection:
        connection.execute("SELECT set_scope('acme', 'default', 'admin', '{}', '')")
        row = connection.execute("SELECT unreachable_names FROM diagnose_project(0.3, 10, 10, 30)").fetchone()
        shown = connection.execute(
            "SELECT canonical FROM graph_entities WHERE entity_id = ANY (%s) ORDER BY created_at", row
        ).fetchall()
        jobs = connection.execute("SELECT kind, project_id FROM jobs").fetchall()
    assert [name for (name,) in shown] == ["al\u200bice", "ｂｏｂ", "ｃleo"]
    assert jobs == [("reindex", "default")]


def test_the_key_of_receipts_stays_the_same(fresh_database: TestDatabase) -> None:
    old, new = "SELECT secret FROM service_secrets WHERE name = 'signing'", "SELECT seed, public_key FROM signing_keys"
    ((seed, public_key),) = query(fresh_database.superuser, new)
    assert query(fresh_database.superuser, old) == []
    assert isinstance(seed, bytes)
    assert Ed25519PrivateKey.from_private_bytes(seed).public_key().public_bytes_raw() == public_key
    migrations.downgrade(fresh_database.superuser, "0009_conflict_space")
    assert query(fresh_database.superuser, old) == [(seed,)]
    migrations.upgrade(fresh_database.superuser)
    assert query(fresh_database.superuser, new) == [(seed, public_key)]
    assert query(fresh_database.superuser, old) == []


def test_tables_in_code_and_in_the_database_agree(database: TestDatabase) -> None:
    migrations.check_drift(database.superuser)


@pytest.mark.parametrize("name", sorted(all_functions()))
def test_each_function_in_the_database_is_the_one_in_its_file(database: TestDatabase, name: str) -> None:
    text = all_functions()[name].lstrip()
    body = re.search(r"AS \$\$(.*)\$\$", text, flags=re.DOTALL)
    assert body is not None
    assert text.startswith("-- "), "says what it does"
    found = query(database.superuser, f"SELECT prosrc, prosecdef FROM pg_proc WHERE proname = '{name}'")
    assert found == [(body[1], "SECURITY DEFINER" in text)]


def test_every_function_in_the_database_has_a_file(database: TestDatabase) -> None:
    found = {name for (name,) in query(database.superuser, LEFT_OVER) if str(name).startswith("function ")}
    assert found == {f"function {name}" for name in {path.stem for path in FILES} | schema_functions().keys()}


def test_migrations_wait_for_locks_only_so_long(database: TestDatabase) -> None:
    from sqlalchemy import create_engine, text

    engine = create_engine("postgresql+psycopg://", creator=lambda: psycopg.connect(database.superuser))
    with engine.connect() as connection:
        migrations.prepare_connection(connection)
        assert connection.execute(text("SHOW lock_timeout")).scalar_one() == "5s"
        assert connection.execute(text("SHOW statement_timeout")).scalar_one() == "15min"
        assert connection.execute(text("SELECT current_user")).scalar_one() == "palimpsest_owner"
    engine.dispose()


def test_the_command_creates_everything_from_nothing(empty_database: str) -> None:
    from tests.conftest import as_url

    url = as_url(empty_database)
    first = palimpsest("migrate", DATABASE_MIGRATION_URL=url, DATABASE_URL=url)
    assert first.returncode == 0, first.stderr
    assert "is at migration" in first.stderr
    second = palimpsest("migrate", DATABASE_MIGRATION_URL=url, DATABASE_URL=url)
    assert second.returncode == 0
    assert "nothing to do" in second.stderr


def test_a_role_that_may_not_create_roles_gets_the_sql_for_a_dba(
    empty_database: str, superuser_conninfo: str, template: str
) -> None:
    from tests.conftest import as_url

    with psycopg.connect(superuser_conninfo, autocommit=True) as connection:
        connection.execute("DROP ROLE IF EXISTS modest")
        connection.execute("CREATE ROLE modest LOGIN PASSWORD 'modest'")
    try:
        url = as_url(make_conninfo(empty_database, user="modest", password="modest"))
        ended = palimpsest("migrate", DATABASE_MIGRATION_URL=url)
        assert ended.returncode == 1
        assert "DBA" in ended.stderr
        assert "CREATE ROLE palimpsest_app" in ended.stdout
        # What is printed works as it is, and then the modest role's part is done.
        with psycopg.connect(empty_database, autocommit=True) as connection:
            for statement in ended.stdout.split(";\n"):
                connection.execute(statement.encode())
            connection.execute("GRANT palimpsest_owner TO modest")
        again = palimpsest("migrate", DATABASE_MIGRATION_URL=url)
        assert again.returncode == 0, again.stderr
    finally:
        with psycopg.connect(empty_database, autocommit=True) as connection:
            connection.execute("DROP OWNED BY modest")
        with psycopg.connect(superuser_conninfo, autocommit=True) as connection:
            connection.execute("DROP ROLE modest")


def test_an_unmigrated_database_is_not_served(empty_database: str, template: str) -> None:
    from tests.conftest import as_url

    url = as_url(make_conninfo(empty_database, user="palimpsest_app"))
    ended = palimpsest("serve", "--no-worker", DATABASE_URL=url)
    assert ended.returncode == 1
    assert "palimpsest migrate" in ended.stderr
