"""Row-level security: the policies, how a migration creates them, and what the catalogue must contain.

Every rule is written exactly as PostgreSQL prints it, so that the check at start-up can compare texts.
The text of a rule must not change once a migration has used it: a change is a rule with a new name.
"""

from collections.abc import Callable
from enum import StrEnum

APP_ROLE = "palimpsest_app"
OWNER_ROLE = "palimpsest_owner"

# A scalar subquery is evaluated once per query, not once per row; unset and '' both match no rows.
_TENANT = """(tenant_id = ( SELECT NULLIF(current_setting('app.tenant_id'::text, true), ''::text) AS "nullif"))"""
_PROJECT = """(project_id = ( SELECT NULLIF(current_setting('app.project_id'::text, true), ''::text) AS "nullif"))"""
_REACH = "(( SELECT current_setting('app.reach'::text, true) AS current_setting) = 'cross_project'::text)"

# The rows that projects share with each other, as the condition of partial indexes.
SHARED_SCOPES = "scope IN ('org_shared', 'public')"

_CROSS = f"({_REACH} AND (scope = ANY (ARRAY['org_shared'::text, 'public'::text])))"
_SHARED = (
    "((( SELECT current_setting('app.reach'::text, true) AS current_setting) = ANY (ARRAY['cross_project'::text, "
    "'shared'::text])) AND (scope = ANY (ARRAY['org_shared'::text, 'public'::text])))"
)
_SHARED_BY_ALL = f"{_SHARED[:-1]} AND (user_id = ''::text))"
_AGENT = (
    "((scope <> 'agent_private'::text) OR (agent_id = ( SELECT NULLIF(current_setting('app.agent_id'::text, true), "
    "''::text) AS \"nullif\")))"
)
_GARDEN = (
    "((garden_id IS NULL) OR (garden_id = ANY (( SELECT (NULLIF(current_setting('app.gardens'::text, true), "
    "''::text))::uuid[] AS \"nullif\")::uuid[])))"
)
_OWN = "(agent_id = ( SELECT NULLIF(current_setting('app.agent_id'::text, true), ''::text) AS \"nullif\"))"
_SUPPRESSION = (
    "((suppression = 0) OR ((suppression = 2) AND (( SELECT current_setting('app.reach'::text, true) "
    "AS current_setting) = 'legal_hold'::text)))"
)
# '' is what all users share, '*' is every user's: an unset setting shows what all share, and nothing of a user.
_USER = (
    "((user_id = ''::text) OR (user_id = ( SELECT current_setting('app.user_id'::text, true) AS current_setting)) "
    "OR (( SELECT current_setting('app.user_id'::text, true) AS current_setting) = '*'::text))"
)
# A user writes rows of their own; what all users share is written without a user.
_USER_WRITES = (
    "((user_id = ( SELECT current_setting('app.user_id'::text, true) AS current_setting)) "
    "OR (( SELECT current_setting('app.user_id'::text, true) AS current_setting) = '*'::text))"
)
_HOLD = "(( SELECT current_setting('app.reach'::text, true) AS current_setting) = 'legal_hold'::text)"


class Rule(StrEnum):
    """Which rows of a table the app role sees and may write."""

    TENANT = "tenant"
    """The tenant's own rows."""
    PROJECT = "project"
    """The tenant's own rows in the current project."""
    REACH = "reach"
    """As PROJECT; with reach cross_project also the rows of all other projects, and those without a project."""
    MEMORY = "memory"
    """As PROJECT, except other agents' private rows, gardens the caller is not a member of, and suppressed rows; with
    reach cross_project also shared rows of other projects, read only."""
    SHARED_MEMORY = "shared_memory"
    """As MEMORY; with reach shared, too, the shared rows of other projects, read only."""
    NAMES = "names"
    """As REACH, except suppressed rows."""
    VOCABULARY = "vocabulary"
    """As REACH, and rows that belong to every project of the tenant."""
    JOURNAL = "journal"
    """As PROJECT, only the agent's own rows, except suppressed ones; with reach legal_hold rows of all agents."""
    OBJECTS = "objects"
    """As VOCABULARY, except suppressed rows; written rows belong to the current project, or to every project."""
    CUSTODY = "custody"
    """As PROJECT, visible only with reach legal_hold."""
    USER_MEMORY = "user_memory"
    """As MEMORY, except rows of other users."""
    USER_SHARED_MEMORY = "user_shared_memory"
    """As SHARED_MEMORY, except rows of other users, and of any user in other projects."""
    USER_NAMES = "user_names"
    """As NAMES, except rows of other users."""
    USER_JOURNAL = "user_journal"
    """As JOURNAL, except rows of other users."""
    USER_JOBS = "user_jobs"
    """As REACH, except rows of other users."""


_EXPRESSIONS: dict[Rule, str] = {
    Rule.TENANT: _TENANT,
    Rule.PROJECT: f"({_TENANT} AND {_PROJECT})",
    Rule.REACH: f"({_TENANT} AND ({_PROJECT} OR {_REACH}))",
    Rule.MEMORY: f"({_TENANT} AND ({_PROJECT} OR {_CROSS}) AND {_AGENT} AND {_GARDEN} AND {_SUPPRESSION})",
    Rule.SHARED_MEMORY: f"({_TENANT} AND ({_PROJECT} OR {_SHARED}) AND {_AGENT} AND {_GARDEN} AND {_SUPPRESSION})",
    Rule.NAMES: f"({_TENANT} AND ({_PROJECT} OR {_REACH}) AND {_SUPPRESSION})",
    Rule.CUSTODY: f"({_TENANT} AND {_PROJECT} AND {_HOLD})",
    Rule.JOURNAL: f"({_TENANT} AND {_PROJECT} AND ({_OWN} OR {_HOLD}) AND {_SUPPRESSION})",
    Rule.VOCABULARY: f"({_TENANT} AND ((project_id IS NULL) OR {_PROJECT} OR {_REACH}))",
    Rule.OBJECTS: f"({_TENANT} AND ((project_id IS NULL) OR {_PROJECT} OR {_REACH}) AND {_SUPPRESSION})",
}
EXPRESSIONS: dict[Rule, str] = {
    **_EXPRESSIONS,
    Rule.USER_MEMORY: f"{_EXPRESSIONS[Rule.MEMORY][:-1]} AND {_USER})",
    Rule.USER_SHARED_MEMORY: (
        f"({_TENANT} AND ({_PROJECT} OR {_SHARED_BY_ALL}) AND {_AGENT} AND {_GARDEN} AND {_SUPPRESSION} AND {_USER})"
    ),
    Rule.USER_NAMES: f"{_EXPRESSIONS[Rule.NAMES][:-1]} AND {_USER})",
    Rule.USER_JOURNAL: f"{_EXPRESSIONS[Rule.JOURNAL][:-1]} AND {_USER})",
    Rule.USER_JOBS: f"{_EXPRESSIONS[Rule.REACH][:-1]} AND {_USER})",
}
# Which rows may be written, where that differs from which may be read.
_CHECKS: dict[Rule, str] = {
    **EXPRESSIONS,
    Rule.MEMORY: f"({_TENANT} AND {_PROJECT} AND {_AGENT} AND {_GARDEN})",
    Rule.SHARED_MEMORY: f"({_TENANT} AND {_PROJECT} AND {_AGENT} AND {_GARDEN})",
    Rule.NAMES: f"({_TENANT} AND {_PROJECT})",
    Rule.OBJECTS: f"({_TENANT} AND ((project_id IS NULL) OR {_PROJECT}))",
}
CHECKS: dict[Rule, str] = {
    **_CHECKS,
    Rule.USER_MEMORY: f"{_CHECKS[Rule.MEMORY][:-1]} AND {_USER_WRITES})",
    Rule.USER_SHARED_MEMORY: f"{_CHECKS[Rule.SHARED_MEMORY][:-1]} AND {_USER_WRITES})",
    Rule.USER_NAMES: f"{_CHECKS[Rule.NAMES][:-1]} AND {_USER_WRITES})",
    Rule.USER_JOURNAL: f"{_CHECKS[Rule.JOURNAL][:-1]} AND {_USER_WRITES})",
    Rule.USER_JOBS: f"{_CHECKS[Rule.REACH][:-1]} AND {_USER})",
}


def enable_tenant_rls(execute: Callable[[str], object], table: str, *, rule: Rule, grants: str) -> None:
    """Enable and force row-level security on a table, with one policy for each role and the grants of the app role."""
    execute(f"ALTER TABLE {table} ENABLE ROW LEVEL SECURITY")
    execute(f"ALTER TABLE {table} FORCE ROW LEVEL SECURITY")
    _create_policy(execute, table, rule)
    # Under FORCE policies apply to the owner too, so migrations and definer functions need this one.
    execute(f"CREATE POLICY {table}_owner ON {table} TO {OWNER_ROLE} USING (true)")
    execute(f"GRANT {grants} ON {table} TO {APP_ROLE}")


def replace_tenant_rule(execute: Callable[[str], object], table: str, *, rule: Rule) -> None:
    """Replace the app role's policy on a table that has row-level security."""
    execute(f"DROP POLICY {table}_app ON {table}")
    _create_policy(execute, table, rule)


def _create_policy(execute: Callable[[str], object], table: str, rule: Rule) -> None:
    using, check = EXPRESSIONS[rule], CHECKS[rule]
    execute(f"CREATE POLICY {table}_app ON {table} TO {APP_ROLE} USING {using} WITH CHECK {check}")
