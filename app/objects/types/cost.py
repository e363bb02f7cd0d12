"""The time that a check against a JSON Schema can take, bounded from its structure and from the document.

Times are nanoseconds, measured for the slowest documents of each keyword on two cores, and rounded up.
"""

from collections.abc import Iterable, Iterator
from itertools import islice
from typing import Any, cast
from urllib.parse import unquote, urldefrag, urljoin

import msgspec

from app.objects.json_pointer import escape, parse_pointer, point_at
from app.objects.types.patterns import match_size

_REFERENCES = ("$ref", "$dynamicRef", "$recursiveRef")
_META = ("https://json-schema.org/draft/", "http://json-schema.org/draft-")
_META_STEPS = 1000
# Costs are capped here.
_MAX_COST = 10**12
_ROOT = "urn:schema"
# Keywords by the values of the document to which their subschemas apply.
_SAME_VALUE = ("allOf", "anyOf", "oneOf", "not", "if", "then", "else")
_SAME_VALUE_NAMED = ("dependentSchemas", "dependencies")
_ALL_MEMBERS = ("additionalProperties", "unevaluatedProperties")
_ELEMENTS = ("items", "prefixItems", "contains", "additionalItems", "unevaluatedItems")
_NAMED = ("properties", "patternProperties", *_SAME_VALUE_NAMED, "$defs", "definitions")
# Evaluating these goes through the other subschemas again, and through theirs.
_UNEVALUATED = ("unevaluatedProperties", "unevaluatedItems")
_UNEVALUATED_FACTOR = 5
# Steps to compare with a fraction, or with a value within an array or object; other values are looked up.
_FRACTION_STEPS = 300
_NESTED_STEPS = 45
_LONG_NUMBER_STEPS = 50
# Nanoseconds for each byte of text.
_LENGTH_TIME = 1
_UNIQUE_TIME = 100
_FORMAT_TIME = 500
_CONTENT_TIME = 50
_PATTERN_TIME = 0.5
# Parts of the schema that a search for long texts visits; more take too long to add up.
_MAX_VISITS = 20_000


class Cost(msgspec.Struct, frozen=True):
    """What one check costs: the subschemas it evaluates, and what depends on texts and numbers."""

    steps: int
    returns: int = 0
    """How many subschemas refer back to a schema they are within."""
    text: float = 0
    """Nanoseconds for each byte of text."""
    multiples: int = 0
    """How often a number is divided."""
    alternatives: int = 0
    """How many anyOf and oneOf there are, whose errors contain the errors of each alternative."""


def _add(costs: list[Cost], *, factor: int, own: Cost) -> Cost:
    """Return a subschema's own cost and `factor` times those of the subschemas that it applies."""
    return Cost(
        min(_MAX_COST, own.steps + factor * sum(cost.steps for cost in costs)),
        min(_MAX_COST, own.returns + sum(cost.returns for cost in costs)),
        min(_MAX_COST, own.text + factor * sum(cost.text for cost in costs)),
        min(_MAX_COST, own.multiples + factor * sum(cost.multiples for cost in costs)),
        min(_MAX_COST, own.alternatives + factor * sum(cost.alternatives for cost in costs)),
    )


class UnknownReference(ValueError):
    """A reference to something outside the schema."""


def find_patterns(schema: Any) -> Iterator[tuple[str, str]]:
    """Yield each regular expression of a schema with the JSON Pointer of its place."""
    waiting: list[tuple[str, Any]] = [("", schema)]
    while waiting:
        place, node = waiting.pop()
        if isinstance(node, list):
            waiting += [(f"{place}/{index}", part) for index, part in enumerate(cast(list[Any], node))]
        if not isinstance(node, dict):
            continue
        members = cast(dict[str, Any], node)
        if isinstance(pattern := members.get("pattern"), str):
            yield f"{place}/pattern", pattern
        for name in (*_SAME_VALUE, *_ALL_MEMBERS, *_ELEMENTS, "propertyNames"):
            waiting.append((f"{place}/{name}", members.get(name)))
        for name in _NAMED:
            if isinstance(named := members.get(name), dict):
                for key, part in cast(dict[str, Any], named).items():
                    if name == "patternProperties":
                        yield f"{place}/{name}", key
                    waiting.append((f"{place}/{name}/{escape(key)}", part))


class SchemaCost:
    """The cost of a schema as a whole, and of the texts of one document."""

    def __init__(self, schema: Any, *, outside: bool = False) -> None:
        """Index the schema; with `outside` references may lead out of it, and cost nothing more."""
        self._schema = schema
        self._outside = outside
        self._known: dict[int, Cost] = {}
        self._places: dict[str, Any] = {_ROOT: schema}
        self._bases: dict[int, str] = {}
        self._dynamic: dict[str, list[Any]] = {}
        self._collect(schema, _ROOT)
        self.total = self._of(schema, _ROOT, ())

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

    def _of(self, node: Any, base: str, above: tuple[int, ...]) -> Cost:
        """Return the cost of applying this part of the schema."""
        here = id(node)
        if here in above:
            return Cost(1, 1)
        if not isinstance(node, dict):
            return Cost(1 + len(cast(list[Any], node)) if isinstance(node, list) else 1)
        if here in self._known:
            return self._known[here]
        members = cast(dict[str, Any], node)
        base = self._bases.get(here, base)
        factor = _UNEVALUATED_FACTOR if any(name in members for name in _UNEVALUATED) else 1
        path = (*above, here)
        found = [self._of(part, base, path) for _, _, part in _applied(members)]
        found += [
            part if isinstance(part, Cost) else self._of(part, base, path) for part in self._referenced(members, base)
        ]
        cost = self._known[here] = _add(found, factor=factor, own=_own_cost(members))
        return cost

    def _referenced(self, members: dict[str, Any], base: str) -> list[Any]:
        given = [target for name in _REFERENCES if isinstance(target := members.get(name), str)]
        return [place for target in given for place in self._targets(target, base)]

    def _targets(self, target: str, base: str) -> list[Any]:
        """Return the target of a reference, or all possible targets of a dynamic one."""
        address, fragment = urldefrag(_join(base, target))
        fragment = unquote(fragment)
        if fragment in self._dynamic:
            return self._dynamic[fragment]
        if address.startswith(_META):
            return [Cost(_META_STEPS)]
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

    def text_time(self, document: Any, *, limit: float) -> float:
        """Return the nanoseconds that the texts of a document take where they stand, or infinity beyond the limit."""
        time, visits = 0.0, 0
        waiting: list[tuple[Any, Any, str, frozenset[int]]] = []
        if self._has_text(self._schema, _ROOT):
            waiting.append((self._schema, document, _ROOT, frozenset()))
        while waiting:
            node, value, base, above = waiting.pop()
            visits += 1
            if time > limit or visits > _MAX_VISITS:
                return float("inf")
            if id(node) in above:
                continue
            members: dict[str, Any] = node
            base = self._bases.get(id(node), base)
            factor = _UNEVALUATED_FACTOR if any(name in members for name in _UNEVALUATED) else 1
            time += factor * _text_time(members, value)
            here = above | {id(node)}
            parts = [
                (part, inner)
                for keyword, name, part in _applied(members)
                if self._has_text(part, base)
                for inner in islice(_values(keyword, name, value), _MAX_VISITS)
            ]
            parts += [(part, value) for part in self._referenced(members, base) if self._has_text(part, base)]
            if visits + len(waiting) + factor * len(parts) > _MAX_VISITS:
                return float("inf")
            kept: frozenset[int] = frozenset()
            waiting += [(part, inner, base, here if inner is value else kept) for part, inner in parts] * factor
        return time

    def _has_text(self, node: Any, base: str) -> bool:
        """Return whether a subschema's cost depends on texts, also by a reference to a schema that it is within."""
        if not isinstance(node, dict):
            return False
        cost = self._of(node, base, ())
        return cost.text > 0 or cost.returns > 0


def _applied(members: dict[str, Any]) -> Iterator[tuple[str, str, Any]]:
    """Yield each subschema with the keyword that applies it, and the name of the member that it is for."""
    for keyword in (*_SAME_VALUE, *_ALL_MEMBERS, *_ELEMENTS, "propertyNames"):
        part = members.get(keyword)
        for one in cast(list[Any], part) if isinstance(part, list) else [] if part is None else [part]:
            yield keyword, "", one
    for keyword in ("properties", "patternProperties", *_SAME_VALUE_NAMED):
        if isinstance(named := members.get(keyword), dict):
            for name, part in cast(dict[str, Any], named).items():
                yield keyword, name, part


def _values(keyword: str, name: str, value: Any) -> Iterable[Any]:
    """Return the values of a document to which a keyword's subschema can apply."""
    if keyword in _SAME_VALUE or keyword in _SAME_VALUE_NAMED:
        return [value]
    if keyword in _ELEMENTS:
        return cast(list[Any], value) if isinstance(value, list) else []
    if not isinstance(value, dict):
        return []
    members = cast(dict[str, Any], value)
    if keyword == "properties":
        return [members[name]] if name in members else []
    return members if keyword == "propertyNames" else members.values()


def _own_cost(members: dict[str, Any]) -> Cost:
    """Return the cost of the keywords of one subschema, without those that apply others."""
    steps = 1 + sum(_steps(name, part) for name, part in members.items())
    compared: list[Any] = [members["const"]] if "const" in members else []
    compared += cast(list[Any], listed) if isinstance(listed := members.get("enum"), list) else []
    return Cost(
        steps + sum(_comparison_steps(value) for value in compared),
        text=_text_time(members, None),
        multiples=int("multipleOf" in members or "divisibleBy" in members),
        alternatives=int("anyOf" in members or "oneOf" in members),
    )


def _steps(name: str, part: Any) -> int:
    if isinstance(part, list) and name not in ("enum", "const"):
        return len(cast(list[Any], part))
    if name == "dependentRequired" and isinstance(part, dict):
        return sum(2 + _steps("", names) for names in cast(dict[str, Any], part).values())
    # Comparing with a number of many digits takes longer.
    return _LONG_NUMBER_STEPS if isinstance(part, int) and abs(part) >= 2**63 else 1


def _comparison_steps(value: Any) -> int:
    if isinstance(value, float):
        return _FRACTION_STEPS
    if isinstance(value, (dict, list)):
        inner: Any = cast(dict[str, Any], value).values() if isinstance(value, dict) else cast(list[Any], value)
        return _NESTED_STEPS + sum(_NESTED_STEPS + _comparison_steps(part) for part in inner)
    return 0


def _text_time(members: dict[str, Any], value: Any) -> float:
    """Return the nanoseconds of one subschema's own keywords for a value's texts; for None, those for each byte."""
    time = 0.0
    if value is None or isinstance(value, str):
        size = 1 if value is None else len(value.encode(errors="replace"))
        if isinstance(pattern := members.get("pattern"), str):
            time += size * match_size(pattern) * _PATTERN_TIME
        time += size * _LENGTH_TIME * sum(name in members for name in ("minLength", "maxLength"))
        time += size * _FORMAT_TIME * ("format" in members)
        time += size * _CONTENT_TIME * sum(name in members for name in ("contentEncoding", "contentMediaType"))
    if members.get("uniqueItems") is True and (value is None or isinstance(value, list)):
        time += _UNIQUE_TIME * (1 if value is None else len(msgspec.json.encode(value)))
    patterns = members.get("patternProperties")
    if isinstance(patterns, dict) and (value is None or isinstance(value, dict)):
        names = 1 if value is None else sum(len(name.encode()) + 1 for name in cast(dict[str, Any], value))
        time += names * _PATTERN_TIME * sum(match_size(pattern) for pattern in cast(dict[str, Any], patterns))
    return time


def _join(base: str, address: str) -> str:
    if address.startswith("#"):
        return f"{urldefrag(base).url}{address}"
    # Nothing is relative to a URN.
    return urljoin(base, address) if "://" in base else address
