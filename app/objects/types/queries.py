"""All SQL of types; each statement exists for types of objects and of relationships."""

from typing import Any, Literal

from sqlalchemy import TextClause, text
from sqlalchemy.exc import IntegrityError

from app.db.counts import count_query
from app.db.database import Row, Session
from app.errors import Conflict

Kind = Literal["object", "relationship"]

_OWN = {
    "object": ("embedding_policy", "embedding_relevant_paths", "fts_enabled"),
    "relationship": (
        "allowed_src_types", "allowed_dst_types", "multiplicity_src", "multiplicity_dst", "base_weight",
        "allow_neighbor", "max_depth_allowed", "reciprocal_boost",
    ),
}  # fmt: skip
_ALL = ("type", "version", "status", "description", "json_schema", "created_by", "created_at")
# The columns that make two versions of a type equal.
CONTENT: dict[Kind, tuple[str, ...]] = {
    "object": ("description", "json_schema", *_OWN["object"]),
    "relationship": ("description", "json_schema", *_OWN["relationship"]),
}


def _columns(kind: Kind) -> tuple[str, ...]:
    return (*_ALL, *_OWN[kind])


def _select(kind: Kind, scope: str) -> str:
    listed = ", ".join(
        "t.json_schema::text AS json_schema" if name == "json_schema" else f"t.{name}" for name in _columns(kind)
    )
    table = f"{kind}_type_schemas" if scope == "tenant" else f"global_{kind}_type_schemas"
    own = "t.tenant_id = :tenant AND " if scope == "tenant" else ""
    return f"SELECT {listed}, '{scope}' AS scope FROM {table} t WHERE {own}"


def _either(kind: Kind, condition: str) -> str:
    """Return the query for the tenant's own types and those of the installation that the tenant does not override."""
    own = f"{_select(kind, 'tenant')}{condition}"
    other = (
        f"{_select(kind, 'global')}{condition} AND NOT EXISTS (SELECT FROM {kind}_type_schemas o "
        f"WHERE o.tenant_id = :tenant AND o.type = t.type AND o.status = 'active')"
    )
    return f"{own} UNION ALL {other}"


_KINDS: tuple[Kind, ...] = ("object", "relationship")
# The active versions of these types.
ACTIVE: dict[Kind, TextClause] = {
    kind: text(_either(kind, "t.status = 'active' AND t.type = ANY (CAST(:types AS text[]))")) for kind in _KINDS
}
# All versions of a type, newest first; the tenant's before the installation's.
VERSIONS: dict[Kind, TextClause] = {
    kind: text(
        f"SELECT * FROM ({_select(kind, 'tenant')}t.type = ANY (CAST(:types AS text[])) "
        f"UNION ALL {_select(kind, 'global')}t.type = ANY (CAST(:types AS text[]))) v "
        "ORDER BY v.type, v.scope DESC, v.version DESC"
    )
    for kind in _KINDS
}
# A page of types by name, newest version first.
LISTED: dict[Kind, TextClause] = {
    kind: text(
        f"SELECT * FROM ({_select(kind, 'tenant')}true UNION ALL {_select(kind, 'global')}true) v "
        "WHERE (CAST(:status AS text) IS NULL OR v.status = :status) "
        "AND (CAST(:name AS text) IS NULL OR v.type = :name) "
        "AND (CAST(:after_type AS text) IS NULL OR (v.type, v.scope, -v.version) "
        '> (CAST(:after_type AS text) COLLATE "C", :after_scope, -CAST(:after_version AS int))) '
        "ORDER BY v.type, v.scope, v.version DESC LIMIT :limit"
    )
    for kind in _KINDS
}
COUNTED: dict[Kind, TextClause] = {kind: text(count_query(LISTED[kind].text)) for kind in _KINDS}
RETIRE: dict[Kind, TextClause] = {
    kind: text(
        f"UPDATE {kind}_type_schemas t SET status = 'retired' "
        "WHERE t.tenant_id = :tenant AND t.type = :type AND t.status = 'active'"
    )
    for kind in _KINDS
}
SET_STATUS: dict[Kind, TextClause] = {
    kind: text(
        f"UPDATE {kind}_type_schemas t SET status = :status "
        "WHERE t.tenant_id = :tenant AND t.type = :type AND t.version = :version"
    )
    for kind in _KINDS
}
GLOBAL_VERSIONS: dict[Kind, TextClause] = {
    kind: text(f"{_select(kind, 'global')}t.type = :type ORDER BY t.version DESC") for kind in _KINDS
}
GLOBAL_ACTIVE: dict[Kind, TextClause] = {
    kind: text(f"{_select(kind, 'global')}t.status = 'active' ORDER BY t.type") for kind in _KINDS
}
GLOBAL_RETIRE: dict[Kind, TextClause] = {
    kind: text(
        f"UPDATE global_{kind}_type_schemas t SET status = 'retired' WHERE t.type = :type AND t.status = 'active'"
    )
    for kind in _KINDS
}
# Queue a job for each tenant that has objects of a type and no own version of it; only the owner sees all tenants.
QUEUE_JOBS = text(
    "INSERT INTO jobs (tenant_id, job_id, kind, payload, created_by, available_at, created_at) "
    "SELECT t.tenant_id, gen_random_uuid(), :kind, CAST(:payload AS jsonb), 'operator', now(), now() FROM tenants t "
    "WHERE NOT EXISTS (SELECT FROM object_type_schemas o "
    "WHERE o.tenant_id = t.tenant_id AND o.type = :type AND o.status = 'active') "
    "AND EXISTS (SELECT FROM branches b CROSS JOIN LATERAL ("
    "SELECT FROM graph_objects o WHERE o.tenant_id = t.tenant_id AND o.branch_id = b.branch_id AND o.type = :type "
    "AND o.deleted_at IS NULL LIMIT 1) x "
    "WHERE b.tenant_id = t.tenant_id) RETURNING job_id"
)
# Enforce the multiplicity of a type from now on, or return the objects that exceed it already.
APPLY_MULTIPLICITY = text("SELECT * FROM apply_multiplicity(:type)")
# Lock a type: others wait to register or activate versions of it, and to write relationships of it.
LOCK_TYPE = text("SELECT lock_types(:tenant, ARRAY[CAST(:kind || ' ' || :type AS text), CAST(:type AS text)], true)")
# The next objects of a type to describe anew, locked, and what to store for them.
LOCK_OBJECTS = text("SELECT * FROM lock_objects_of_type(:type, CAST(:after AS uuid), :limit)")
DESCRIBE_OBJECTS = text("SELECT describe_objects(CAST(:rows AS json))")
OBJECTS_OF_TYPE = text("SELECT * FROM read_objects_of_type(:type, CAST(:after AS uuid), :limit)")
USED_ELSEWHERE = text("SELECT type_used_elsewhere(:kind, :type) AS used")


async def insert_version(session: Session, kind: Kind, *, row: Row) -> None:
    """Insert a version of a tenant's type; raise Conflict when a concurrent request registered it."""
    try:
        await session.execute(_insert(f"{kind}_type_schemas", ("tenant_id", *_columns(kind))), row)
    except IntegrityError as problem:
        raise Conflict(
            "type: another request registered a version of it at the same time; read the type and try again.",
            code="type_version_exists",
        ) from problem


def _insert(table: str, columns: tuple[str, ...]) -> TextClause:
    values = ", ".join("CAST(:json_schema AS jsonb)" if name == "json_schema" else f":{name}" for name in columns)
    return text(f"INSERT INTO {table} ({', '.join(columns)}) VALUES ({values})")


def insert_global(kind: Kind) -> Any:
    """Return the statement that inserts a version of the installation's types."""
    return _insert(f"global_{kind}_type_schemas", _columns(kind))
