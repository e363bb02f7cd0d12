"""Functions belong to the release: plain `migrate` installs, repairs and removes them, and each has a caller."""

import re
from pathlib import Path

import psycopg
import pytest

from app.db import functions, migrations
from app.errors import StartupError
from tests.conftest import TestDatabase, as_url
from tests.db.stories import describe_functions
from tests.service import ROOT, palimpsest

VERSIONS = sorted((ROOT / "alembic" / "versions").glob("*.py"))

# No caller in app/ yet: the lexical channel of objects, for search; tests/objects/bridges/test_words.py covers it.
UNCALLED = {"match_objects"}

DRIFTS = [
    "DROP FUNCTION queue_metrics()",
    "ALTER FUNCTION queue_metrics() VOLATILE",
    "ALTER FUNCTION queue_metrics() IMMUTABLE",
    "ALTER FUNCTION queue_metrics() COST 5",
    "ALTER FUNCTION queue_metrics() STRICT",
    "ALTER FUNCTION queue_metrics() PARALLEL SAFE",
    "ALTER FUNCTION queue_metrics() SECURITY INVOKER",
    "ALTER FUNCTION queue_metrics() RESET search_path",
    "ALTER FUNCTION queue_metrics() SET work_mem = '1MB'",
    "GRANT EXECUTE ON FUNCTION queue_metrics() TO PUBLIC",
    "REVOKE EXECUTE ON FUNCTION queue_metrics() FROM palimpsest_app",
    "GRANT EXECUTE ON FUNCTION ed25519_sign TO palimpsest_app",
    "CREATE FUNCTION queue_metrics(int) RETURNS int LANGUAGE sql AS 'SELECT 1'",
    "CREATE FUNCTION stale(int) RETURNS int LANGUAGE sql SECURITY DEFINER AS 'SELECT 1'",
    "CREATE PROCEDURE stale(int) LANGUAGE sql AS 'SELECT 1'",
    "CREATE OR REPLACE FUNCTION make_id() RETURNS uuid LANGUAGE sql AS 'SELECT gen_random_uuid()'",
    # Another return type, other argument names: neither can be replaced without dropping.
    "DROP FUNCTION make_id(); CREATE FUNCTION make_id() RETURNS text LANGUAGE sql AS $$SELECT 'x'$$",
    "DROP FUNCTION fold_name; CREATE FUNCTION fold_name(other text) RETURNS text LANGUAGE sql AS 'SELECT other'",
    "CREATE OR REPLACE FUNCTION count_terms(p_terms tsvector) RETURNS int LANGUAGE sql IMMUTABLE AS 'SELECT 0'",
]


def run_as_owner(database: TestDatabase, statement: str) -> None:
    """Change something as the owner of the schema would."""
    with psycopg.connect(database.superuser, autocommit=True) as connection:
        connection.execute("SET ROLE palimpsest_owner")
        connection.execute(statement.encode())


@pytest.mark.parametrize("statement", DRIFTS, ids=[statement[:60] for statement in DRIFTS])
def test_migrate_repairs_what_drifted(fresh_database: TestDatabase, statement: str) -> None:
    before = describe_functions(fresh_database.superuser)
    run_as_owner(fresh_database, statement)
    assert describe_functions(fresh_database.superuser) != before
    assert len(migrations.upgrade(fresh_database.superuser)) in (1, 2)
    assert describe_functions(fresh_database.superuser) == before
    assert migrations.upgrade(fresh_database.superuser) == []


def test_the_command_says_what_it_repaired_and_then_that_nothing_is_left(fresh_database: TestDatabase) -> None:
    run_as_owner(fresh_database, "DROP FUNCTION queue_metrics(); CREATE FUNCTION stale() RETURNS int RETURN 1")
    url = fresh_database.url("superuser")
    first = palimpsest("migrate", DATABASE_MIGRATION_URL=url)
    assert first.returncode == 0, first.stderr
    assert "installed function queue_metrics" in first.stderr
    assert "dropped function stale()" in first.stderr
    second = palimpsest("migrate", DATABASE_MIGRATION_URL=url)
    assert "nothing to do" in second.stderr


def test_plain_alembic_installs_functions_too(fresh_database: TestDatabase) -> None:
    import subprocess
    import sys

    before = describe_functions(fresh_database.superuser)
    run_as_owner(fresh_database, "DROP FUNCTION queue_metrics()")
    subprocess.run(
        [sys.executable, "-m", "alembic", "upgrade", "head"],
        cwd=ROOT,
        env={"DATABASE_MIGRATION_URL": fresh_database.url("superuser"), "PATH": "/usr/bin:/bin"},
        check=True,
        capture_output=True,
    )
    assert describe_functions(fresh_database.superuser) == before


def test_nothing_is_written_when_nothing_changed(fresh_database: TestDatabase) -> None:
    state = (
        "SELECT xmin::text, 'release' FROM installed_releases UNION ALL "
        "SELECT max(xmin::text::bigint)::text, 'function' FROM pg_proc "
        "WHERE pronamespace = 'public'::regnamespace ORDER BY 2"
    )
    with psycopg.connect(fresh_database.superuser, autocommit=True) as connection:
        before = connection.execute(state).fetchall()
        migrations.upgrade(fresh_database.superuser)
        assert connection.execute(state).fetchall() == before
    assert len(before) == 2


def test_a_function_of_somebody_else_is_left_alone(fresh_database: TestDatabase) -> None:
    with psycopg.connect(fresh_database.superuser, autocommit=True) as connection:
        connection.execute("CREATE FUNCTION theirs() RETURNS int LANGUAGE sql AS 'SELECT 1'")
        migrations.upgrade(fresh_database.superuser)
        assert connection.execute("SELECT theirs()").fetchone() == (1,)


def test_a_function_of_ours_that_somebody_else_owns_is_refused(fresh_database: TestDatabase) -> None:
    with psycopg.connect(fresh_database.superuser, autocommit=True) as connection:
        connection.execute("ALTER FUNCTION list_tenants OWNER TO CURRENT_USER")
    with pytest.raises(StartupError, match=r"list_tenants\(text,integer\) belongs to .* Run ALTER FUNCTION"):
        migrations.upgrade(fresh_database.superuser)


def test_a_stale_function_that_something_needs_is_refused_with_the_reason(fresh_database: TestDatabase) -> None:
    before = describe_functions(fresh_database.superuser)
    run_as_owner(fresh_database, "CREATE FUNCTION stale() RETURNS int LANGUAGE sql AS 'SELECT 1'")
    run_as_owner(fresh_database, "DROP FUNCTION queue_metrics()")
    with psycopg.connect(fresh_database.superuser, autocommit=True) as connection:
        connection.execute("CREATE OR REPLACE FUNCTION atomic() RETURNS int BEGIN ATOMIC SELECT stale(); END")
    with pytest.raises(StartupError, match=r"atomic\(\) depends on function stale\(\)"):
        migrations.upgrade(fresh_database.superuser)
    with psycopg.connect(fresh_database.superuser, autocommit=True) as connection:
        # One transaction: what could have been installed was not either.
        assert connection.execute("SELECT to_regproc('queue_metrics')").fetchone() == (None,)
        connection.execute("DROP FUNCTION atomic()")
    migrations.upgrade(fresh_database.superuser)
    assert describe_functions(fresh_database.superuser) == before


def test_a_schema_function_of_another_declaration_is_refused(fresh_database: TestDatabase) -> None:
    run_as_owner(
        fresh_database,
        "CREATE OR REPLACE FUNCTION lexical_keys(p_tenant text, p_project text, p_terms text[] DEFAULT '{}') "
        "RETURNS text[] LANGUAGE sql IMMUTABLE AS 'SELECT p_terms'",
    )
    with pytest.raises(StartupError, match=r"lexical_keys.* columns or indexes depend on it"):
        migrations.upgrade(fresh_database.superuser)


def test_a_downgrade_removes_functions_and_migrate_brings_them_back(fresh_database: TestDatabase) -> None:
    before = describe_functions(fresh_database.superuser)
    url = fresh_database.url("superuser")
    down = palimpsest("migrate", "--downgrade", "0001_baseline", DATABASE_MIGRATION_URL=url)
    assert down.returncode == 0, down.stderr
    left = [str(row[0]).partition("(")[0] for row in describe_functions(fresh_database.superuser)]
    # Those of the baseline; others came with later revisions.
    assert left == ["count_terms", "lexical_keys"]
    again = palimpsest("migrate", DATABASE_MIGRATION_URL=url)
    assert again.returncode == 0, again.stderr
    assert describe_functions(fresh_database.superuser) == before


def test_only_the_owner_s_right_to_use_the_database_is_needed(empty_database: str, template: str) -> None:
    # A restored database has none of the grants on the database itself.
    with psycopg.connect(empty_database, autocommit=True) as connection:
        connection.execute("GRANT USAGE, CREATE ON SCHEMA public TO palimpsest_owner")
        connection.execute("CREATE EXTENSION vector")
        assert connection.execute(
            "SELECT has_database_privilege('palimpsest_owner', current_database(), 'CREATE')"
        ).fetchone() == (False,)
    ended = palimpsest("migrate", DATABASE_MIGRATION_URL=as_url(empty_database))
    assert ended.returncode == 0, ended.stderr
    assert "is at migration" in ended.stderr


def test_callees_come_before_callers() -> None:
    order = list(functions.all_functions())
    assert order.index("set_scope") < order.index("put_facts")
    assert order.index("count_terms") < len(order)
    assert sorted(order) == sorted({*functions.function_files(), *functions.schema_functions()})


@pytest.mark.parametrize("path", VERSIONS, ids=lambda path: path.stem)
def test_no_migration_calls_a_function_of_the_release(path: Path) -> None:
    """What a release may change or remove, a migration cannot rely on: it enqueues a job instead."""
    text = path.read_text()
    called = [name for name in functions.function_files() if re.search(rf"\b{name}\s*\(", text)]
    assert called == []


@pytest.mark.parametrize("path", VERSIONS, ids=lambda path: path.stem)
def test_every_downgrade_removes_functions_first(path: Path) -> None:
    body = path.read_text().partition("def downgrade() -> None:\n")[2]
    assert body.lstrip().startswith("remove_functions(op.get_bind())")


def test_every_function_is_called() -> None:
    texts = functions.all_functions()
    code = {name: re.sub(r"--[^\n]*", "", text) for name, text in texts.items()}
    python = "\n".join(path.read_text() for path in (ROOT / "app").rglob("*.py"))
    # `change_{kind}(` calls every function of that pattern.
    called = "|".join(
        f"{re.escape(head)}\\w+{re.escape(tail)}" for head, tail in re.findall(r"\b(\w+)\{\w+\}(\w*)\(", python)
    )
    reached: set[str] = set()
    waiting = [
        name
        for name in texts
        if re.search(rf"\b{name}\s*\(", python) or (called and re.fullmatch(called, name)) or name in UNCALLED
    ]
    while waiting:
        name = waiting.pop()
        if name not in reached:
            reached.add(name)
            waiting += set(re.findall(r"\b([a-z_][a-z0-9_]*)\s*\(", code[name])) & texts.keys()
    schema = functions.schema_functions().keys()
    assert sorted(texts.keys() - reached - schema) == []
