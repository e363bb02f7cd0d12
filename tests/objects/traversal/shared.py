"""Graphs of objects written directly into their tables, and short calls to walk them."""

import json
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any
from uuid import UUID

import httpx
import psycopg
import uuid_utils

Superuser = psycopg.Connection[dict[str, Any]]

OBJECT = """
    INSERT INTO {table} (
        tenant_id, branch_id, canonical_id, version_id, version, project_id, type, subtype, key, title, status, labels,
        effective_from, effective_to, properties, evidence, content_hash, deleted_at, suppression, created_at{more})
    SELECT %(tenant)s, b.branch_id, %(canonical_id)s, %(version_id)s, %(version)s, %(project)s, %(type)s, %(subtype)s,
           %(key)s, %(title)s, %(status)s, %(labels)s, %(effective_from)s, %(effective_to)s, %(properties)s,
           %(evidence)s, '', %(deleted_at)s, %(suppression)s, now(){values}
    FROM branches b
    WHERE b.tenant_id = %(tenant)s AND b.project_id IS NOT DISTINCT FROM %(project)s AND b.name = 'main'"""
RELATIONSHIP = """
    INSERT INTO graph_relationships (
        tenant_id, branch_id, canonical_id, version_id, version, project_id, type, src_id, dst_id, weight, role_src,
        role_dst, valid_from, valid_to, properties, evidence, content_hash, deleted_at, suppression, created_at,
        updated_at, one_src, one_dst)
    SELECT %(tenant)s, b.branch_id, %(canonical_id)s, %(canonical_id)s, 1, %(project)s, %(type)s, %(src)s, %(dst)s,
           %(weight)s, %(role_src)s, %(role_dst)s, %(valid_from)s, %(valid_to)s, %(properties)s, %(evidence)s, '',
           %(deleted_at)s, %(suppression)s, now(), now(), false, false
    FROM branches b
    WHERE b.tenant_id = %(tenant)s AND b.project_id IS NOT DISTINCT FROM %(project)s AND b.name = 'main'"""
HEAD = OBJECT.format(table="graph_objects", more=", updated_at", values=", now()")
VERSION = OBJECT.format(table="graph_object_versions", more=", written_by", values=", 'robin'")


def new_id() -> str:
    return str(uuid_utils.uuid7())


@dataclass
class Graph:
    """A graph for one test, whose objects have letters as names."""

    superuser: Superuser
    client: httpx.Client
    tenant: str = "acme"
    project: str | None = "default"
    ids: dict[str, str] = field(default_factory=dict)
    edges: dict[str, str] = field(default_factory=dict)

    def put(self, letter: str, *, versions: int = 1, **fields: Any) -> str:
        """Create an object with this many versions and return its canonical id."""
        row: dict[str, Any] = {
            "tenant": self.tenant, "project": self.project, "canonical_id": new_id(), "type": "Thing", "subtype": None,
            "key": None, "title": None, "status": None, "labels": [], "effective_from": None, "effective_to": None,
            "properties": {}, "evidence": None, "deleted_at": None, "suppression": 0, **fields,
        }  # fmt: skip
        row |= {
            "properties": json.dumps(row["properties"]),
            "evidence": row["evidence"] and json.dumps(row["evidence"]),
        }
        for number in range(1, versions + 1):
            row |= {"version": number, "version_id": row["canonical_id"] if number == 1 else new_id()}
            self.superuser.execute(VERSION.encode(), row)
            self.ids[f"{letter}{number}"] = row["version_id"]
        made = self.superuser.execute(HEAD.encode(), row)
        assert made.rowcount == 1
        self.ids[letter] = row["canonical_id"]
        return row["canonical_id"]

    def link(self, edge: str, **fields: Any) -> str:
        """Create a relationship such as `a knows b`, and its objects where they are missing."""
        src, word, dst = edge.split()
        for letter in (src, dst):
            if letter not in self.ids:
                self.put(letter)
        row: dict[str, Any] = {
            "tenant": self.tenant, "project": self.project, "canonical_id": new_id(), "type": word,
            "src": self.ids[src], "dst": self.ids[dst], "weight": None, "role_src": None, "role_dst": None,
            "valid_from": None, "valid_to": None, "properties": {}, "evidence": None, "deleted_at": None,
            "suppression": 0, **fields,
        }  # fmt: skip
        row |= {
            "properties": json.dumps(row["properties"]),
            "evidence": row["evidence"] and json.dumps(row["evidence"]),
        }
        assert self.superuser.execute(RELATIONSHIP.encode(), row).rowcount == 1
        self.edges[edge] = row["canonical_id"]
        return row["canonical_id"]

    def draw(self, *edges: str, **fields: Any) -> None:
        for edge in edges:
            self.link(edge, **fields)

    def letter(self, object_id: str) -> str:
        return next(letter for letter, found in self.ids.items() if found == object_id and not letter[-1].isdigit())

    def edge(self, edge_id: str) -> str:
        return next(edge for edge, found in self.edges.items() if found == edge_id)

    def roots(self, letters: str) -> list[str]:
        return [self.ids[letter] for letter in letters.split()]

    def expand(self, letters: str, **asked: Any) -> dict[str, Any]:
        """Return the response of an expansion."""
        answer = self.client.post("/v1/graph/expand", json={"roots": self.roots(letters), **asked})
        assert answer.status_code == 200, answer.text
        return answer.json()

    def refused(self, letters: str, **asked: Any) -> tuple[int, str, str]:
        """Return status, code and message of an error."""
        answer = self.client.post("/v1/graph/expand", json={"roots": self.roots(letters), **asked})
        error = answer.json()["error"]
        return answer.status_code, error["code"], error["message"]

    def near(self, letters: str, **asked: Any) -> str:
        """Return the nodes such as `a0 b1 c2`: letters with their depth, ordered by depth."""
        found = self.expand(letters, **asked)["nodes"]
        return " ".join(
            f"{letter}{depth}" for depth, letter in sorted((n["depth"], self.letter(n["id"])) for n in found)
        )

    def crossed(self, letters: str, **asked: Any) -> list[str]:
        """Return the edges, ordered by name."""
        return sorted(self.edge(edge["id"]) for edge in self.expand(letters, **asked)["edges"])

    def paths(self, letters: str, **asked: Any) -> list[str]:
        """Return the paths as words, ordered by name."""
        found = self.expand(letters, returnPaths=True, **asked)["paths"]
        return sorted("".join(self.letter(step) for step in path) for path in found)

    def traverse(self, letters: str, **asked: Any) -> dict[str, Any]:
        """Return one page of a traversal."""
        answer = self.client.post("/v1/graph/traverse", json={"root_ids": self.roots(letters), **asked})
        assert answer.status_code == 200, answer.text
        return answer.json()


def moment(text: str) -> datetime:
    return datetime.fromisoformat(text)


def ordered(ids: list[str]) -> list[str]:
    return sorted(ids, key=lambda found: UUID(found).int)
