"""The cost of a check against a JSON Schema, computed from its structure: nested references can grow exponentially."""

from typing import Any, cast
from urllib.parse import unquote, urldefrag, urljoin

import msgspec

from app.objects.json_pointer import parse_pointer, point_at

# Definitions count where they are referenced; the others contain plain values.
_NOT_APPLIED = frozenset({"$defs", "definitions", "enum", "const", "default", "examples"})
_REFERENCES = ("$ref", "$dynamicRef", "$recursiveRef")
_META = ("https://json-schema.org/draft/", "http://json-schema.org/draft-")
_META_STEPS = 1000
# Costs are capped here.
_MAX_COST = 10**12
_ROOT = "urn:schema"


class Cost(msgspec.Struct, frozen=True):
    """The subschemas that one check evaluates, and how many of them refer back to a schema they are within."""

    steps: int
    returns: int


class UnknownReference(ValueError):
    """A reference to something outside the schema."""


def measure_schema(schema: Any, *, outside: bool = False) -> Cost:
    """Return the cost of a schema; with `outside` references may lead out of it, and cost nothing more."""
    return _Measure(schema, outside=outside).of(schema, _ROOT, ())


class _Measure:
    def __init__(self, schema: Any, *, outside: bool) -> None:
        self._outside = outside
        self._known: dict[int, Cost] = {}
        self._places: dict[str, Any] = {_ROOT: schema}
        self._bases: dict[int, str] = {}
        self._dynamic: dict[str, list[Any]] = {}
        self._collect(schema, _ROOT)

    def _collect(self, node: Any, base: str) -> None:
        """Index the targets of references by id and anchor, and the base address of each part."""
        if isinstance(node, list):
            for member in cast(list[Any], node):
                self._collect(member, base)
        if not isinstance(node, dict):
            return
        members = cast(dict[str, Any], node)
        if isinstance(address := members.get("$id"), str):
            base = _join(base, address)
            self._places.setdefault(urldefrag(base).url, node)
        for name in ("$anchor", "$dynamicAnchor"):
            if isinstance(anchor := members.get(name), str):
                self._places.setdefault(f"{urldefrag(base).url}#{anchor}", node)
                self._dynamic.setdefault(anchor, []).append(node)
        self._bases[id(members)] = base
        for member in members.values():
            self._collect(member, base)

    def of(self, node: Any, base: str, above: tuple[int, ...]) -> Cost:
        """Return the cost of applying this part of the schema."""
        if id(node) in above:
            return Cost(1, 1)
        if id(node) in self._known:
            return self._known[id(node)]
        base = self._bases.get(id(node), base)
        steps, returns = 1, 0
        for part in self._parts(node, base):
            cost = part if isinstance(part, Cost) else self.of(part, base, (*above, id(node)))
            steps, returns = min(_MAX_COST, steps + cost.steps), min(_MAX_COST, returns + cost.returns)
        self._known[id(node)] = Cost(steps, returns)
        return self._known[id(node)]

    def _parts(self, node: Any, base: str) -> list[Any]:
        if isinstance(node, list):
            return [part for part in cast(list[Any], node) if isinstance(part, (dict, list))]
        if not isinstance(node, dict):
            return []
        members = cast(dict[str, Any], node)
        applied = (part for name, part in members.items() if name not in _NOT_APPLIED)
        parts: list[Any] = [part for part in applied if isinstance(part, (dict, list))]
        for name in _REFERENCES:
            if isinstance(target := members.get(name), str):
                parts += self._targets(target, base)
        return parts

    def _targets(self, target: str, base: str) -> list[Any]:
        """Return the target of a reference, or all possible targets of a dynamic one."""
        address, fragment = urldefrag(_join(base, target))
        fragment = unquote(fragment)
        if fragment in self._dynamic:
            return self._dynamic[fragment]
        if address.startswith(_META):
            return [Cost(_META_STEPS, 0)]
        place = self._places.get(address)
        if place is not None and fragment.startswith("/"):
            try:
                place = point_at(place, parse_pointer(fragment))
            except ValueError:
                place = None
        elif fragment:
            place = self._places.get(f"{address}#{fragment}")
        if isinstance(place, (dict, list)):
            return [place]
        if isinstance(place, bool) or self._outside:
            return []
        raise UnknownReference(target)


def _join(base: str, address: str) -> str:
    if address.startswith("#"):
        return f"{urldefrag(base).url}{address}"
    # Nothing is relative to a URN.
    return urljoin(base, address) if "://" in base else address
