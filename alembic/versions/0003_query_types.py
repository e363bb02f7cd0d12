"""Composite types that functions take instead of long lists of arguments."""

from alembic import op
from app.db.functions import remove_functions

revision = "0003_query_types"
down_revision = "0002_installed_releases"
branch_labels = None
depends_on = None

# The context of a read: see app/read_context.py. known_at NULL is everything recorded, scope NULL every scope.
READ_CONTEXT = """
CREATE TYPE read_context AS (
    tenant_id text,
    project_id text,
    valid_at timestamptz,
    known_at timestamptz,
    scope text
)"""
# What facts have to satisfy; relations NULL is every predicate.
FACT_FILTER = """
CREATE TYPE fact_filter AS (
    relations uuid[],
    min_confidence double precision,
    min_trust double precision,
    include_contradicted boolean
)"""
# The terms of a query with their weights, and the average length of a document.
TERM_QUERY = """
CREATE TYPE term_query AS (
    terms text[],
    idf double precision[],
    average double precision
)"""
# The vector of a query in text form, and the model that made it.
VECTOR_QUERY = """
CREATE TYPE vector_query AS (
    model_id smallint,
    dimensions integer,
    vector text
)"""
# How far a traversal of the graph goes and which edges it follows; fans has the edges followed from one entity at each
# level, cap the entities reached in all.
TRAVERSAL = """
CREATE TYPE traversal AS (
    depth integer,
    direction text,
    min_confidence double precision,
    min_source_trust double precision,
    fans integer[],
    cap integer
)"""


def upgrade() -> None:
    for statement in (READ_CONTEXT, FACT_FILTER, TERM_QUERY, VECTOR_QUERY, TRAVERSAL):
        op.execute(statement)


def downgrade() -> None:
    remove_functions(op.get_bind())
    for name in ("traversal", "vector_query", "term_query", "fact_filter", "read_context"):
        op.execute(f"DROP TYPE {name}")
