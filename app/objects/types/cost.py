"""What a JSON Schema can cost, told from its form: references that double at each step hang whoever checks by them."""

from typing import Any, cast

import msgspec

from app.objects.pointers import escape

# Definitions cost where they are referred to; these hold plain values.
_NOT_APPLIED = frozenset({"$defs", "definitions", "enum", "const", "default", "examples"})
_REFERENCES = ("$ref", "$dynamicRef", "$recursiveRef")
# Beyond this the number itself does not matter.
_ENOUGH = 10**12


class Cost(msgspec.Struct, frozen=True):
    """Subschemas that one check passes, and how often it comes back to where it began, one level deeper."""

    steps: int
    returns: int


def measure_schema(schema: Any) -> Cost:
    """The cost of a schema; references outside of it count once."""
    return _Measure(schema).of(schema, ())


class _Measure:
    def __init__(self, schema: Any) -> None:
        self._known: dict[int, Cost] = {}
        self._places: dict[str, Any] = {"#": schema, "": schema}
        self._collect(schema, "#")

    def _collect(self, node: Any, path: str) -> None:
        """All places a reference may name: by pointer, by anchor and by id."""
        if isinstance(node, dict):
            members = cast(dict[str, Any], node)
            for name in ("$anchor", "$dynamicAnchor"):
                if isinstance(anchor := members.get(name), str):
                    self._places.setdefault(f"#{anchor}", node)
            if isinstance(address := members.get("$id"), str):
                self._places.setdefault(address.rpartition("/")[2], node)
            for name, member in members.items():
                self._place(member, f"{path}/{escape(name)}")
        elif isinstance(node, list):
            for index, member in enumerate(cast(list[Any], node)):
                self._place(member, f"{path}/{index}")

    def _place(self, node: Any, path: str) -> None:
        if isinstance(node, (dict, list)):
            self._places[path] = node
            self._collect(node, path)

    def of(self, node: Any, above: tuple[int, ...]) -> Cost:
        """What it costs to apply this part of the schema."""
        if id(node) in above:
            return Cost(1, 1)
        if id(node) in self._known:
            return self._known[id(node)]
        inner = (*above, id(node))
        steps, returns = 1, 0
        for part in self._parts(node):
            cost = self.of(part, inner)
            steps, returns = min(_ENOUGH, steps + cost.steps), min(_ENOUGH, returns + cost.returns)
        # What comes back to a place above is told by that place.
        found = Cost(steps, returns)
        self._known[id(node)] = found
        return found

    def _parts(self, node: Any) -> list[Any]:
        if isinstance(node, list):
            return [part for part in cast(list[Any], node) if isinstance(part, (dict, list))]
        if not isinstance(node, dict):
            return []
        members = cast(dict[str, Any], node)
        parts: list[Any] = [
            part for name, part in members.items() if name not in _NOT_APPLIED and isinstance(part, (dict, list))
        ]
        for name in _REFERENCES:
            target = members.get(name)
            if isinstance(target, str) and (found := self._places.get(target)) is not None:
                parts.append(found)
        return parts
