"""Objects written directly into their tables: the head and its version."""

import hashlib
import json
from dataclasses import dataclass
from typing import Any
from uuid import uuid4

import psycopg

Superuser = psycopg.Connection[dict[str, Any]]

OBJECT = """
    INSERT INTO {table} (
        tenant_id, branch_id, canonical_id, version_id, version, project_id, type, subtype, key, title, status, labels,
        properties, evidence, content_hash, deleted_at, {own})
    VALUES (%(tenant)s, %(branch)s, %(canonical)s, %(version_id)s, %(version)s, %(project)s, %(type)s, NULL, %(key)s,
            %(title)s, %(status)s, %(labels)s, %(properties)s, %(evidence)s, %(hash)s, %(deleted_at)s, {values})"""
RELATIONSHIP = """
    INSERT INTO {table} (
        tenant_id, branch_id, canonical_id, version_id, version, project_id, type, src_id, dst_id, weight, properties,
        content_hash, {own})
    VALUES (%(tenant)s, %(branch)s, %(canonical)s, %(version_id)s, %(version)s, %(project)s, %(type)s, %(src)s,
            %(dst)s, %(weight)s, %(properties)s, %(hash)s, {values})"""
OLD = "supersedes_id, change_summary, written_by, created_at"
OLD_VALUES = "%(supersedes)s, %(summary)s, 'robin', clock_timestamp()"
HEAD = "created_at, updated_at, terms, embed_text"
HEAD_VALUES = """clock_timestamp(), clock_timestamp(),
    object_terms(%(tenant)s, %(project)s, %(title)s, %(key)s, %(labels)s, object_text(%(properties)s)),
    %(embed_text)s"""
EDGE = "created_at, updated_at, one_src, one_dst"
EDGE_VALUES = "clock_timestamp(), clock_timestamp(), %(one_src)s, %(one_dst)s"


@dataclass
class Objects:
    """Writes objects into one project or into none."""

    superuser: Superuser
    tenant: str = "acme"
    project: str | None = "default"

    def branch(self, project: str | None) -> str:
        found = self.superuser.execute(
            "SELECT branch_id FROM branches "
            "WHERE tenant_id = %s AND name = 'main' AND project_id IS NOT DISTINCT FROM %s",
            (self.tenant, project),
        ).fetchone()
        assert found is not None
        return str(found["branch_id"])

    def _place(self, fields: dict[str, Any]) -> dict[str, Any]:
        project = fields.pop("project", self.project)
        version_id = str(uuid4())
        place = {
            "tenant": self.tenant,
            "project": project,
            "branch": self.branch(project),
            "version_id": version_id,
            "canonical": version_id,
            "version": 1,
            "supersedes": None,
            "summary": None,
            "hash": hashlib.sha256(version_id.encode()).digest(),
        }
        return {**place, **fields}

    def put(self, title: str, **fields: Any) -> str:
        """Create an object and return its canonical id."""
        row: dict[str, Any] = {
            "type": "Person",
            "title": title,
            "key": None,
            "status": None,
            "labels": [],
            "properties": {},
            "evidence": None,
            "embed_text": title,
            "deleted_at": None,
            **fields,
        }
        row = self._place(row)
        for name in ("properties", "evidence"):
            row[name] = None if row[name] is None else json.dumps(row[name])
        with self.superuser.transaction():
            for table, own, values in (
                ("graph_objects", HEAD, HEAD_VALUES),
                ("graph_object_versions", OLD, OLD_VALUES),
            ):
                self.superuser.execute(OBJECT.format(table=table, own=own, values=values).encode(), row)
            self._queue(row)
        return row["canonical"]

    def change(self, canonical: str, **fields: Any) -> None:
        """Write a new version of an object on main."""
        head = self.one("SELECT * FROM graph_objects WHERE canonical_id = %s", canonical)
        with self.superuser.transaction():
            self.superuser.execute("DELETE FROM graph_objects WHERE canonical_id = %s", (canonical,))
            row = self._place(
                {
                    **{name: head[name] for name in ("type", "title", "key", "status", "labels", "embed_text")},
                    "properties": head["properties"],
                    "evidence": head["evidence"],
                    "deleted_at": None,
                    **fields,
                    "project": head["project_id"],
                    "canonical": canonical,
                    "version": head["version"] + 1,
                    "supersedes": str(head["version_id"]),
                }
            )
            for name in ("properties", "evidence"):
                row[name] = None if row[name] is None else json.dumps(row[name])
            for table, own, values in (
                ("graph_objects", HEAD, HEAD_VALUES),
                ("graph_object_versions", OLD, OLD_VALUES),
            ):
                self.superuser.execute(OBJECT.format(table=table, own=own, values=values).encode(), row)
            self._queue(row)

    def _queue(self, row: dict[str, Any]) -> None:
        self.superuser.execute(
            "SELECT queue_units(%(tenant)s, %(project)s, 'object', ARRAY[%(canonical)s]::uuid[])", row
        )

    def relate(self, src: str, dst: str, **fields: Any) -> str:
        """Create a relationship and return its canonical id."""
        row = self._place(
            {
                "type": "knows",
                "src": src,
                "dst": dst,
                "weight": None,
                "properties": {},
                "one_src": False,
                "one_dst": False,
                **fields,
            }
        )
        row["properties"] = json.dumps(row["properties"])
        with self.superuser.transaction():
            for table, own, values in (
                ("graph_relationships", EDGE, EDGE_VALUES),
                ("graph_relationship_versions", OLD, OLD_VALUES),
            ):
                self.superuser.execute(RELATIONSHIP.format(table=table, own=own, values=values).encode(), row)
        return row["canonical"]

    def rows(self, query: str, *values: Any) -> list[dict[str, Any]]:
        return self.superuser.execute(query.encode(), values or None).fetchall()

    def one(self, query: str, *values: Any) -> dict[str, Any]:
        (row,) = self.rows(query, *values)
        return row

    def levels(self, canonical: str) -> set[int]:
        """Return the suppression levels of an object or a relationship in its heads and versions."""
        found: set[int] = set()
        for table in (
            *("graph_objects", "graph_object_versions"),
            *("graph_relationships", "graph_relationship_versions"),
        ):
            rows = self.rows(f"SELECT suppression FROM {table} WHERE canonical_id = %s", canonical)
            found |= {row["suppression"] for row in rows}
        return found

    def bind(self, entity_id: str, canonical: str | None) -> None:
        """Bind an entity directly in its table."""
        self.superuser.execute(
            "UPDATE graph_entities SET object_canonical_id = %s WHERE entity_id = %s", (canonical, entity_id)
        )
