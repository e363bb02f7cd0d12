"""The command line: what it prints, what it answers as JSON, and how it ends."""

import json
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import TestDatabase
from tests.service import palimpsest

COMMANDS = [
    [], ["serve"], ["worker"], ["migrate"], ["doctor"], ["tenants"], ["tenants", "create"], ["tenants", "list"],
    ["projects"], ["projects", "create"], ["keys"], ["keys", "create"], ["keys", "list"], ["keys", "rotate"],
    ["keys", "revoke"], ["predicates"], ["predicates", "set"], ["predicates", "list"], ["types"],
    ["types", "load"], ["types", "list"],
]  # fmt: skip


@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
def test_every_command_has_help(command: list[str]) -> None:
    ended = palimpsest(*command, "--help")
    assert ended.returncode == 0
    assert ended.stdout.startswith("usage: palimpsest")


def run(database: TestDatabase, *arguments: str, code: int = 0, **variables: str) -> Any:
    environment = {
        "DATABASE_URL": database.url("app"),
        "DATABASE_MIGRATION_URL": database.url("superuser"),
        **variables,
    }
    ended = palimpsest(*arguments, "--json", **environment)
    assert ended.returncode == code, ended.stderr
    return json.loads(ended.stdout)


def test_from_a_tenant_to_a_key_and_its_end(database: TestDatabase) -> None:
    assert run(database, "tenants", "create", "acme", "--name", "Acme")["created"] is True
    assert run(database, "tenants", "create", "acme")["created"] is False
    assert run(database, "projects", "create", "web", "--tenant", "acme")["project"]["project_id"] == "web"
    issued = run(
        database, "keys", "create", "--tenant", "acme", "--project", "web", "--kind", "agent", "--agent", "robin",
        "--scopes", "notes:read,facts:read", "--expires", "2099-01-01T00:00:00Z", "--limit-read", "10",
    )  # fmt: skip
    assert issued["key"].startswith("pk_")
    assert issued["scopes"] == ["notes:read", "facts:read"]
    (listed,) = run(database, "keys", "list", "--tenant", "acme")["keys"]
    assert listed["key_id"] == issued["key_id"]
    assert listed["rate_limits"] == {"read": 10}
    assert "key" not in listed
    rotated = run(database, "keys", "rotate", issued["key_id"])
    assert rotated["key_id"] == issued["key_id"]
    assert rotated["key"] != issued["key"]
    assert run(database, "keys", "revoke", rotated["key"])["revoked"] is True
    assert run(database, "keys", "list")["keys"][0]["revoked_at"] is not None
    assert "acme" in [tenant["tenant_id"] for tenant in run(database, "tenants", "list")["tenants"]]


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        (["tenants", "create", "Not A Slug"], 2, "tenant_id"),
        (["projects", "create", "web", "--tenant", "nobody"], 1, "nobody"),
        (["keys", "create", "--tenant", "nobody", "--agent", "x"], 1, "nobody"),
        (["keys", "create", "--agent", "x"], 2, "--tenant"),
        (["keys", "create", "--tenant", "acme"], 2, "agent_id"),
        (["keys", "create", "--tenant", "acme", "--agent", "x", "--project", "nowhere"], 2, "nowhere"),
        (["keys", "create", "--tenant", "acme", "--agent", "x", "--scopes", "everything"], 2, "everything"),
        (["keys", "create", "--tenant", "acme", "--agent", "x", "--expires", "2001-01-01T00:00:00Z"], 2, "expires_at"),
        (["keys", "create", "--tenant", "acme", "--agent", "x", "--expires", "soon"], 2, "--expires"),
        (["keys", "revoke", "018f0000-0000-7000-8000-000000000000"], 1, "no such key"),
        (["keys", "revoke", "nonsense"], 2, "KEY_ID"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else None,
)
def test_mistakes_are_named(database: TestDatabase, arguments: list[str], code: int, words: str) -> None:
    run(database, "tenants", "create", "acme")
    answer = run(database, *arguments, code=code)
    assert words in answer["error"]["message"]


def test_a_setting_that_cannot_be_used_is_named() -> None:
    ended = palimpsest("doctor", PORT="eighty")
    assert ended.returncode == 2
    assert "PORT" in ended.stderr
    ended = palimpsest("doctor", DATABASE_URL="mysql://x")
    assert ended.returncode == 2
    assert "DATABASE_URL" in ended.stderr


def test_an_unreachable_database_is_reported_without_a_traceback() -> None:
    for command in (["serve", "--no-worker"], ["worker"], ["tenants", "list"], ["migrate"]):
        ended = palimpsest(*command, DATABASE_URL="postgresql://palimpsest_app@127.0.0.1:1/none", PORT="18999")
        assert ended.returncode == 1, command
        assert "Traceback" not in ended.stderr, command
        assert "database" in ended.stderr


def test_the_doctor_finds_a_healthy_database_healthy(database: TestDatabase) -> None:
    report = run(database, "doctor")
    assert report["healthy"] is True
    assert [check["check"] for check in report["checks"]] == [
        "database version", "extension pgvector", "role", "migrations", "role and policies", "clock",
        "embedding set-up", "secrets",
    ]  # fmt: skip


def test_the_doctor_tells_which_secrets_the_database_keeps(database: TestDatabase) -> None:
    stored = run(database, "doctor")["checks"][-1]["found"]
    assert "the database signs receipts, with a key that the service's role cannot read" in stored
    assert "that role can read it; better set CURSOR_SECRET" in stored
    key, secret = "c2l4dGVlbiBieXRlcyB0d2ljZSBmb3IgMzIgYnl0ZXM=", "a-secret-of-the-tests-0123456789"
    found = run(database, "doctor", SIGNING_KEY=key, CURSOR_SECRET=secret)["checks"][-1]["found"]
    assert found == "in the environment, not in the database"


def test_the_doctor_names_what_is_wrong_and_what_to_do(database: TestDatabase, empty_database: str) -> None:
    from tests.conftest import as_url

    wrong = run(database, "doctor", code=1, DATABASE_URL=database.url("superuser"))
    failed = {check["check"]: check for check in wrong["checks"] if not check["ok"]}
    assert set(failed) == {"role", "role and policies"}
    assert "palimpsest_app" in failed["role"]["remedy"]
    bare = run(database, "doctor", code=1, DATABASE_URL=as_url(empty_database))
    failed = {check["check"]: check for check in bare["checks"] if not check["ok"]}
    assert {"extension pgvector", "migrations"} <= set(failed)
    assert "palimpsest migrate" in failed["migrations"]["remedy"]


def test_a_platform_key_from_the_command_line_makes_tenants(database: TestDatabase) -> None:
    import httpx

    from tests.service import start_service

    issued = run(database, "keys", "create", "--kind", "platform")
    with start_service(database.url("app")) as service:
        headers = {"Authorization": f"Bearer {issued['key']}"}
        made = httpx.post(f"{service.url}/v1/admin/tenants", json={"tenant_id": "via-http"}, headers=headers)
        assert made.status_code == 201
        again = run(database, "keys", "create", "--kind", "platform")
        assert httpx.get(f"{service.url}/v1/admin/tenants", headers=headers).status_code == 401, "only one at a time"
        headers = {"Authorization": f"Bearer {again['key']}"}
        assert httpx.get(f"{service.url}/v1/admin/tenants", headers=headers).status_code == 200


def test_the_operator_decides_the_vocabulary_of_all_tenants(database: TestDatabase) -> None:
    def tell(*arguments: str, code: int = 0) -> Any:
        return run(database, "predicates", *arguments, code=code)

    made = tell("set", "Born In", "--cardinality", "single", "--alias", "birthplace")
    (listed,) = tell("list")["predicates"]
    assert listed == {
        "predicate_id": made["predicate_id"], "name": "Born In", "cardinality": "single", "status": "active",
        "aliases": ["birthplace"], "tenants": 0,
    }  # fmt: skip
    assert tell("set", "born  in", "--alias", "birthplace") == {**made, "name": "born in"}
    assert tell("set", "born in", "--cardinality", "multi", code=1)["error"]["code"] == "predicate_exists"
    tell("set", "died in")
    assert tell("set", "died in", "--alias", "birthplace", code=1)["error"]["code"] == "predicate_alias_taken"
    tell("set", "born in", "--status", "deprecated")
    assert tell("set", "born in", "--status", "active", code=1)["error"]["code"] == "predicate_transition"
    assert [row["status"] for row in tell("list")["predicates"]] == ["deprecated", "active"]


def test_a_password_with_a_stray_percent_sign_is_refused_without_showing_it() -> None:
    ended = palimpsest("doctor", DATABASE_URL="postgresql://u:s3cret%zz@127.0.0.1/db")
    assert ended.returncode == 2
    assert "DATABASE_URL" in ended.stderr
    assert "s3cret" not in ended.stderr + ended.stdout


def test_errors_are_reported_without_a_traceback(database: TestDatabase, empty_database: str, tmp_path: Path) -> None:
    from psycopg.conninfo import make_conninfo

    from tests.conftest import as_url

    bare = as_url(make_conninfo(empty_database, user="palimpsest_app"))
    file = tmp_path / "file"
    file.write_text("not a folder")
    tries: list[tuple[list[str], dict[str, str], str]] = [
        (["keys", "list"], {"DATABASE_URL": bare}, "palimpsest migrate"),
        (["tenants", "create", "x"], {"DATABASE_URL": bare}, "palimpsest migrate"),
        (["migrate", "--revision", "nope"], {"DATABASE_URL": database.url("superuser")}, "migration"),
        (["migrate", "--downgrade", "nope"], {"DATABASE_URL": database.url("superuser")}, "migration"),
        (["serve"], {"PALIMPSEST_HOME": str(file / "below")}, "file"),
    ]
    for command, variables, words in tries:
        ended = palimpsest(*command, PORT="18997", **variables)
        assert ended.returncode in {1, 2}, command
        assert "Traceback" not in ended.stderr, command
        assert words in ended.stderr, command


def test_the_roles_script_names_the_database_it_is_for() -> None:
    ended = palimpsest("migrate", "--print-roles", DATABASE_URL="postgresql://u@127.0.0.1/memories")
    assert 'ON DATABASE "memories"' in ended.stdout


def test_a_metrics_folder_of_the_operators_is_left_alone(tmp_path: Path, database: TestDatabase) -> None:
    (tmp_path / "kept").write_text("mine")
    ended = palimpsest(
        "serve", "--no-worker", DATABASE_URL=database.url("superuser"), PROMETHEUS_MULTIPROC_DIR=str(tmp_path)
    )
    assert ended.returncode == 1
    assert (tmp_path / "kept").read_text() == "mine"
