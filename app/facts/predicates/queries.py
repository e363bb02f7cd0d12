"""All SQL of predicates: of a project, of a tenant and of the whole installation."""

from sqlalchemy import literal, select, text, union_all
from sqlalchemy.dialects.postgresql import insert as upsert

from app.db.database import Row, Session
from app.facts.entities.queries import PREFIX
from app.facts.predicates.tables import graph_predicate_aliases, graph_predicates

_p = graph_predicates.c

# Find the predicates that names or ids mean, inside a transaction.
RESOLVE_PREDICATES = text("SELECT * FROM resolve_predicates(:tenant, :project, CAST(:names AS json))")
# The same as a single read.
READ_PREDICATES = "SELECT * FROM resolve_predicates(%(tenant)s, %(project)s, %(names)s::json)"
# Change cardinality or status of a predicate, and its facts accordingly.
CONFIGURE_PREDICATE = text(
    "SELECT * FROM configure_predicate(CAST(:predicate AS uuid), :cardinality, :status, :resolve, :key)"
)

# Predicates of the installation, with how many tenants use each.
LIST_GLOBAL_PREDICATES = text(
    "SELECT g.predicate_id::text AS predicate_id, g.canonical AS name, g.cardinality, g.status, "
    "ARRAY(SELECT a.alias FROM global_predicate_aliases a "
    "WHERE a.predicate_id = g.predicate_id ORDER BY 1) AS aliases, "
    "(SELECT count(*) FROM graph_predicates p WHERE p.predicate_id = g.predicate_id AND p.global) AS tenants "
    "FROM global_predicates g ORDER BY g.canonical_norm"
)
FIND_GLOBAL_PREDICATE = text(
    "SELECT g.predicate_id, g.cardinality, g.status, EXISTS (SELECT FROM graph_predicates p "
    "WHERE p.predicate_id = g.predicate_id AND p.global) AS copies "
    "FROM global_predicates g WHERE g.canonical_norm = :norm FOR UPDATE"
)
INSERT_GLOBAL_PREDICATE = text(
    "INSERT INTO global_predicates "
    "(predicate_id, canonical, canonical_norm, cardinality, status, created_at, updated_at) "
    "VALUES (CAST(:id AS uuid), :canonical, :norm, :cardinality, :status, :now, :now)"
)
CHANGE_GLOBAL_PREDICATE = text(
    "UPDATE global_predicates SET status = :status, updated_at = :now WHERE predicate_id = CAST(:id AS uuid)"
)
# Change the copies of all tenants; only the operator's connection can see them.
CHANGE_COPIES = text(
    "UPDATE graph_predicates SET status = :status, updated_at = :now "
    "WHERE predicate_id = CAST(:id AS uuid) AND global AND status <> :status"
)
# Resolve the conflicts that an activated predicate leaves behind.
RESOLVE_CONFLICTS = text(
    "UPDATE fact_conflicts c SET status = 'resolved', resolved_by = 'operator', resolved_at = :now, "
    "resolution_note = 'predicate activated' FROM graph_facts f WHERE f.predicate_id = CAST(:id AS uuid) "
    "AND c.tenant_id = f.tenant_id AND c.fact_b = f.fact_id AND c.status = 'open'"
)
# Add an alias of the installation, or find the one of that name.
PUT_GLOBAL_ALIAS = text(
    "WITH made AS (INSERT INTO global_predicate_aliases (alias_norm, alias, predicate_id) "
    "VALUES (:norm, :alias, CAST(:id AS uuid)) ON CONFLICT DO NOTHING RETURNING predicate_id) "
    "SELECT predicate_id FROM made UNION ALL "
    "SELECT predicate_id FROM global_predicate_aliases WHERE alias_norm = :norm LIMIT 1"
)

# Predicates the project can use, by name, with those of the installation that its tenant has no copy of yet.
_PREDICATES = """
    SELECT u.*,
           ARRAY(SELECT a.alias FROM graph_predicate_aliases a
                 WHERE a.tenant_id = %(tenant)s AND a.predicate_id = u.predicate_id ORDER BY a.alias_norm)
           || ARRAY(SELECT a.alias FROM global_predicate_aliases a
                    WHERE a.predicate_id = u.predicate_id ORDER BY a.alias_norm) AS aliases
    FROM (
        SELECT p.predicate_id, p.canonical, p.canonical_norm, p.cardinality, p.status, p.scope_key, p.created_at,
               p.updated_at
        FROM graph_predicates p WHERE p.tenant_id = %(tenant)s
        UNION ALL
        SELECT g.predicate_id, g.canonical, g.canonical_norm, g.cardinality, g.status, '__global__', g.created_at,
               g.updated_at
        FROM global_predicates g
        WHERE NOT EXISTS (SELECT FROM graph_predicates p
                          WHERE p.tenant_id = %(tenant)s AND p.predicate_id = g.predicate_id)
    ) u
    WHERE true{where}
    ORDER BY u.canonical_norm, u.predicate_id LIMIT %(limit)s"""
_FILTERS = {
    "status": "u.status = %(status)s",
    "prefix": PREFIX.format(column="u.canonical_norm"),
    "predicate_id": "u.predicate_id = %(predicate_id)s::uuid",
    "after": "(u.canonical_norm, u.predicate_id) > (%(after)s, %(after_id)s::uuid)",
}


def select_predicates(filters: set[str]) -> str:
    """Return the query for predicates with the given filters."""
    return _PREDICATES.format(where="".join(f" AND {_FILTERS[name]}" for name in sorted(filters)))


async def insert_predicate(session: Session, *, row: Row) -> bool:
    """Insert a predicate; return False when its name is taken in its scope."""
    statement = upsert(graph_predicates).values(row).on_conflict_do_nothing().returning(_p.predicate_id)
    return await session.row(statement) is not None


async def find_predicate_named(session: Session, *, tenant_id: str, scope_key: str, norm: str) -> Row | None:
    """Return the predicate of a canonical name (rank 0) or alias (rank 1) in one scope, or None."""
    canonical = select(_p.predicate_id, literal(0).label("rank")).where(
        _p.tenant_id == tenant_id, _p.scope_key == scope_key, _p.canonical_norm == norm
    )
    c = graph_predicate_aliases.c
    alias = select(c.predicate_id, literal(1)).where(
        c.tenant_id == tenant_id, c.scope_key == scope_key, c.alias_norm == norm
    )
    found = union_all(canonical, alias).subquery()
    return await session.row(select(found).order_by(found.c.rank).limit(1))


async def find_predicate(session: Session, *, tenant_id: str, predicate_id: str) -> Row | None:
    """Return one predicate of the tenant, or None."""
    return await session.row(
        select(_p.predicate_id, _p.scope_key, _p.project_id, _p.status, _p["global"]).where(
            _p.tenant_id == tenant_id, _p.predicate_id == predicate_id
        )
    )


async def insert_predicate_alias(session: Session, *, row: Row) -> Row | None:
    """Insert an alias; return None when it is taken in its scope."""
    c = graph_predicate_aliases.c
    shown = (c.alias_id, c.predicate_id, c.alias, c.created_at)
    return await session.row(upsert(graph_predicate_aliases).values(row).on_conflict_do_nothing().returning(*shown))


async def find_predicate_alias(session: Session, *, tenant_id: str, scope_key: str, norm: str) -> Row | None:
    """Return an alias by its name, or None."""
    c = graph_predicate_aliases.c
    return await session.row(
        select(c.alias_id, c.predicate_id, c.alias, c.created_at).where(
            c.tenant_id == tenant_id, c.scope_key == scope_key, c.alias_norm == norm
        )
    )
