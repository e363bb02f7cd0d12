"""All SQL of branches."""

from sqlalchemy import text

# The branches of a name that a project reads: its own, and that of the objects of no project. Creates none.
READ_BRANCHES = text(
    "SELECT (SELECT b.branch_id FROM branches b "
    "WHERE b.tenant_id = :tenant AND b.project_id = :project AND b.name = :name) AS own, "
    "(SELECT b.branch_id FROM branches b "
    "WHERE b.tenant_id = :tenant AND b.project_id IS NULL AND b.name = :name) AS shared"
)
# The same for `main`; the project's is created when it is missing.
MAIN_BRANCHES = text(
    "SELECT ensure_main_branch(CAST(:project AS text)) AS own, "
    "(SELECT b.branch_id FROM branches b WHERE b.tenant_id = :tenant AND b.project_id IS NULL AND b.name = 'main') "
    "AS shared"
)
# The `main` of the objects of no project, created when it is missing.
SHARED_BRANCH = text("SELECT ensure_main_branch(NULL) AS shared")
FIND_BRANCH = text(
    "SELECT b.branch_id, b.project_id FROM branches b "
    "WHERE b.tenant_id = :tenant AND b.branch_id = CAST(:branch AS uuid)"
)
