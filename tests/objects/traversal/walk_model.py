"""A simple model of walks over objects, to compare the SQL functions with."""

from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from app.objects.json_pointer import MISSING, parse_path, point_at

COLUMNS = {
    "node": ("type", "subtype", "key", "title", "status", "labels", "version", "effective_from", "effective_to"),
    "edge": ("type", "weight", "role_src", "role_dst", "valid_from", "valid_to", "version"),
}
TIMES = ("effective_from", "effective_to", "valid_from", "valid_to")
SYMBOLS = {
    "=": "equals", "==": "equals", "!=": "notEquals", ">": "greaterThan", ">=": "greaterThanOrEqual", "<": "lessThan",
    "<=": "lessThanOrEqual",
}  # fmt: skip
DIRECTIONS = {"outbound": ("out",), "inbound": ("in",), "both": ("out", "in")}


@dataclass
class Found:
    nodes: list[tuple[str, int]] = field(default_factory=list)
    edges: list[str] = field(default_factory=list)
    paths: list[list[str]] = field(default_factory=list)
    overflow: str | None = None


def number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def same(one: Any, other: Any) -> bool:
    return (type(one) is type(other) and one == other) or (number(one) and number(other) and one == other)


def holds(row: dict[str, Any], kind: str, path: str, operator: str, value: Any) -> bool:
    """Return whether one predicate holds for a row."""
    operator = SYMBOLS.get(operator, operator)
    first, *rest = parse_path(path)
    if first in COLUMNS[kind]:
        found = MISSING if row[first] is None else row[first]
        if first in ("key", "title", "status") and found is MISSING:
            found = row["properties"].get(first, MISSING)
        found = found if found is MISSING else point_at(found, tuple(rest))
    else:
        found = point_at(row["properties"], tuple(rest if first == "properties" else (first, *rest)))
    if first in TIMES and operator != "exists":
        value = [moment(item) for item in value] if operator in ("in", "notIn") else moment(value)
    match operator:
        case "exists":
            return (found is not MISSING) == value
        case "equals":
            return found is not MISSING and same(found, value)
        case "notEquals":
            return found is MISSING or not same(found, value)
        case "in":
            return found is not MISSING and any(same(found, item) for item in value)
        case "notIn":
            return found is MISSING or not any(same(found, item) for item in value)
        case "contains":
            if isinstance(found, list):
                return any(same(item, value) for item in found)
            return isinstance(found, str) and isinstance(value, str) and value in found
        case "startsWith":
            return isinstance(found, str) and found.startswith(value)
        case "endsWith":
            return isinstance(found, str) and found.endswith(value)
    if not ((number(found) and number(value)) or (type(found) is type(value) and isinstance(found, str | datetime))):
        return False
    return {
        "greaterThan": found > value, "greaterThanOrEqual": found >= value, "lessThan": found < value,
        "lessThanOrEqual": found <= value,
    }[operator]  # fmt: skip


def moment(text: str) -> datetime:
    return datetime.fromisoformat(text)


def passes(row: dict[str, Any], kind: str, given: Any) -> bool:
    """Return whether a row passes a filter."""
    if isinstance(given, list):
        return all(holds(row, kind, one["path"], one["operator"], one.get("value", True)) for one in given)
    for path, asked in (given or {}).items():
        predicates = asked.items() if isinstance(asked, dict) else [("equals", asked)]
        if not all(holds(row, kind, path, operator, value) for operator, value in predicates):
            return False
    return True


def within(row: dict[str, Any], start: str, end: str, time: str | None) -> bool:
    if time is None:
        return True
    at = moment(time)
    return (row[start] is None or row[start] <= at) and (row[end] is None or row[end] > at)


class Walk:
    """One walk over one graph."""

    def __init__(self, nodes: list[dict[str, Any]], edges: list[dict[str, Any]], asked: dict[str, Any]) -> None:
        self.asked = asked
        self.time = asked.get("time")
        self.nodes = {
            node["canonical_id"]: node
            for node in nodes
            if node["deleted_at"] is None and within(node, "effective_from", "effective_to", self.time)
        }
        self.edges = [
            edge for edge in edges if edge["deleted_at"] is None and within(edge, "valid_from", "valid_to", self.time)
        ]
        self.phased = asked.get("phases") is not None
        self.depth = len(asked["phases"]) if self.phased else asked.get("maxDepth", 2)
        self.cap, self.most = asked.get("limitNodes", 2000), asked.get("limitEdges", 50_000)
        self.fan = asked.get("limitEdgesPerNode", 100) or self.most
        self.found = Found()
        self.depths: dict[str, int] = {}
        self.parents: dict[str, str | None] = {}
        self.links: set[str] = set()
        self.crossed: list[tuple[int, str, str, str]] = []

    def step(self, level: int) -> dict[str, Any]:
        return self.asked["phases"][level - 1] if self.phased else self.asked

    def allows_node(self, node_id: str, level: int) -> bool:
        node, step = self.nodes.get(node_id), self.step(level)
        if node is None:
            return False
        filters = [step.get("filters", {}).get("node"), self.asked.get("filters", {}).get("node")]
        labels = step.get("labels") or self.asked.get("labels")
        return (
            (not step.get("nodeTypes") or node["type"] in step["nodeTypes"])
            and (not labels or bool(set(labels) & set(node["labels"])))
            and all(passes(node, "node", given) for given in filters)
        )

    def ways(self, here: str, level: int) -> list[tuple[dict[str, Any], str]]:
        step = self.step(level)
        sides = DIRECTIONS[step.get("direction", "both")]
        filters = [step.get("filters", {}).get("edge"), self.asked.get("filters", {}).get("edge")]
        found: list[tuple[dict[str, Any], str]] = []
        for edge in self.edges:
            if step.get("edgeTypes") and edge["type"] not in step["edgeTypes"]:
                continue
            if not all(passes(edge, "edge", given) for given in filters):
                continue
            if "out" in sides and edge["src"] == here:
                found.append((edge, edge["dst"]))
            elif "in" in sides and edge["dst"] == here:
                found.append((edge, edge["src"]))
        found.sort(key=lambda way: way[0]["canonical_id"], reverse=True)
        found.sort(key=weighed)
        return found

    def run(self, roots: list[str]) -> Found | None:
        roots = sorted({root for root in roots if root in self.nodes})
        if not roots:
            return None
        self.depths = dict.fromkeys(roots[: self.cap], 0)
        self.parents = dict.fromkeys(self.depths)
        if len(roots) > self.cap:
            self.found.overflow = "node"
        else:
            self.walk(roots)
        self.found.nodes = sorted(self.depths.items(), key=lambda item: (item[1], item[0]))
        self.tell(roots)
        return self.found

    def walk(self, front: list[str]) -> None:
        for level in range(1, self.depth + 1):
            met: list[tuple[dict[str, Any], str, str]] = []
            for here in sorted(front):
                ways = self.ways(here, level)
                if len(ways) > self.fan:
                    self.found.overflow = "edge"
                met += [(edge, here, there) for edge, there in ways[: self.fan]]
            tried = sorted({there for _, _, there in met if self.phased or there not in self.depths})
            reached = [there for there in tried if self.allows_node(there, level)]
            new = [there for there in reached if there not in self.depths]
            room = self.cap - len(self.depths)
            if len(new) > room:
                self.found.overflow = "node"
            dropped = set(new[room:])
            front = [there for there in reached if there not in dropped]
            kept = set(front) if self.phased else set(front) | self.depths.keys()
            for edge, here, there in sorted(met, key=lambda one: one[0]["canonical_id"], reverse=True):
                if there in kept:
                    self.crossed.append((level, edge["canonical_id"], here, there))
            for there in new[:room]:
                ways = [(here, *weighed((edge, "")), edge) for edge, here, end in met if end == there]
                ways.sort(key=lambda way: way[3]["canonical_id"], reverse=True)
                first = min(ways, key=lambda way: way[:3])
                self.depths[there], self.parents[there] = level, first[0]
                self.links.add(first[3]["canonical_id"])
            if self.found.overflow == "node" or not front:
                if self.found.overflow != "node" and len({edge for _, edge, _, _ in self.crossed}) > self.most:
                    self.found.overflow = "edge"
                return
            if len({edge for _, edge, _, _ in self.crossed}) > self.most:
                self.found.overflow = "edge"
                return

    def tell(self, roots: list[str]) -> None:
        dedupe = self.asked.get("dedupe", "node")
        paths: list[list[str]] = []
        pairs: set[tuple[str, str]] = set()
        if dedupe == "path":
            paths, pairs = self.simple_paths([root for root in roots if root in self.depths])
        first: dict[str, tuple[int, str, str]] = {}
        for level, edge, here, there in self.crossed:
            if self.asked.get("distinctNodes"):
                if edge not in self.links:
                    continue
            elif dedupe == "path" and (here, there) not in pairs:
                continue
            first[edge] = min(first.get(edge, (level, here, there)), (level, here, there))
        told = sorted(first, key=lambda edge: (first[edge][0], edge))[: self.most]
        self.found.edges = sorted(told)
        if dedupe == "node":
            paths = [self.way(node) for node, _ in self.found.nodes]
        elif dedupe == "edge":
            paths = [[*self.way(first[edge][1]), first[edge][2]] for edge in told]
        self.found.paths = sorted(paths, key=lambda path: (len(path), path))

    def way(self, node: str) -> list[str]:
        parent = self.parents[node]
        return [node] if parent is None else [*self.way(parent), node]

    def simple_paths(self, roots: list[str]) -> tuple[list[list[str]], set[tuple[str, str]]]:
        front = [[root] for root in roots]
        paths, pairs = list(front), set[tuple[str, str]]()
        for level in range(1, self.depth + 1):
            steps = {(here, there) for at, _, here, there in self.crossed if not self.phased or at == level}
            front = [
                [*path, there] for path in front for here, there in steps if here == path[-1] and there not in path
            ]
            paths += front
            pairs |= {(path[-2], path[-1]) for path in front}
        return paths, pairs


def weighed(way: tuple[dict[str, Any], str]) -> tuple[bool, float]:
    weight = way[0]["weight"]
    return (weight is None, -(weight or 0.0))
