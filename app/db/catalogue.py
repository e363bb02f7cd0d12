"""The catalogue check: is what the database enforces exactly what this version of the service relies on?"""

import hashlib
from dataclasses import dataclass
from typing import Any

from psycopg import AsyncConnection
from psycopg.rows import dict_row
from sqlalchemy import MetaData

from app.db import privileges
from app.db.functions import functions_hash
from app.db.releases import read_state
from app.db.rls import APP_ROLE, CHECKS, EXPRESSIONS, OWNER_ROLE, Rule
from app.errors import StartupError

TABLES = """
    SELECT c.relname AS name, c.relrowsecurity AS enabled, c.relforcerowsecurity AS forced,
           pg_get_userbyid(c.relowner) AS owner, c.relispartition AS part
    FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
    WHERE n.nspname = 'public' AND c.relkind IN ('r', 'p')
      AND EXISTS (SELECT FROM pg_attribute a
                  WHERE a.attrelid = c.oid AND a.attname = 'tenant_id' AND NOT a.attisdropped)
    ORDER BY c.relname"""

POLICIES = """
    SELECT tablename AS table_name, policyname AS name, permissive, roles::text[] AS roles, cmd AS command,
           qual AS using_clause, with_check AS check_clause
    FROM pg_policies WHERE schemaname = 'public' ORDER BY tablename, policyname"""


@dataclass(frozen=True, kw_only=True)
class Policy:
    """One policy as the catalogue shows it."""

    name: str
    permissive: str
    roles: tuple[str, ...]
    command: str
    using: str | None
    check: str | None


@dataclass(frozen=True, kw_only=True)
class PolicyState:
    """All policies of the database in short."""

    count: int
    hash: str


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


# Tables of ours that belong to no tenant, with what the service may do there.
OTHER_GRANTS = {"alembic_version": "SELECT"}


def table_grants(metadata: MetaData) -> dict[str, frozenset[str]]:
    """What the service may do with each table, and nothing more."""
    grants = {**OTHER_GRANTS, **{table.name: table.info["grants"] for table in metadata.sorted_tables}}
    return {name: frozenset(filter(None, text.split(", "))) for name, text in grants.items()}


async def find_drift(connection: AsyncConnection[Any], metadata: MetaData) -> list[str]:
    """Name every way in which role, policies, grants and functions differ from what they must be.

    Of a database that a newer release of the same level migrated, what this version does not know is left out.
    Raise StartupError when this version cannot work with the database at all: then nothing else is worth saying.
    """
    (role,) = await _rows(connection, privileges.ROLE)
    drift = privileges.role_drift(role)
    if role["superuser"]:
        # Who may do everything differs in everything; the role itself is what has to change.
        return drift
    state = await read_state(lambda query: _rows(connection, query), functions_hash=functions_hash())
    if state.problem is not None:
        raise StartupError(state.problem, code=state.code)
    newer, grants = state.newer, table_grants(metadata)
    return [
        *drift,
        *await _table_drift(connection, tenant_rules(metadata), newer=newer),
        *privileges.setting_drift(await _rows(connection, privileges.SETTINGS)),
        *privileges.grant_drift(await _rows(connection, privileges.RELATIONS), grants, newer=newer),
        *privileges.hook_drift(await _rows(connection, privileges.HOOKS), grants, newer=newer),
        *privileges.function_drift(
            await _rows(connection, privileges.FUNCTIONS), privileges.wanted_functions(), newer=newer
        ),
    ]


async def read_policy_state(connection: AsyncConnection[Any]) -> PolicyState:
    """Return how many policies there are and the hash of all of them, so that a change shows from outside."""
    policies = await _policies(connection)
    lines = sorted(f"{table} {policy}" for table, found in policies.items() for policy in found)
    return PolicyState(count=len(lines), hash=hashlib.sha256("\n".join(lines).encode()).hexdigest())


async def _rows(connection: AsyncConnection[Any], query: str) -> list[dict[str, Any]]:
    async with connection.cursor(row_factory=dict_row) as cursor:
        await cursor.execute(query.encode())
        return await cursor.fetchall()


async def _table_drift(connection: AsyncConnection[Any], rules: dict[str, Rule], *, newer: bool) -> list[str]:
    policies = await _policies(connection)
    drift: list[str] = []
    seen: set[str] = set()
    for table in await _rows(connection, TABLES):
        name = table["name"]
        seen.add(name)
        known = name in rules or table["part"]
        if newer and not known and table["owner"] == OWNER_ROLE:
            continue
        drift += _security_drift(table)
        if not known:
            drift.append(f"table {name} has a tenant_id but no rule in this version")
            continue
        # A part is only reached through its parent, which has the policies: of its own it has none.
        wanted = frozenset[Policy]() if table["part"] else canonical_policies(name, rules[name])
        drift += _policy_drift(name, wanted, policies.get(name, set()))
    drift += [f"table {name} is missing; run palimpsest migrate" for name in sorted(set(rules) - seen)]
    return drift


async def _policies(connection: AsyncConnection[Any]) -> dict[str, set[Policy]]:
    found: dict[str, set[Policy]] = {}
    for row in await _rows(connection, POLICIES):
        found.setdefault(row["table_name"], set()).add(
            Policy(
                name=row["name"],
                permissive=row["permissive"],
                roles=tuple(sorted(row["roles"])),
                command=row["command"],
                using=_one_line(row["using_clause"]),
                check=_one_line(row["check_clause"]),
            )
        )
    return found


def _security_drift(table: dict[str, Any]) -> list[str]:
    drift: list[str] = []
    if table["owner"] != OWNER_ROLE:
        drift.append(f"table {table['name']} belongs to {table['owner']}, not {OWNER_ROLE}")
    if not table["enabled"]:
        drift.append(f"table {table['name']} has row-level security disabled")
    if not table["forced"]:
        drift.append(f"table {table['name']} does not FORCE row-level security")
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


def _one_line(expression: str | None) -> str | None:
    return None if expression is None else " ".join(expression.split())
