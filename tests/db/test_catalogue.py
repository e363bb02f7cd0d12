"""The service refuses to start when the database does not enforce exactly what it relies on, and names the culprit."""

import psycopg
import pytest

from app.db.rls import APP_ROLE
from tests.conftest import TestDatabase
from tests.service import free_port, palimpsest, start_service

DRIFTS = [
    ("DROP POLICY jobs_app ON jobs", ["jobs", "jobs_app", "missing"]),
    ("DROP POLICY jobs_owner ON jobs", ["jobs", "jobs_owner", "missing"]),
    ("CREATE POLICY helpful ON gardens USING (true)", ["gardens", "helpful", "extra"]),
    (f"CREATE POLICY helpful ON gardens FOR SELECT TO {APP_ROLE} USING (true)", ["gardens", "helpful", "extra"]),
    ("ALTER POLICY api_keys_app ON api_keys USING (true)", ["api_keys", "api_keys_app", "altered"]),
    ("ALTER POLICY api_keys_app ON api_keys WITH CHECK (true)", ["api_keys", "api_keys_app", "altered"]),
    ("ALTER POLICY projects_app ON projects TO PUBLIC", ["projects", "projects_app", "altered"]),
    ("ALTER TABLE tenants DISABLE ROW LEVEL SECURITY", ["tenants", "disabled"]),
    ("ALTER TABLE tenants NO FORCE ROW LEVEL SECURITY", ["tenants", "FORCE"]),
    ("CREATE TABLE forgotten (tenant_id text, secret text)", ["forgotten"]),
    ("CREATE TABLE forgotten (tenant_id text) PARTITION BY LIST (tenant_id)", ["forgotten"]),
    (f"ALTER TABLE jobs OWNER TO {APP_ROLE}", ["jobs", "belongs to"]),
    (f"GRANT TRUNCATE ON jobs TO {APP_ROLE}", ["jobs", "truncated"]),
    (
        f"CREATE VIEW everything AS SELECT * FROM jobs; GRANT SELECT ON everything TO {APP_ROLE}",
        ["view everything"],
    ),
    (
        "CREATE FUNCTION peek() RETURNS bigint LANGUAGE sql SECURITY DEFINER AS 'SELECT count(*) FROM jobs'",
        ["function peek"],
    ),
    ("ALTER FUNCTION lease_jobs RESET search_path", ["function lease_jobs", "search_path"]),
]


def serve(database_url: str, **variables: str) -> tuple[int, str]:
    """Tries to start the service, which is expected to refuse."""
    ended = palimpsest("serve", "--no-worker", DATABASE_URL=database_url, PORT=str(free_port()), **variables)
    return ended.returncode, ended.stderr


@pytest.mark.parametrize(("statement", "named"), DRIFTS, ids=[statement[:60] for statement, _ in DRIFTS])
def test_drift_is_refused_and_named(fresh_database: TestDatabase, statement: str, named: list[str]) -> None:
    with psycopg.connect(fresh_database.superuser, autocommit=True) as connection:
        connection.execute(statement.encode())
    code, said = serve(fresh_database.url("app"))
    assert code == 1
    for word in named:
        assert word in said


def test_a_superuser_is_refused(database: TestDatabase) -> None:
    code, said = serve(database.url("superuser"))
    assert code == 1
    assert "is a superuser" in said
    assert APP_ROLE in said


def test_the_owner_is_refused(database: TestDatabase) -> None:
    with psycopg.connect(database.superuser, autocommit=True) as connection:
        connection.execute("ALTER ROLE palimpsest_owner LOGIN")
    try:
        code, said = serve(database.url("owner"))
    finally:
        with psycopg.connect(database.superuser, autocommit=True) as connection:
            connection.execute("ALTER ROLE palimpsest_owner NOLOGIN")
    assert code == 1
    assert "owns the tables" in said


def test_a_role_that_bypasses_policies_is_refused(database: TestDatabase) -> None:
    with psycopg.connect(database.superuser, autocommit=True) as connection:
        connection.execute(f"ALTER ROLE {APP_ROLE} BYPASSRLS".encode())
    try:
        code, said = serve(database.url("app"))
    finally:
        with psycopg.connect(database.superuser, autocommit=True) as connection:
            connection.execute(f"ALTER ROLE {APP_ROLE} NOBYPASSRLS".encode())
    assert code == 1
    assert "BYPASSRLS" in said


def test_membership_in_the_owner_is_refused(database: TestDatabase) -> None:
    with psycopg.connect(database.superuser, autocommit=True) as connection:
        connection.execute(f"GRANT palimpsest_owner TO {APP_ROLE}".encode())
    try:
        code, said = serve(database.url("app"))
    finally:
        with psycopg.connect(database.superuser, autocommit=True) as connection:
            connection.execute(f"REVOKE palimpsest_owner FROM {APP_ROLE}".encode())
    assert code == 1
    assert "member of palimpsest_owner" in said


def test_the_worker_refuses_too(fresh_database: TestDatabase) -> None:
    with psycopg.connect(fresh_database.superuser, autocommit=True) as connection:
        connection.execute("DROP POLICY jobs_app ON jobs")
    ended = palimpsest("worker", DATABASE_URL=fresh_database.url("app"))
    assert ended.returncode == 1
    assert "jobs_app" in ended.stderr


def test_switched_off_it_only_warns(fresh_database: TestDatabase) -> None:
    with psycopg.connect(fresh_database.superuser, autocommit=True) as connection:
        connection.execute("CREATE POLICY helpful ON gardens USING (true)")
    with start_service(fresh_database.url("app"), RLS_POLICY_STRICT="off") as service:
        assert "policy_drift" in service.output()
        assert "helpful" in service.output()


def test_drift_while_running_shows_in_readiness(fresh_database: TestDatabase) -> None:
    import time

    import httpx

    with start_service(fresh_database.url("app")) as service:
        with psycopg.connect(fresh_database.superuser, autocommit=True) as connection:
            connection.execute("CREATE POLICY helpful ON gardens USING (true)")
        deadline = time.monotonic() + 15
        answer = httpx.get(f"{service.url}/ready")
        while answer.status_code == 200 and time.monotonic() < deadline:
            time.sleep(0.3)
            answer = httpx.get(f"{service.url}/ready")
        assert answer.status_code == 503
        assert answer.json()["policies"] is False
        assert "helpful" in answer.json()["problems"][0]
