"""What the service's role may do beyond its policies, and whether the functions it calls are the ones we wrote."""

import re
from collections.abc import Container
from dataclasses import dataclass
from functools import cache
from typing import Any

from app.db.functions import all_functions, owner_functions
from app.db.rls import APP_ROLE, OWNER_ROLE

# Settings that, given to a role or database, would change whose rows are seen or what a name means.
DANGEROUS_SETTINGS = ("role", "row_security", "search_path", "session_authorization", "session_replication_role")

ROLE = """
    SELECT r.rolname AS name, session_user AS login, r.rolsuper AS superuser, r.rolbypassrls AS bypass,
           r.rolcreaterole AS creates_roles, r.rolreplication AS replicates,
           ARRAY(SELECT m.rolname::text FROM pg_roles m WHERE m.rolname <> r.rolname
                 AND pg_has_role(r.rolname, m.oid, 'MEMBER') ORDER BY 1) AS member_of,
           has_schema_privilege(current_user, 'public', 'CREATE') AS creates_in_public,
           has_database_privilege(current_user, current_database(), 'CREATE') AS creates_schemas
    FROM pg_roles r WHERE r.rolname = current_user"""

SETTINGS = """
    SELECT DISTINCT split_part(item, '=', 1) AS name,
           CASE WHEN s.setrole = 0 THEN 'database' ELSE 'role ' || pg_get_userbyid(s.setrole) END AS given_to
    FROM pg_db_role_setting s, unnest(s.setconfig) item
    WHERE (s.setrole = 0 OR pg_get_userbyid(s.setrole) = current_user)
      AND (s.setdatabase = 0 OR s.setdatabase = (SELECT oid FROM pg_database WHERE datname = current_database()))"""

RELATIONS = """
    SELECT n.nspname AS schema, c.relname AS name, c.relkind::text AS kind,
           coalesce(c.reloptions && ARRAY['security_invoker=true', 'security_invoker=on'], false) AS as_invoker,
           pg_get_userbyid(c.relowner) AS owner,
           ARRAY(SELECT p FROM unnest('{SELECT,INSERT,UPDATE,DELETE,TRUNCATE,REFERENCES,TRIGGER}'::text[]) p
                 WHERE has_table_privilege(current_user, c.oid, p)
                 UNION ALL
                 SELECT format('%s (%I)', p, a.attname)
                 FROM unnest('{SELECT,INSERT,UPDATE,REFERENCES}'::text[]) p, pg_attribute a
                 WHERE a.attrelid = c.oid AND a.attacl IS NOT NULL AND NOT a.attisdropped
                   AND has_column_privilege(current_user, c.oid, a.attnum, p)
                   AND NOT has_table_privilege(current_user, c.oid, p)) AS privileges
    FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
    WHERE c.relkind IN ('r', 'p', 'f', 'v', 'm') AND n.nspname NOT IN ('pg_catalog', 'information_schema')
      AND n.nspname NOT LIKE 'pg\\_t%'
      AND NOT EXISTS (SELECT FROM pg_depend d WHERE d.objid = c.oid AND d.deptype = 'e')"""

HOOKS = """
    SELECT c.relname AS table_name, 'trigger ' || t.tgname AS hook FROM pg_trigger t
    JOIN pg_class c ON c.oid = t.tgrelid WHERE NOT t.tgisinternal AND c.relnamespace = 'public'::regnamespace
    UNION ALL
    SELECT c.relname, 'rule ' || r.rulename FROM pg_rewrite r
    JOIN pg_class c ON c.oid = r.ev_class WHERE c.relkind IN ('r', 'p') AND c.relnamespace = 'public'::regnamespace"""

FUNCTIONS = """
    SELECT p.proname AS name, p.prosrc AS body, p.prosecdef AS definer, pg_get_userbyid(p.proowner) AS owner,
           coalesce(p.proconfig, '{}') AS settings,
           has_function_privilege(current_user, p.oid, 'EXECUTE') AS callable
    FROM pg_proc p JOIN pg_namespace n ON n.oid = p.pronamespace
    WHERE n.nspname NOT IN ('pg_catalog', 'information_schema')
      AND NOT EXISTS (SELECT FROM pg_depend d WHERE d.objid = p.oid AND d.deptype = 'e')"""


@dataclass(frozen=True)
class Function:
    """One function as its file says it, or as the catalogue has it."""

    name: str
    body: str
    definer: bool
    settings: frozenset[str]


@cache
def wanted_functions() -> dict[str, Function]:
    """The functions of this version, from their files; read once, since readiness asks every few seconds."""
    found: dict[str, Function] = {}
    for name, text in all_functions().items():
        head, _, rest = text.partition("AS $$")
        settings = re.findall(r"^SET (\w+) = (.+)$", head, flags=re.MULTILINE)
        found[name] = Function(
            name=name,
            body=rest.rpartition("$$")[0],
            definer="SECURITY DEFINER" in head,
            settings=frozenset(f"{name}={value}" for name, value in settings),
        )
    return found


def role_drift(role: dict[str, Any]) -> list[str]:
    """What is wrong with the role the service connects as."""
    name = role["name"]
    if role["superuser"]:
        return [f"role {name} is a superuser, whom no policy binds; connect as {APP_ROLE}"]
    drift: list[str] = []
    if role["login"] != name:
        drift.append(f"role {name} was taken on by {role['login']}, who can go back; connect as {APP_ROLE} itself")
    if role["bypass"]:
        drift.append(f"role {name} has BYPASSRLS; run ALTER ROLE {name} NOBYPASSRLS")
    if name == OWNER_ROLE:
        return [*drift, f"role {name} owns the tables; connect as {APP_ROLE}"]
    if name != APP_ROLE:
        drift.append(f"role {name} is not {APP_ROLE}, to whom the policies apply; connect as {APP_ROLE}")
    if role["creates_roles"]:
        drift.append(f"role {name} may create roles; run ALTER ROLE {name} NOCREATEROLE")
    if role["replicates"]:
        drift.append(f"role {name} may replicate, past every policy; run ALTER ROLE {name} NOREPLICATION")
    if role["creates_in_public"]:
        drift.append(f"role {name} may create in schema public; run REVOKE CREATE ON SCHEMA public FROM {name}, PUBLIC")
    if role["creates_schemas"]:
        drift.append(f"role {name} may create schemas; run REVOKE CREATE ON DATABASE ... FROM {name}")
    return drift + [
        f"role {name} is a member of {other}; run REVOKE {other} FROM {name}" for other in role["member_of"]
    ]


def setting_drift(settings: list[dict[str, Any]]) -> list[str]:
    """Report defaults that would give a scope to sessions without one, or change what names mean."""
    return [
        f"setting {row['name']} has a default for the {row['given_to']}; RESET it"
        for row in settings
        if str(row["name"]).startswith("app.") or row["name"] in DANGEROUS_SETTINGS
    ]


def grant_drift(relations: list[dict[str, Any]], grants: dict[str, frozenset[str]], *, newer: bool) -> list[str]:
    """Relations the service may touch beyond what this version needs; `newer` releases may have tables of their own."""
    drift: list[str] = []
    for row in relations:
        where = f"{row['schema']}.{row['name']}" if row["schema"] != "public" else str(row["name"])
        known = row["schema"] == "public" and row["name"] in grants and row["kind"] in ("r", "p")
        if (row["kind"] == "v" and row["as_invoker"]) or (newer and not known and _is_ours(row)):
            continue
        wanted = grants[str(row["name"])] if known else frozenset[str]()
        extra = sorted(set(row["privileges"]) - wanted)
        if extra:
            what = {"v": "view", "m": "materialised view", "f": "foreign table"}.get(str(row["kind"]), "table")
            drift.append(f"{what} {where}: the service may {', '.join(extra)}; run REVOKE on it, or drop it")
    return drift


def _is_ours(relation: dict[str, Any]) -> bool:
    return relation["schema"] == "public" and relation["kind"] in ("r", "p") and relation["owner"] == OWNER_ROLE


def function_drift(found: list[dict[str, Any]], wanted: dict[str, Function], *, newer: bool) -> list[str]:
    """Functions that are not the ones of this version, or that run with rights we did not give.

    A `newer` release may have changed and added functions; they must be there, and belong to the owner.
    """
    drift: list[str] = []
    seen: dict[str, int] = {}
    for row in found:
        name = str(row["name"])
        expected = wanted.get(name)
        if not row["callable"] and row["owner"] != OWNER_ROLE:
            continue
        if expected is None:
            if row["callable"] and row["definer"] and not (newer and row["owner"] == OWNER_ROLE):
                drift.append(f"function {name} is SECURITY DEFINER but not one this version knows")
            continue
        seen[name] = seen.get(name, 0) + 1
        if not newer:
            drift += _difference(row, expected)
        if row["owner"] != OWNER_ROLE:
            drift.append(f"function {name} belongs to {row['owner']}, not {OWNER_ROLE}")
        if row["callable"] == (name in owner_functions()):
            may = "may" if row["callable"] else "may not"
            drift.append(f"function {name}: the service {may} call it; run palimpsest migrate")
    drift += [
        f"function {name} has {count} versions; run palimpsest migrate, or drop the one that is not ours"
        for name, count in seen.items()
        if count > 1
    ]
    drift += [f"function {name} is missing; run palimpsest migrate" for name in sorted(set(wanted) - set(seen))]
    return drift


def _difference(row: dict[str, Any], expected: Function) -> list[str]:
    actual = Function(expected.name, row["body"], row["definer"], frozenset(row["settings"]))
    if actual == expected:
        return []
    changed = [part for part in ("body", "definer", "settings") if getattr(actual, part) != getattr(expected, part)]
    named = sorted({item.partition("=")[0] for item in actual.settings ^ expected.settings})
    return [f"function {expected.name} was altered ({', '.join(changed + named)}); run palimpsest migrate"]


def hook_drift(hooks: list[dict[str, Any]], tables: Container[str], *, newer: bool) -> list[str]:
    """Triggers and rules, of which this version has none."""
    return [
        f"table {row['table_name']} has a {row['hook']}, which this version does not know"
        for row in hooks
        if not newer or row["table_name"] in tables
    ]
