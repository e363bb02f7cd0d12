"""Releases side by side: a newer database is served while its level is compatible; an older one is refused plainly."""

from pathlib import Path
from typing import Any

import httpx
import psycopg
import pytest

from app import __version__
from app.db import functions, migrations, releases
from app.db.releases import COMPATIBILITY_LEVEL, judge
from app.errors import StartupError
from tests.conftest import Tenancy, TestDatabase
from tests.db.stories import describe_functions, next_release
from tests.service import free_port, palimpsest, start_service

HEAD = migrations.head_revision()
LEVEL, NEXT = COMPATIBILITY_LEVEL, COMPATIBILITY_LEVEL + 1
REFUSED = f"compatibility level {NEXT}, and this version has level {LEVEL}"


@pytest.mark.parametrize(
    ("revision", "installed", "newer", "problem"),
    [
        (None, [], False, "The schema is not there; run palimpsest migrate."),
        ("0012", [], False, f"The database is at migration 0012, this version needs {HEAD}; run palimpsest migrate."),
        ("0001_baseline", [], False, "run palimpsest migrate"),
        (HEAD, [], False, "run palimpsest migrate"),
        (HEAD, [(LEVEL, "ours")], False, None),
        (HEAD, [(LEVEL, "older"), (LEVEL, "ours")], False, None),
        (HEAD, [(LEVEL, "older")], False, "not those of this version; run palimpsest migrate"),
        (HEAD, [(LEVEL, "ours"), (LEVEL, "newer")], True, None),
        (HEAD, [(LEVEL, "ours"), (NEXT, "newer")], False, REFUSED),
        ("0099_next", [(LEVEL, "ours")], True, None),
        ("0099_next", [(LEVEL, "ours"), (LEVEL, "newer")], True, None),
        ("0099_next", [(LEVEL, "newer")], True, None),
        ("0099_next", [(LEVEL, "ours"), (NEXT, "")], False, f"compatibility level {NEXT}"),
        ("0099_next", [], False, "is older than the database: another release"),
        ("0099_next", [(LEVEL, "ours"), (NEXT, "", "9.0.0")], False, "is older than the database: release 9.0.0"),
        (
            HEAD,
            [(LEVEL, "ours"), (NEXT, "newer", "9.0.0")],
            False,
            "start the release that migrated it, or a newer one",
        ),
        # This code was never installed here: the release decides which of the two is older.
        (HEAD, [(LEVEL, "newer", "9.0.0")], False, "is older than the database: release 9.0.0"),
        (HEAD, [(LEVEL, "older", "0.0.9")], False, "not those of this version; run palimpsest migrate"),
        (HEAD, [(LEVEL, "other", __version__)], False, "if this code is the newer one, else start the other"),
    ],
)
def test_which_databases_this_release_can_work_with(
    revision: str | None, installed: list[tuple[Any, ...]], newer: bool, problem: str | None
) -> None:
    state = judge(revision, installed, functions_hash="ours")
    assert state.newer is newer
    assert (state.problem is None) if problem is None else (problem in (state.problem or ""))
    assert state.code == ("newer_database" if "is older than" in (state.problem or "") else "not_migrated")


def test_the_level_of_this_release_is_the_one_its_migrations_declare() -> None:
    from alembic.script import ScriptDirectory

    scripts = ScriptDirectory.from_config(migrations.alembic_config()).walk_revisions()
    declared = [getattr(script.module, "compatibility_level", 1) for script in scripts]
    assert max(declared) == COMPATIBILITY_LEVEL


@pytest.mark.parametrize("migration", [True, False], ids=["with a migration", "functions alone"])
def test_an_old_process_serves_while_a_newer_release_is_installed(
    fresh_database: TestDatabase, tmp_path: Path, migration: bool
) -> None:
    tenancy = Tenancy(fresh_database)
    tenancy.tenant("acme")
    headers = {"Authorization": f"Bearer {tenancy.key('acme')}"}
    with start_service(fresh_database.url("app")) as service:
        with next_release(tmp_path, migration=migration):
            migrations.upgrade(fresh_database.superuser)
        installed = describe_functions(fresh_database.superuser)
        assert any("As the next release has it" in str(row[1]) for row in installed)
        ready = httpx.get(f"{service.url}/ready")
        assert (ready.status_code, ready.json()["problems"]) == (200, [])
        assert httpx.get(f"{service.url}/v1/whoami", headers=headers).status_code == 200
    # And one that starts anew, also with the owner's address, leaves what the newer release installed.
    with start_service(fresh_database.url("app"), DATABASE_MIGRATION_URL=fresh_database.url("superuser")) as service:
        assert httpx.get(f"{service.url}/ready").status_code == 200
        assert httpx.post(f"{service.url}/v1/notes", headers=headers, json={"content": "still"}).status_code == 201
    assert describe_functions(fresh_database.superuser) == installed
    report = palimpsest("doctor", DATABASE_URL=fresh_database.url("app"))
    assert "everything is in order" in report.stdout


def test_isolation_of_known_tables_is_checked_in_a_newer_database_too(
    fresh_database: TestDatabase, tmp_path: Path
) -> None:
    with next_release(tmp_path):
        migrations.upgrade(fresh_database.superuser)
    with psycopg.connect(fresh_database.superuser, autocommit=True) as connection:
        connection.execute("CREATE POLICY helpful ON gardens USING (true)")
        connection.execute("CREATE TABLE theirs (tenant_id text)")
        connection.execute("DROP FUNCTION finish_job")
    ended = palimpsest("serve", "--no-worker", DATABASE_URL=fresh_database.url("app"), PORT=str(free_port()))
    assert ended.returncode == 1
    assert "extra policy helpful" in ended.stderr
    assert "table theirs has a tenant_id but no rule" in ended.stderr
    assert "function finish_job is missing" in ended.stderr
    assert "seeds" not in ended.stderr


def test_a_release_of_another_level_is_refused_from_its_migration_on(
    fresh_database: TestDatabase, tmp_path: Path
) -> None:
    with start_service(fresh_database.url("app")) as service:
        with next_release(tmp_path, level=NEXT):
            migrations.upgrade(fresh_database.superuser)
            assert judge_now(fresh_database).problem is None
        ready = httpx.get(f"{service.url}/ready")
        assert ready.status_code == 503
        assert len(ready.json()["problems"]) == 1
        assert REFUSED in ready.json()["problems"][0]
    for variables in ({}, {"DATABASE_MIGRATION_URL": fresh_database.url("superuser")}):
        ended = palimpsest(
            "serve", "--no-worker", DATABASE_URL=fresh_database.url("app"), PORT=str(free_port()), **variables
        )
        assert ended.returncode == 1
        assert "0099_next" in ended.stderr
        assert "release that" in ended.stderr
        assert "older than the database" in ended.stderr
        assert "(newer_database)" in ended.stderr
        assert "run palimpsest migrate" not in ended.stderr
    report = palimpsest("doctor", DATABASE_URL=fresh_database.url("app"))
    assert "older than the database" in report.stdout
    assert "-> start the release that migrated the database, or a newer one" in report.stdout
    with next_release(tmp_path, level=NEXT):
        migrations.downgrade(fresh_database.superuser, HEAD)
    # The older release installs its own functions, and everything is as before.
    assert migrations.upgrade(fresh_database.superuser)
    assert judge_now(fresh_database) == releases.DatabaseState(revision=HEAD)


def judge_now(database: TestDatabase) -> releases.DatabaseState:
    """Judge the database as it is."""
    with psycopg.connect(database.superuser) as connection:
        (revision,) = connection.execute(releases.REVISION).fetchone() or (None,)
        installed = connection.execute(releases.RELEASES).fetchall()
    return judge(revision, installed, functions_hash=functions.functions_hash())


def test_going_back_to_the_older_release_installs_its_functions(fresh_database: TestDatabase, tmp_path: Path) -> None:
    before = describe_functions(fresh_database.superuser)
    with next_release(tmp_path):
        migrations.upgrade(fresh_database.superuser)
        migrations.downgrade(fresh_database.superuser, HEAD)
    ended = palimpsest("migrate", DATABASE_MIGRATION_URL=fresh_database.url("superuser"))
    assert ended.returncode == 0, ended.stderr
    assert describe_functions(fresh_database.superuser) == before
    with start_service(fresh_database.url("app")):
        pass


def test_migrate_does_not_touch_a_database_of_a_newer_release(fresh_database: TestDatabase, tmp_path: Path) -> None:
    with next_release(tmp_path):
        migrations.upgrade(fresh_database.superuser)
    before = describe_functions(fresh_database.superuser)
    for work in (migrations.upgrade, lambda conninfo: migrations.downgrade(conninfo, "base")):
        with pytest.raises(StartupError, match="0099_next, which this version does not know; use the release"):
            work(fresh_database.superuser)
    assert describe_functions(fresh_database.superuser) == before


def test_code_that_was_never_installed_and_is_older_says_so(fresh_database: TestDatabase) -> None:
    with psycopg.connect(fresh_database.superuser, autocommit=True) as connection:
        connection.execute("UPDATE installed_releases SET functions_hash = 'of a newer release', release = '9.0.0'")
    ended = palimpsest("serve", "--no-worker", DATABASE_URL=fresh_database.url("app"), PORT=str(free_port()))
    assert ended.returncode == 1
    last = ended.stderr.strip().splitlines()[-1]
    assert last.startswith(f"palimpsest: This code, release {__version__}, is older than the database: release 9.0.0")
    assert last.endswith("start the release that migrated it, or a newer one. (newer_database)")


def test_a_release_that_was_never_installed_asks_for_migrate(fresh_database: TestDatabase) -> None:
    with psycopg.connect(fresh_database.superuser, autocommit=True) as connection:
        connection.execute("UPDATE installed_releases SET functions_hash = 'of an older release', release = '0.0.9'")
    for command in ("serve", "worker"):
        options = ["--no-worker"] if command == "serve" else []
        ended = palimpsest(command, *options, DATABASE_URL=fresh_database.url("app"), PORT=str(free_port()))
        assert ended.returncode == 1
        assert ended.stderr.strip().splitlines()[-1] == (
            "palimpsest: The functions in the database are not those of this version; run palimpsest migrate. "
            "(not_migrated)"
        )
    assert migrations.upgrade(fresh_database.superuser) == []
    with start_service(fresh_database.url("app")):
        pass
