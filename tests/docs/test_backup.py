"""The page on backups is followed to the letter: dump, restore, and what a dump by a wrong role leaves behind."""

import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import psycopg
import pytest
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from app.db.embedded import EmbeddedServer
from app.db.embedded_programs import find_programs
from app.docs.rendering import source
from tests.conftest import Tenancy, TestDatabase, as_url
from tests.service import clean_environment, start_service

pytestmark = pytest.mark.slow

PAGE = source("backup-and-restore")
ROLE = "palimpsest_backup"


def blocks(language: str, heading: str) -> str:
    """The only block of a language in a section of the page."""
    section = PAGE.split(f"\n## {heading}\n", 1)[1].split("\n## ", 1)[0]
    (found,) = re.findall(rf"^```{language}\n(.*?)^```$", section, flags=re.MULTILINE | re.DOTALL)
    return found


def run(script: str, folder: Path, conninfo: str, **variables: str) -> subprocess.CompletedProcess[str]:
    """Run a block of the page in a folder; the addresses in its exports are those of this server instead."""
    parts = {name: str(value) for name, value in conninfo_to_dict(conninfo).items()}
    names = {"host": "PGHOST", "port": "PGPORT", "user": "PGUSER", "password": "PGPASSWORD", "dbname": "PGDATABASE"}
    # Two commands of ours: the one of this environment, which may not be on the PATH.
    command = folder / "palimpsest"
    command.write_text(f'#!/bin/sh\nexec {sys.executable} -m app.cli "$@"\n')
    command.chmod(0o755)
    environment = {
        **clean_environment(**variables),
        **{names[name]: value for name, value in parts.items() if name in names},
        "PATH": f"{folder}:{find_programs()}:{os.environ['PATH']}",
        "PYTHONPATH": str(Path(__file__).resolve().parents[2]),
    }
    lines = [line for line in script.splitlines() if not line.startswith("export ")]
    return subprocess.run(
        ["bash", "-eu", "-c", "\n".join(lines)],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )


@dataclass
class Source:
    """What is to be found again after a restore."""

    database: TestDatabase
    key: str
    stranger: str
    tables: dict[str, int]


def count_rows(conninfo: str) -> dict[str, int]:
    """The rows of every table of ours, as a superuser sees them."""
    with psycopg.connect(conninfo) as connection:
        tables = connection.execute(
            "SELECT relname FROM pg_class WHERE relnamespace = 'public'::regnamespace AND relkind IN ('r', 'p')"
        ).fetchall()
        return {
            name: connection.execute(f'SELECT count(*) FROM "{name}"'.encode()).fetchone()[0]  # type: ignore[index]
            for (name,) in tables
        }


@pytest.fixture(scope="module")
def source_database(database: TestDatabase, tenancy: Tenancy) -> Source:
    """A database with a note and a fact of one tenant, and another tenant."""
    for tenant in ("acme", "stranger"):
        tenancy.tenant(tenant)
    key, stranger = tenancy.key("acme"), tenancy.key("stranger")
    with start_service(database.url("app")) as running:
        headers = {"Authorization": f"Bearer {key}"}
        with httpx.Client(base_url=running.url, headers=headers, timeout=60, verify=False) as client:
            assert client.post("/v1/notes", json={"content": "The vault is opened on Mondays."}).status_code == 201
            fact = {"subject": "Alice", "predicate": "works_at", "object": {"value": "Initech"}}
            assert client.post("/v1/facts", json=fact).status_code == 201
    return Source(database, key, stranger, count_rows(database.superuser))


@pytest.fixture
def backup_role(superuser_conninfo: str) -> Iterator[Callable[[str], None]]:
    """Creates roles by SQL, all dropped afterwards."""
    with psycopg.connect(superuser_conninfo, autocommit=True) as connection:
        yield lambda script: connection.execute(script.encode()) and None
        for (name,) in connection.execute("SELECT rolname FROM pg_roles WHERE rolname LIKE 'palimpsest_backup%'"):
            connection.execute(f"DROP ROLE {name}".encode())


@pytest.fixture
def folder() -> Iterator[Path]:
    """A folder that PostgreSQL's account can reach, whoever runs the tests."""
    made = Path(tempfile.mkdtemp(prefix="palimpsest-backup-"))
    made.chmod(0o755)
    yield made
    shutil.rmtree(made, ignore_errors=True)


def dump_as(role: str, folder: Path, made: Source, script: str | None = None) -> subprocess.CompletedProcess[str]:
    """Follow the page's backup as a role."""
    conninfo = make_conninfo(made.database.superuser, user=role)
    return run(script or blocks("sh", "Backup"), folder, conninfo)


def test_a_backup_is_restored_on_an_empty_server(
    folder: Path, source_database: Source, backup_role: Callable[[str], None], app_password: str
) -> None:
    if app_password:
        pytest.skip("the server asks for passwords, and the page's script gives none")
    backup_role(blocks("sql", "Backup"))
    dumped = dump_as(ROLE, folder, source_database)
    assert dumped.returncode == 0, dumped.stderr
    assert (folder / "palimpsest.dump").stat().st_size > 0

    server = EmbeddedServer(folder / "home")
    server.start()
    try:
        restored = server.conninfo(user="postgres", dbname="palimpsest")
        service_url = as_url(make_conninfo(restored, user="palimpsest_app"))
        ran = run(
            blocks("sh", "Restore"),
            folder,
            restored,
            DATABASE_URL=service_url,
            DATABASE_MIGRATION_URL=as_url(restored),
        )
        assert ran.returncode == 0, ran.stdout + ran.stderr
        assert "nothing to do" in ran.stderr, "the dump has this release's schema and functions"
        assert "everything is in order" in ran.stdout
        assert count_rows(restored) == source_database.tables
        isolation_holds(restored, source_database.tables)
        the_key_is_kept(restored, source_database.database)
        with start_service(service_url) as running:
            answers_with(running.url, source_database)
    finally:
        server.release()


def isolation_holds(restored: str, rows: dict[str, int]) -> None:
    """Checks that the service's role sees no row of any tenant outside a tenant's scope."""
    with psycopg.connect(make_conninfo(restored, user="palimpsest_app")) as connection:
        guarded = connection.execute(
            "SELECT relname FROM pg_class WHERE relrowsecurity AND relforcerowsecurity "
            "AND has_table_privilege(oid, 'SELECT')"
        ).fetchall()
        assert sum(rows[name] > 0 for (name,) in guarded) > 5
        for (name,) in guarded:
            assert connection.execute(f'SELECT count(*) FROM "{name}"'.encode()).fetchone() == (0,), name


def the_key_is_kept(restored: str, database: TestDatabase) -> None:
    """Checks that receipts are signed by the same key as before, which the service's role still cannot read."""
    keys: list[Any] = []
    for conninfo in (database.superuser, restored):
        with psycopg.connect(conninfo) as connection:
            keys.append(connection.execute("SELECT seed, public_key FROM signing_keys").fetchall())
    assert keys[0] == keys[1]
    with psycopg.connect(make_conninfo(restored, user="palimpsest_app"), autocommit=True) as connection:
        assert connection.execute("SELECT public_key FROM signing_keys").fetchall() == [keys[0][0][1:]]
        with pytest.raises(psycopg.errors.InsufficientPrivilege, match="permission denied for table signing_keys"):
            connection.execute("SELECT seed FROM signing_keys")
        with pytest.raises(psycopg.errors.InsufficientPrivilege, match="permission denied for function ed25519_sign"):
            connection.execute("SELECT ed25519_sign('', '', '')")


def answers_with(url: str, made: Source) -> None:
    """Checks that the keys of before work, each in its own tenant alone."""
    with httpx.Client(base_url=url, timeout=60, verify=False) as client:
        headers = {"Authorization": f"Bearer {made.key}"}
        notes = client.get("/v1/notes", headers=headers).json()["notes"]
        assert [note["content"] for note in notes] == ["The vault is opened on Mondays."]
        found = client.post("/v1/recall", json={"query": "When is the vault opened?"}, headers=headers)
        assert "Mondays" in found.text
        facts = client.get("/v1/facts", headers=headers).json()["facts"]
        assert [fact["object"]["value"] for fact in facts] == ["Initech"]
        headers = {"Authorization": f"Bearer {made.stranger}"}
        assert client.get("/v1/notes", headers=headers).json()["notes"] == []
        assert client.post("/v1/notes", json={"content": "New."}, headers=headers).status_code == 201


def has_rows(dump: Path) -> bool:
    """Whether a dump holds the keys of the tenants."""
    script = [str(find_programs() / "pg_restore"), "--data-only", "--table=api_keys", "--file=-", str(dump)]
    printed = subprocess.run(script, capture_output=True, text=True, timeout=60, check=False).stdout
    return "acme" in printed


def test_a_member_of_the_owner_fails_and_leaves_a_plausible_file(
    folder: Path, source_database: Source, backup_role: Callable[[str], None]
) -> None:
    backup_role("CREATE ROLE palimpsest_backup_member LOGIN")
    backup_role("GRANT palimpsest_owner TO palimpsest_backup_member")
    refused = dump_as("palimpsest_backup_member", folder, source_database)
    assert refused.returncode == 1
    message = "query would be affected by row-level security policy"
    assert message in refused.stderr
    assert message in PAGE
    assert not (folder / "palimpsest.dump").exists(), "a failed dump must not get the name of a good one"
    left = folder / "palimpsest.dump.part"
    listed = subprocess.run(
        [str(find_programs() / "pg_restore"), "--list", str(left)], capture_output=True, text=True, check=False
    )
    assert listed.returncode == 0, "it looks like a dump"
    assert "TABLE DATA public api_keys" in listed.stdout
    assert not has_rows(left)

    policed = blocks("sh", "Backup").replace("pg_dump ", "pg_dump --enable-row-security ")
    dumped = dump_as("palimpsest_backup_member", folder, source_database, policed)
    assert dumped.returncode == 0, dumped.stderr
    assert has_rows(folder / "palimpsest.dump")


@pytest.mark.parametrize("option", ["", "--enable-row-security "])
def test_the_role_of_the_service_cannot_dump(folder: Path, source_database: Source, option: str) -> None:
    script = blocks("sh", "Backup").replace("pg_dump ", f"pg_dump {option}")
    refused = dump_as("palimpsest_app", folder, source_database, script)
    assert refused.returncode == 1
    assert "permission denied" in refused.stderr
    assert not (folder / "palimpsest.dump").exists()
