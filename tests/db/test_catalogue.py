"""The service refuses to start when the database does not enforce exactly what it relies on, and names the culprit."""

import httpx
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
    (f"GRANT TRUNCATE ON jobs TO {APP_ROLE}", ["table jobs", "TRUNCATE"]),
    (f"GRANT SELECT (key_id) ON platform_keys TO {APP_ROLE}", ["table platform_keys", "SELECT"]),
    (f"GRANT INSERT ON platform_keys TO {APP_ROLE}", ["table platform_keys", "INSERT"]),
    (
        "CREATE SCHEMA side; CREATE TABLE side.copy AS SELECT * FROM jobs; GRANT USAGE ON SCHEMA side TO PUBLIC; "
        "GRANT SELECT ON side.copy TO PUBLIC",
        ["table side.copy", "SELECT"],
    ),
    (f"CREATE VIEW wide AS SELECT * FROM jobs; GRANT SELECT (kind) ON wide TO {APP_ROLE}", ["view wide", "SELECT"]),
    ("ALTER DATABASE {database} SET app.tenant_id = 'acme'", ["app.tenant_id", "database"]),
    (
        "CREATE OR REPLACE FUNCTION set_scope(p_tenant text, p_project text, p_agent text, p_gardens uuid[], "
        "p_reach text, p_user text DEFAULT '') RETURNS void LANGUAGE plpgsql "
        "AS 'BEGIN PERFORM set_config(''app.tenant_id'', p_tenant, false); END'",
        ["function set_scope", "body"],
    ),
    (
        "CREATE FUNCTION authenticate(text) RETURNS SETOF jobs LANGUAGE sql SECURITY DEFINER "
        "SET search_path = public AS 'SELECT * FROM jobs'",
        ["function authenticate"],
    ),
    ("ALTER FUNCTION list_tenants OWNER TO CURRENT_USER", ["function list_tenants", "belongs to"]),
    (
        "CREATE FUNCTION note() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN NEW; END'; "
        "CREATE TRIGGER sly BEFORE INSERT ON jobs FOR EACH ROW EXECUTE FUNCTION note()",
        ["jobs", "trigger sly"],
    ),
    ("CREATE RULE sly AS ON DELETE TO jobs DO INSTEAD NOTHING", ["jobs", "rule sly"]),
    ("GRANT CREATE ON SCHEMA public TO PUBLIC", ["create in schema public"]),
    ("DROP FUNCTION queue_metrics()", ["function queue_metrics", "missing"]),
    (
        f"CREATE VIEW everything AS SELECT * FROM jobs; GRANT SELECT ON everything TO {APP_ROLE}",
        ["view everything", "SELECT"],
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
        connection.execute(statement.replace("{database}", fresh_database.name).encode())
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


@pytest.mark.parametrize(
    ("give", "take", "named"),
    [
        (f"ALTER ROLE {APP_ROLE} CREATEROLE", f"ALTER ROLE {APP_ROLE} NOCREATEROLE", "create roles"),
        (f"ALTER ROLE {APP_ROLE} REPLICATION", f"ALTER ROLE {APP_ROLE} NOREPLICATION", "replicate"),
        (f"GRANT pg_read_all_data TO {APP_ROLE}", f"REVOKE pg_read_all_data FROM {APP_ROLE}", "pg_read_all_data"),
        (
            f"ALTER ROLE {APP_ROLE} SET app.tenant_id = 'acme'",
            f"ALTER ROLE {APP_ROLE} RESET app.tenant_id",
            "app.tenant_id",
        ),
    ],
)
def test_a_role_that_may_more_than_it_needs_is_refused(
    database: TestDatabase, give: str, take: str, named: str
) -> None:
    with psycopg.connect(database.superuser, autocommit=True) as connection:
        connection.execute(give.encode())
    try:
        code, said = serve(database.url("app"))
    finally:
        with psycopg.connect(database.superuser, autocommit=True) as connection:
            connection.execute(take.encode())
    assert code == 1
    assert named in said


def test_a_superuser_who_took_the_role_on_is_refused(database: TestDatabase) -> None:
    code, said = serve(database.url("superuser") + f"&options=-c%20role%3D{APP_ROLE}")
    assert code == 1
    assert "who can go back" in said


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

    with start_service(fresh_database.url("app")) as service:
        with psycopg.connect(fresh_database.superuser, autocommit=True) as connection:
            connection.execute("CREATE POLICY helpful ON gardens USING (true)")
        deadline = time.monotonic() + 60
        answer = httpx.get(f"{service.url}/ready")
        while answer.status_code == 200 and time.monotonic() < deadline:
            time.sleep(0.3)
            answer = httpx.get(f"{service.url}/ready")
        assert answer.status_code == 503
        assert answer.json()["policies"] is False
        assert "helpful" in answer.json()["problems"][0]


def test_what_drifted_can_be_repaired(fresh_database: TestDatabase) -> None:
    with psycopg.connect(fresh_database.superuser, autocommit=True) as connection:
        for statement in (
            "ALTER TABLE gardens DISABLE ROW LEVEL SECURITY",
            "ALTER TABLE jobs NO FORCE ROW LEVEL SECURITY",
            "DROP POLICY jobs_app ON jobs",
            "CREATE POLICY helpful ON memory_notes USING (true)",
            "ALTER POLICY api_keys_app ON api_keys USING (true)",
            f"GRANT TRUNCATE ON jobs TO {APP_ROLE}",
            f"GRANT SELECT ON platform_keys TO {APP_ROLE}",
            f"REVOKE SELECT ON service_secrets FROM {APP_ROLE}",
            f"GRANT SELECT (seed) ON signing_keys TO {APP_ROLE}",
            f"REVOKE SELECT (public_key) ON signing_keys FROM {APP_ROLE}",
            f"GRANT EXECUTE ON FUNCTION ed25519_sign TO {APP_ROLE}",
            "ALTER FUNCTION lease_jobs RESET search_path",
            "CREATE OR REPLACE FUNCTION list_tenants(p_after text, p_limit int) RETURNS TABLE (tenant_id text, "
            "name text, created_at timestamptz) LANGUAGE sql SECURITY DEFINER AS $$SELECT 'x', 'y', now()$$",
        ):
            connection.execute(statement.encode())
    assert serve(fresh_database.url("app"))[0] == 1
    repaired = palimpsest("migrate", "--repair", DATABASE_MIGRATION_URL=fresh_database.url("superuser"))
    assert repaired.returncode == 0, repaired.stderr
    with start_service(fresh_database.url("app")) as service:
        assert httpx.get(f"{service.url}/.well-known/palimpsest").status_code == 200
    report = palimpsest("doctor", DATABASE_URL=fresh_database.url("app"))
    assert "everything is in order" in report.stdout
