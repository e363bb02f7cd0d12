"""Row-level security: the canonical policies, how a migration creates them, and what the catalogue must show.

Every rule is written exactly as PostgreSQL prints it back, so that the check at start can compare text with text.
A rule's text is frozen once a migration has used it: a change is a rule of a new name.
"""

from collections.abc import Callable
from enum import StrEnum

APP_ROLE = "palimpsest_app"
OWNER_ROLE = "palimpsest_owner"

# A scalar subquery is evaluated once a query, not once a row; unset and '' both mean no rows.
_TENANT = """(tenant_id = ( SELECT NULLIF(current_setting('app.tenant_id'::text, true), ''::text) AS "nullif"))"""
_PROJECT = """(project_id = ( SELECT NULLIF(current_setting('app.project_id'::text, true), ''::text) AS "nullif"))"""
_REACH = "(( SELECT current_setting('app.reach'::text, true) AS current_setting) = 'cross_project'::text)"


_CROSS = f"({_REACH} AND (scope = ANY (ARRAY['org_shared'::text, 'public'::text])))"
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
_HOLD = "(( SELECT current_setting('app.reach'::text, true) AS current_setting) = 'legal_hold'::text)"


class Rule(StrEnum):
    """Which rows of a table the app role sees and may write."""

    TENANT = "tenant"
    """The tenant's own rows."""
    PROJECT = "project"
    """The tenant's own rows in the current project."""
    REACH = "reach"
    """As PROJECT; with reach cross_project the rows of all its projects, and those that belong to none."""
    MEMORY = "memory"
    """As PROJECT, less other agents' private rows, gardens one is no member of, and what is suppressed; with reach
    cross_project what is shared in other projects can be read too."""
    NAMES = "names"
    """As REACH, less what is suppressed."""
    VOCABULARY = "vocabulary"
    """As REACH, and what belongs to every project of the tenant."""
    JOURNAL = "journal"
    """As PROJECT, the agent's own rows alone, less what is suppressed; with reach legal_hold those of all agents."""
    OBJECTS = "objects"
    """As VOCABULARY, less what is suppressed; what is written belongs to the current project, or to every project."""
    CUSTODY = "custody"
    """As PROJECT, with reach legal_hold alone: nobody else learns that there is such a row."""


EXPRESSIONS: dict[Rule, str] = {
    Rule.TENANT: _TENANT,
    Rule.PROJECT: f"({_TENANT} AND {_PROJECT})",
    Rule.REACH: f"({_TENANT} AND ({_PROJECT} OR {_REACH}))",
    Rule.MEMORY: f"({_TENANT} AND ({_PROJECT} OR {_CROSS}) AND {_AGENT} AND {_GARDEN} AND {_SUPPRESSION})",
    Rule.NAMES: f"({_TENANT} AND ({_PROJECT} OR {_REACH}) AND {_SUPPRESSION})",
    Rule.CUSTODY: f"({_TENANT} AND {_PROJECT} AND {_HOLD})",
    Rule.JOURNAL: f"({_TENANT} AND {_PROJECT} AND ({_OWN} OR {_HOLD}) AND {_SUPPRESSION})",
    Rule.VOCABULARY: f"({_TENANT} AND ((project_id IS NULL) OR {_PROJECT} OR {_REACH}))",
    Rule.OBJECTS: f"({_TENANT} AND ((project_id IS NULL) OR {_PROJECT} OR {_REACH}) AND {_SUPPRESSION})",
}
# What may be written, where that differs from what may be seen.
CHECKS: dict[Rule, str] = {
    **EXPRESSIONS,
    Rule.MEMORY: f"({_TENANT} AND {_PROJECT} AND {_AGENT} AND {_GARDEN})",
    Rule.NAMES: f"({_TENANT} AND {_PROJECT})",
    Rule.OBJECTS: f"({_TENANT} AND ((project_id IS NULL) OR {_PROJECT}))",
}


def enable_tenant_rls(execute: Callable[[str], object], table: str, *, rule: Rule, grants: str) -> None:
    """Turns row-level security on for a tenant table: forced, one policy for each role, and the app's grants."""
    execute(f"ALTER TABLE {table} ENABLE ROW LEVEL SECURITY")
    execute(f"ALTER TABLE {table} FORCE ROW LEVEL SECURITY")
    using, check = EXPRESSIONS[rule], CHECKS[rule]
    execute(f"CREATE POLICY {table}_app ON {table} TO {APP_ROLE} USING {using} WITH CHECK {check}")
    # Under FORCE the owner is subject to policies too: migrations and definer functions need this one.
    execute(f"CREATE POLICY {table}_owner ON {table} TO {OWNER_ROLE} USING (true)")
    execute(f"GRANT {grants} ON {table} TO {APP_ROLE}")
