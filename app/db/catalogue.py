"""The catalogue check: is what the database enforces exactly what this version of the service relies on?"""

from dataclasses import dataclass
from typing import Any

from psycopg import AsyncConnection
from psycopg.rows import dict_row
from sqlalchemy import MetaData

from app.db.rls import APP_ROLE, CHECKS, EXPRESSIONS, OWNER_ROLE, Rule

# The complete list of functions that run with the owner's rights. One more, and the service does not start.
DEFINER_FUNCTIONS = frozenset(
    {
        "authenticate",
        "lease_jobs",
        "list_tenants",
        "queue_metrics",
        "reap_leases",
        "renew_leases",
        "schedule_maintenance",
    }
)

ROLE = """
    SELECT r.rolname AS name, r.rolsuper AS superuser, r.rolbypassrls AS bypass,
           ARRAY(SELECT m.rolname FROM pg_roles m WHERE m.rolname <> r.rolname
                 AND pg_has_role(r.rolname, m.oid, 'MEMBER')
                 AND (m.rolsuper OR m.rolbypassrls OR m.rolname = %(owner)s)) AS too_mighty
    FROM pg_roles r WHERE r.rolname = current_user"""

TABLES = """
    SELECT c.relname AS name, c.relrowsecurity AS enabled, c.relforcerowsecurity AS forced,
           pg_get_userbyid(c.relowner) AS owner,
           has_table_privilege(current_user, c.oid, 'TRUNCATE')
           AND NOT (SELECT rolsuper FROM pg_roles WHERE rolname = current_user) AS may_truncate
    FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
    WHERE n.nspname = 'public' AND c.relkind IN ('r', 'p')
      AND EXISTS (SELECT FROM pg_attribute a
                  WHERE a.attrelid = c.oid AND a.attname = 'tenant_id' AND NOT a.attisdropped)
    ORDER BY c.relname"""

POLICIES = """
    SELECT tablename AS table_name, policyname AS name, permissive, roles::text[] AS roles, cmd AS command,
           qual AS using_clause, with_check AS check_clause
    FROM pg_policies WHERE schemaname = 'public' ORDER BY tablename, policyname"""

OPEN_VIEWS = """
    SELECT c.relname AS name FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
    WHERE n.nspname = 'public' AND has_table_privilege(current_user, c.oid, 'SELECT')
      AND (c.relkind = 'm' OR (c.relkind = 'v' AND NOT coalesce('security_invoker=true' = ANY (c.reloptions)
                                                             OR 'security_invoker=on' = ANY (c.reloptions), false)))"""

DEFINERS = """
    SELECT p.proname AS name, p.proconfig IS NULL OR NOT EXISTS (
               SELECT FROM unnest(p.proconfig) s WHERE s LIKE 'search_path=%') AS open_path
    FROM pg_proc p JOIN pg_namespace n ON n.oid = p.pronamespace
    WHERE p.prosecdef AND n.nspname NOT IN ('pg_catalog', 'information_schema')
      AND has_function_privilege(current_user, p.oid, 'EXECUTE')"""


@dataclass(frozen=True, kw_only=True)
class Policy:
    """One policy as the catalogue shows it."""

    name: str
    permissive: str
    roles: tuple[str, ...]
    command: str
    using: str | None
    check: str | None


def canonical_policies(table: str, rule: Rule) -> frozenset[Policy]:
    """The two policies a tenant table has, and no other."""
    return frozenset(
        {
            Policy(
                name=f"{table}_app",
                permissive="PERMISSIVE",
                roles=(APP_ROLE,),
                command="ALL",
                using=EXPRESSIONS[rule],
                check=CHECKS[rule],
            ),
            Policy(
                name=f"{table}_owner",
                permissive="PERMISSIVE",
                roles=(OWNER_ROLE,),
                command="ALL",
                using="true",
                check=None,
            ),
        }
    )


def tenant_rules(metadata: MetaData) -> dict[str, Rule]:
    """Each tenant table this version knows, with its rule."""
    return {table.name: Rule(table.info["rls"]) for table in metadata.sorted_tables if "tenant_id" in table.columns}


async def find_drift(connection: AsyncConnection[Any], metadata: MetaData) -> list[str]:
    """Every way in which role and policies differ from what they must be, as sentences; empty when there is none."""
    return [
        *await _role_drift(connection),
        *await _table_drift(connection, tenant_rules(metadata)),
        *await _bypass_drift(connection),
    ]


async def _rows(connection: AsyncConnection[Any], query: str, **params: str) -> list[dict[str, Any]]:
    async with connection.cursor(row_factory=dict_row) as cursor:
        # No parameters, no placeholders: a % in the text then means itself.
        await cursor.execute(query.encode(), params or None)
        return await cursor.fetchall()


async def _role_drift(connection: AsyncConnection[Any]) -> list[str]:
    (role,) = await _rows(connection, ROLE, owner=OWNER_ROLE)
    name = role["name"]
    drift: list[str] = []
    if role["superuser"]:
        drift.append(f"role {name} is a superuser, whom no policy binds; connect as {APP_ROLE}")
    elif role["bypass"]:
        drift.append(f"role {name} has BYPASSRLS; run ALTER ROLE {name} NOBYPASSRLS")
    if name == OWNER_ROLE:
        drift.append(f"role {name} owns the tables; connect as {APP_ROLE}")
    elif name != APP_ROLE and not role["superuser"]:
        drift.append(f"role {name} is not {APP_ROLE}, to whom the policies apply; connect as {APP_ROLE}")
    if not role["superuser"]:
        drift += [
            f"role {name} is a member of {mighty}; run REVOKE {mighty} FROM {name}" for mighty in role["too_mighty"]
        ]
    return drift


async def _table_drift(connection: AsyncConnection[Any], rules: dict[str, Rule]) -> list[str]:
    policies: dict[str, set[Policy]] = {}
    for row in await _rows(connection, POLICIES):
        policies.setdefault(row["table_name"], set()).add(
            Policy(
                name=row["name"],
                permissive=row["permissive"],
                roles=tuple(sorted(row["roles"])),
                command=row["command"],
                using=_one_line(row["using_clause"]),
                check=_one_line(row["check_clause"]),
            )
        )
    drift: list[str] = []
    seen: set[str] = set()
    for table in await _rows(connection, TABLES):
        name = table["name"]
        seen.add(name)
        if table["owner"] != OWNER_ROLE:
            drift.append(f"table {name} belongs to {table['owner']}, not {OWNER_ROLE}")
        if not table["enabled"]:
            drift.append(f"table {name} has row-level security disabled")
        if not table["forced"]:
            drift.append(f"table {name} does not FORCE row-level security")
        if table["may_truncate"]:
            drift.append(f"table {name} may be truncated by the service, past every policy")
        if name not in rules:
            drift.append(f"table {name} has a tenant_id but no rule in this version")
            continue
        drift += _policy_drift(name, canonical_policies(name, rules[name]), policies.get(name, set()))
    drift += [f"table {name} is missing; run palimpsest migrate" for name in sorted(set(rules) - seen)]
    return drift


def _policy_drift(table: str, wanted: frozenset[Policy], found: set[Policy]) -> list[str]:
    wanted_names = {policy.name for policy in wanted}
    drift = [
        f"table {table} has an extra policy {policy.name}"
        for policy in sorted(found, key=lambda policy: policy.name)
        if policy.name not in wanted_names
    ]
    for policy in sorted(wanted, key=lambda policy: policy.name):
        if policy in found:
            continue
        changed = any(other.name == policy.name for other in found)
        drift.append(f"table {table}: policy {policy.name} is {'altered' if changed else 'missing'}")
    return drift


async def _bypass_drift(connection: AsyncConnection[Any]) -> list[str]:
    drift = [
        f"view {row['name']} reads with its owner's rights, past the policies; drop it or make it security_invoker"
        for row in await _rows(connection, OPEN_VIEWS)
    ]
    for row in await _rows(connection, DEFINERS):
        if row["name"] not in DEFINER_FUNCTIONS:
            drift.append(f"function {row['name']} is SECURITY DEFINER but not one this version knows")
        elif row["open_path"]:
            drift.append(f"function {row['name']} is SECURITY DEFINER without a fixed search_path")
    return drift


def _one_line(expression: str | None) -> str | None:
    return None if expression is None else " ".join(expression.split())
