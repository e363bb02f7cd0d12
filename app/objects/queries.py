"""All SQL of objects and relationships; the statements of both differ only in their columns."""

from typing import Any, Literal

from sqlalchemy import TextClause, text
from sqlalchemy.exc import IntegrityError

from app.db.database import Session
from app.errors import AppError, BadRequest, Conflict

Kind = Literal["object", "relationship"]

_SHARED = (
    "canonical_id", "version_id", "version", "branch_id", "project_id", "type", "properties", "evidence",
    "content_hash", "schema_version", "deleted_at", "created_at",
)  # fmt: skip
OWN: dict[Kind, tuple[str, ...]] = {
    "object": ("subtype", "key", "title", "status", "labels", "effective_from", "effective_to"),
    "relationship": ("src_id", "dst_id", "weight", "role_src", "role_dst", "valid_from", "valid_to"),
}


def _columns(kind: Kind, alias: str) -> str:
    return ", ".join(f"{alias}.{name}" for name in (*_SHARED, *OWN[kind]))


def _head(kind: Kind) -> str:
    written_by = (
        f"(SELECT w.written_by FROM graph_{kind}_versions w "
        "WHERE w.tenant_id = %(tenant)s AND w.version_id = h.version_id) AS written_by"
    )
    return f"SELECT {_columns(kind, 'h')}, h.updated_at, true AS is_head, {written_by} FROM graph_{kind}s h"


_KINDS: tuple[Kind, ...] = ("object", "relationship")
# The head on each branch of what an id names (canonical, or of a version), and which version that id is of.
HEADS: dict[Kind, TextClause] = {
    kind: text(
        f"SELECT {_columns(kind, 'h')}, h.updated_at, true AS is_head, "
        "v.version AS given_version, v.version_id AS given_id, "
        f"(SELECT s.supersedes_id FROM graph_{kind}_versions s "
        "WHERE s.tenant_id = :tenant AND s.version_id = h.version_id) AS supersedes_id, "
        f"(SELECT s.written_by FROM graph_{kind}_versions s "
        "WHERE s.tenant_id = :tenant AND s.version_id = h.version_id) AS written_by, "
        f"v.branch_id AS given_branch FROM graph_{kind}_versions v "
        f"JOIN graph_{kind}s h ON h.tenant_id = :tenant AND h.canonical_id = v.canonical_id "
        "WHERE v.tenant_id = :tenant AND v.version_id = CAST(:id AS uuid)"
    )
    for kind in _KINDS
}
LOCK_HEADS: dict[Kind, TextClause] = {kind: text(f"{HEADS[kind].text} FOR UPDATE OF h") for kind in _KINDS}
# The objects at the ends of relationships, locked so that nobody deletes them meanwhile.
LOCK_ENDS = text(
    "SELECT v.version_id AS given, h.canonical_id, h.branch_id, h.project_id, h.type, h.deleted_at "
    "FROM graph_object_versions v JOIN graph_objects h ON h.tenant_id = :tenant AND h.canonical_id = v.canonical_id "
    "WHERE v.tenant_id = :tenant AND v.version_id = ANY (CAST(:ids AS uuid[])) "
    "ORDER BY h.canonical_id FOR SHARE OF h"
)
# The projects of objects, whatever the project of the request.
ENDS_PROJECTS = (
    "SELECT v.version_id AS given, v.project_id FROM graph_object_versions v "
    "WHERE v.tenant_id = %(tenant)s AND v.version_id = ANY (%(ids)s::uuid[])"
)
STORE_OBJECTS = text("SELECT * FROM store_objects(:tenant, :agent, CAST(:rows AS json), :now)")
LINK_OBJECTS = text("SELECT * FROM link_objects(:tenant, :agent, CAST(:rows AS json), :now)")
_CHANGE: dict[Kind, TextClause] = {
    kind: text(f"SELECT change_{kind}(:tenant, :agent, CAST(:row AS json), :now)") for kind in _KINDS
}
UNLINK_OBJECT = text("SELECT unlink_object(:agent, CAST(:id AS uuid), :now) AS relationships")
RELINK_OBJECT = text("SELECT relink_object(:agent, CAST(:id AS uuid), :now) AS relationships")
_CONFLICTS: dict[str, tuple[str, str]] = {
    "graph_objects_key_key": ("object_key_exists", "key: a live object of this type has this key already."),
    "graph_relationships_triple_key": (
        "relationship_exists",
        "A live relationship of this type links the same objects already.",
    ),
}


async def change(session: Session, kind: Kind, *, type_name: str, tenant: str, agent: str, row: str, now: Any) -> None:
    """Write the next version; raise Conflict or BadRequest when another live row has its key or its ends."""
    try:
        await session.execute(_CHANGE[kind], {"tenant": tenant, "agent": agent, "row": row, "now": now})
    except IntegrityError as problem:
        raise _conflict(problem, type_name) from problem


def _conflict(problem: IntegrityError, type_name: str) -> AppError:
    name = getattr(getattr(problem.orig, "diag", None), "constraint_name", None) or ""
    if name in _CONFLICTS:
        code, message = _CONFLICTS[name]
        return Conflict(message, code=code)
    side = {"graph_relationships_one_src_key": "src", "graph_relationships_one_dst_key": "dst"}.get(name)
    if side is None:
        raise problem
    return multiplicity_violated(side, type_name)


def multiplicity_violated(side: str, name: str) -> BadRequest:
    """Return the error for a second relationship where its type allows one."""
    end = {"src": "source", "dst": "destination"}[side]
    return BadRequest(
        f"{side}_id: this object is the {end} of a relationship of type {name} already, and the type allows "
        "only one; delete that one first.",
        code="relationship_multiplicity_violation",
        details={"side": side, "type": name},
    )


def select_version_at(kind: Kind) -> str:
    """Return the query for the version at a time, on the project's branch or the shared one."""
    return (
        f"SELECT {_columns(kind, 'v')}, v.suppression, v.supersedes_id, v.written_by, "
        "v.version_id = h.version_id AS is_head "
        f"FROM graph_{kind}_versions n "
        f"JOIN graph_{kind}_versions v ON v.tenant_id = %(tenant)s AND v.canonical_id = n.canonical_id "
        f"JOIN graph_{kind}s h ON h.tenant_id = %(tenant)s AND h.canonical_id = v.canonical_id "
        "AND h.branch_id = v.branch_id "
        "WHERE n.tenant_id = %(tenant)s AND n.version_id = %(id)s::uuid "
        "AND v.branch_id IN (%(own)s::uuid, %(shared)s::uuid) AND v.created_at <= %(as_of)s "
        "AND check_as_of(%(tenant)s, %(project)s, %(as_of)s) ORDER BY v.version DESC LIMIT 1"
    )


def select_versions(kind: Kind, *, by_number: bool = False) -> str:
    """Return the query for the versions of one id on one branch, newest first, or for the one of a number."""
    condition = "v.version = %(version)s" if by_number else "(%(after)s::int IS NULL OR v.version < %(after)s)"
    return (
        f"SELECT {_columns(kind, 'v')}, v.supersedes_id, v.change_summary, v.written_by, "
        f"v.version_id = h.version_id AS is_head FROM graph_{kind}_versions v "
        f"JOIN graph_{kind}s h ON h.tenant_id = %(tenant)s AND h.canonical_id = v.canonical_id "
        "AND h.branch_id = v.branch_id "
        "WHERE v.tenant_id = %(tenant)s AND v.canonical_id = %(canonical)s::uuid AND v.branch_id = %(branch)s::uuid "
        f"AND {condition} ORDER BY v.version DESC LIMIT %(limit)s"
    )


_EQUAL = {
    "object": ("status", "key", "subtype"),
    "relationship": (),
}
_ENDS = ("src_id", "dst_id")
# The canonical id of an id of an object or of one of its versions.
_CANONICAL = (
    "(SELECT v.canonical_id FROM graph_object_versions v "
    "WHERE v.tenant_id = %(tenant)s AND v.version_id = %({})s::uuid)"
)


def _head_conditions(given: set[str]) -> list[str]:
    """Return the conditions on what is the same in all versions."""
    conditions = ["h.tenant_id = %(tenant)s", "h.branch_id IN (%(branch)s::uuid, %(shared)s::uuid)"]
    conditions += [f"h.{name} = {_CANONICAL.format(name)}" for name in _ENDS if name in given]
    if "type" in given:
        conditions.append("h.type = %(type)s")
    if "object_id" in given:
        canonical = _CANONICAL.format("object_id")
        conditions.append(f"(h.src_id = {canonical} OR h.dst_id = {canonical})")
    if "after" in given:
        conditions.append("h.canonical_id < %(after)s::uuid")
    return conditions


def _state_conditions(kind: Kind, alias: str, given: set[str]) -> list[str]:
    """Return the conditions on what can differ between versions, without labels and properties."""
    deleted = "IS NOT NULL" if "deleted" in given else "IS NULL"
    equal = [f"{alias}.{name} = %({name})s" for name in _EQUAL[kind] if name in given]
    return [f"{alias}.deleted_at {deleted}", *equal]


def select_heads_at(kind: Kind, *, given: set[str]) -> str:
    """Return the query for a page of versions that were recorded at a time, newest object first, by the filters."""
    conditions = [*_head_conditions(given), *_state_conditions(kind, "v", given), "h.created_at <= %(as_of)s"]
    conditions.append("check_as_of(%(tenant)s, %(project)s, %(as_of)s)")
    if "labels" in given:
        conditions.append("v.labels @> %(labels)s::text[]")
    if "properties" in given:
        conditions.append("v.properties @> %(properties)s::jsonb")
    return (
        f"SELECT {_columns(kind, 'v')}, v.suppression, v.supersedes_id, v.written_by, "
        "v.version_id = h.version_id AS is_head "
        f"FROM graph_{kind}s h CROSS JOIN LATERAL (SELECT v.* FROM graph_{kind}_versions v "
        "WHERE v.tenant_id = %(tenant)s AND v.canonical_id = h.canonical_id AND v.branch_id = h.branch_id "
        "AND v.created_at <= %(as_of)s ORDER BY v.version DESC LIMIT 1) v "
        f"WHERE {' AND '.join(conditions)} ORDER BY h.canonical_id DESC LIMIT %(limit)s"
    )


def select_heads(kind: Kind, *, given: set[str]) -> str:
    """Return the query for a page of heads, newest first, by the filters that are given."""
    conditions = [*_head_conditions(given), *_state_conditions(kind, "h", given)]
    if given & {"labels", "properties"}:
        conditions.append(
            "h.canonical_id IN (SELECT c.canonical_id FROM objects_containing(%(branch)s::uuid, %(shared)s::uuid, "
            "%(type)s, %(subtype)s, %(status)s, %(key)s, %(labels)s::text[], %(properties)s::jsonb, %(after)s::uuid, "
            "%(limit)s) c)"
        )
    return f"{_head(kind)} WHERE {' AND '.join(conditions)} ORDER BY h.canonical_id DESC LIMIT %(limit)s"
