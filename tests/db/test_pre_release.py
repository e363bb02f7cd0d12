"""A database of the last pre-release is carried on when its tables match; otherwise one sentence says what to do."""

import httpx
import psycopg
import pytest
from psycopg.conninfo import make_conninfo

from app.db import migrations
from app.errors import StartupError
from tests.conftest import TestDatabase, as_url
from tests.db.stories import describe_functions, restore_pre_release
from tests.db.test_migrations import SCHEMA, query
from tests.service import free_port, palimpsest, start_service

MISMATCHES = [
    ("ALTER TABLE jobs ADD COLUMN extra int", "column jobs.extra"),
    ("ALTER TABLE jobs DROP COLUMN result", "column jobs.result"),
    ("ALTER TABLE jobs ALTER COLUMN payload DROP NOT NULL", "column jobs.payload"),
    ("ALTER TABLE jobs DROP CONSTRAINT jobs_status_check", "constraint jobs_status_check on jobs"),
    ("DROP INDEX jobs_due_idx", "index jobs_due_idx on jobs"),
    ("DROP TABLE recall_traces", "column recall_traces"),
]


@pytest.fixture
def old_database(empty_database: str, template: str) -> str:
    """The database of commit 8340b5c, as its superuser; the service's role is there."""
    restore_pre_release(empty_database)
    return empty_database


def as_app(conninfo: str, app_password: str) -> str:
    """The same database as the service reaches it."""
    extra = {"password": app_password} if app_password else {}
    return as_url(make_conninfo(conninfo, user="palimpsest_app", **extra))


def test_it_arrives_where_a_new_database_arrives(
    old_database: str, fresh_database: TestDatabase, app_password: str
) -> None:
    url = as_url(old_database)
    ended = palimpsest("migrate", DATABASE_MIGRATION_URL=url)
    assert ended.returncode == 0, ended.stderr
    assert f"migrating the database from 0012 to {migrations.head_revision()}" in ended.stderr
    # Only the names of the parts' vector indexes tell how they came about.
    parts = r"SELECT * FROM ({}) x WHERE relname !~ '^embeddings_\d_vector_idx'"
    assert query(old_database, parts.format(SCHEMA)) == query(fresh_database.superuser, parts.format(SCHEMA))
    assert describe_functions(old_database) == describe_functions(fresh_database.superuser)
    migrations.check_drift(old_database)
    assert "nothing to do" in palimpsest("migrate", DATABASE_MIGRATION_URL=url).stderr

    issued = palimpsest(
        "keys",
        "create",
        "--tenant",
        "acme",
        "--project",
        "default",
        "--agent",
        "robin",
        "--json",
        DATABASE_URL=as_app(old_database, app_password),
    )
    import json

    headers = {"Authorization": f"Bearer {json.loads(issued.stdout)['key']}"}
    with (
        start_service(as_app(old_database, app_password)) as service,
        httpx.Client(base_url=service.url, headers=headers, verify=False) as client,
    ):
        (note,) = client.get("/v1/notes").json()["notes"]
        assert note["content"] == "The numbat eats termites."
        facts = client.get("/v1/facts", params={"entity": "Ada"}).json()["facts"]
        assert sorted(fact["predicate"]["name"] for fact in facts) == ["knows", "lives_in"]


def test_functions_that_an_earlier_commit_left_are_repaired(
    old_database: str, fresh_database: TestDatabase, app_password: str
) -> None:
    """The story of fact_outdone: one function missing, another there twice, and migrate said `nothing to do`."""
    with psycopg.connect(old_database, autocommit=True) as connection:
        connection.execute("SET ROLE palimpsest_owner")
        connection.execute("DROP FUNCTION fact_outdone")
        connection.execute("CREATE FUNCTION match_facts(text[]) RETURNS uuid[] LANGUAGE sql AS $$SELECT '{}'::uuid[]$$")
    ended = palimpsest("migrate", DATABASE_MIGRATION_URL=as_url(old_database))
    assert ended.returncode == 0, ended.stderr
    assert describe_functions(old_database) == describe_functions(fresh_database.superuser)
    with start_service(as_app(old_database, app_password)):
        pass


@pytest.mark.parametrize("command", [("serve", "--no-worker"), ("worker",)], ids=["serve", "worker"])
def test_an_old_database_gets_one_sentence(old_database: str, app_password: str, command: tuple[str, ...]) -> None:
    ended = palimpsest(*command, DATABASE_URL=as_app(old_database, app_password), PORT=str(free_port()))
    assert ended.returncode == 1
    assert ended.stderr.strip().splitlines() == [
        f"palimpsest: The database is at migration 0012, this version needs {migrations.head_revision()}; "
        "run palimpsest migrate. (not_migrated)"
    ]
    report = palimpsest("doctor", DATABASE_URL=as_app(old_database, app_password))
    assert report.returncode == 1
    assert "at 0012" in report.stdout
    assert "REVOKE" not in ended.stderr + report.stdout
    assert "drop it" not in ended.stderr + report.stdout


@pytest.mark.parametrize(("statement", "named"), MISMATCHES, ids=[named for _, named in MISMATCHES])
def test_tables_that_differ_are_named(old_database: str, statement: str, named: str) -> None:
    with psycopg.connect(old_database, autocommit=True) as connection:
        connection.execute(statement.encode())
    before = query(old_database, SCHEMA)
    with pytest.raises(StartupError) as refused:
        migrations.upgrade(old_database)
    assert named in refused.value.message
    assert "undo these changes and run palimpsest migrate again, or use an empty database." in refused.value.message
    assert query(old_database, SCHEMA) == before
    assert query(old_database, "SELECT version_num FROM alembic_version") == [("0012",)]


def test_what_people_added_beside_our_tables_does_not_matter(old_database: str) -> None:
    with psycopg.connect(old_database, autocommit=True) as connection:
        connection.execute("CREATE TABLE theirs (id int); CREATE INDEX jobs_theirs_idx ON jobs (created_by)")
    migrations.upgrade(old_database)
    assert migrations.current_revision(old_database) == migrations.head_revision()


def test_an_older_pre_release_is_told_to_go_to_the_last_one(old_database: str) -> None:
    with psycopg.connect(old_database, autocommit=True) as connection:
        connection.execute("UPDATE alembic_version SET version_num = '0007'")
    with pytest.raises(StartupError, match=r"migration 0007 of a pre-release.*last pre-release first \(up to 0012\)"):
        migrations.upgrade(old_database)
