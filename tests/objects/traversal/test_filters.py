"""Filters are parsed strictly, and no input leads to a 500."""

from typing import Any

import httpx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from app.errors import BadRequest
from app.objects.traversal.filters import read_filter
from tests.long import ALL_HEALTH_CHECKS, sized
from tests.objects.traversal.shared import Graph

ODD = (
    "'",
    "'; DROP TABLE graph_objects; --",
    "\\",
    "$1",
    "%L",
    "%s",
    "%(tenant)s",
    "$$",
    "{}",
    '"',
    "\u2028",
    "ä" * 300,
)


@pytest.mark.parametrize(
    ("given", "place"),
    [
        ("x", "filters.node"), (5, "filters.node"), (True, "filters.node"), ([1], "filters.node[0]"),
        ({"a": {}}, "filters.node.a"), ({"a": {"like": 1}}, "filters.node.a"), ({"a": [1]}, "filters.node.a"),
        ({"a": {"equals": {"b": 1}}}, "filters.node.a.equals"), ({"a": {"in": 1}}, "filters.node.a.in"),
        ({"a": {"in": []}}, "filters.node.a.in"), ({"a": {"in": [[1]]}}, "filters.node.a.in"),
        ({"a": {"in": [1] * 101}}, "filters.node.a.in"), ({"a": {"exists": 1}}, "filters.node.a.exists"),
        ({"a": {"startsWith": 1}}, "filters.node.a.startsWith"), ({"a": {">": None}}, "filters.node.a.greaterThan"),
        ({"a": {">": True}}, "filters.node.a.greaterThan"), ({"": 1}, "filters.node."),
        ({"a..b": 1}, "filters.node.a..b"),
        ({"/~2": 1}, "filters.node./~2"), ({"a" * 300: 1}, "filters.node."),
        ({"a.b.c.d.e.f.g.h.i": 1}, "filters.node."),
        ({"a": "x" * 2000}, "filters.node.a"), ({"a": 10**31}, "filters.node.a"), ({"a": 1e300}, "filters.node.a"),
        ({f"a{n}": 1 for n in range(33)}, "filters.node"), ([{"path": "a"}], "filters.node[0]"),
        ([{"path": "a", "operator": "equals"}], "filters.node[0]"),
        ([{"path": 1, "operator": "=", "value": 1}], "filters.node[0]"),
        ([{"path": "a", "operator": "=", "value": 1, "or": []}], "filters.node[0]"),
        ({"effective_from": {">": "soon"}}, "filters.node.effective_from"),
        ({"effective_from": {">": 1}}, "filters.node.effective_from"),
        ({"effective_from": {"contains": "2020"}}, "filters.node.effective_from"),
        ({"effective_from.year": {"exists": True}}, "filters.node.effective_from.year"),
    ],
)  # fmt: skip
def test_what_cannot_be_understood_is_refused_by_its_place(given: Any, place: str) -> None:
    with pytest.raises(BadRequest) as caught:
        read_filter(given, "node", "filters.node")
    assert caught.value.code == "filter_invalid"
    assert caught.value.message.startswith(place)


def test_refusals_over_http(graph: Graph) -> None:
    graph.put("a")
    assert graph.refused("a", filters={"node": {"x": {"like": 1}}})[:2] == (400, "filter_invalid")
    assert graph.refused("a", filters={"edge": [1]})[:2] == (400, "filter_invalid")
    phased = graph.refused("a", phases=[{}, {"filters": {"edge": {"x": {"y": 1}}}}])
    assert phased[1] == "filter_invalid"
    assert "phases[1].filters.edge.x" in phased[2]


def test_fields_before_properties(graph: Graph) -> None:
    graph.put("b", type="Thing", status="open", properties={"status": "done", "type": "Other", "rank": 3})
    graph.put("c", properties={"status": "open", "rank": 10, "name": "Äther"}, labels=["hot"])
    graph.link("a knows b", weight=0.9, properties={"role": "boss"})
    graph.link("a knows c", weight=0.2)

    def near(node: Any = None, edge: Any = None) -> str:
        return graph.near("a", filters={"node": node, "edge": edge}).removeprefix("a0").strip()

    assert near({"status": "open"}) == "b1 c1"
    assert near({"status": {"in": ["open"]}, "rank": {">": 5}}) == "c1"
    assert near({"/properties/status": "done"}) == "b1"
    assert near({"properties.type": {"exists": True}}) == "b1"
    assert near({"type": "Other"}) == ""
    assert near({"labels": {"contains": "hot"}}) == "c1"
    assert near({"rank": {"<": "5"}}) == ""
    assert near({"name": {"startsWith": "Ät"}}) == "c1"
    assert near({"name": {"notEquals": "x"}}) == "b1 c1"
    assert near(None, {"weight": {">=": 0.5}}) == "b1"
    assert near(None, {"role": "boss"}) == "b1"
    assert near(None, [{"path": "/weight", "operator": "lessThan", "value": 0.5}]) == "c1"
    assert near({"updated_at": {">": "2020-01-01T00:00:00Z"}, "created_at": {"exists": True}}) == "b1 c1"
    graph.put("d")
    graph.link("a knows d", properties={"weight": 7, "role_src": "boss"})
    assert near(None, {"weight": {">": 5}}) == near(None, {"role_src": "boss"}) == "d1"
    assert near(None, {"created_at": {">": "2000-01-01T00:00:00Z"}}) == "b1 c1 d1"


scalars = st.one_of(
    st.none(), st.booleans(), st.integers(), st.floats(allow_nan=False, allow_infinity=False), st.text(max_size=20),
    st.sampled_from(ODD),
)  # fmt: skip
junk = st.recursive(
    scalars,
    lambda inner: st.one_of(st.lists(inner, max_size=6), st.dictionaries(st.text(max_size=10), inner, max_size=6)),
    max_leaves=30,
)
operators = st.sampled_from(
    ["equals", "notEquals", "in", "notIn", "contains", ">", "<=", "exists", "endsWith", "=", "$where", "like", "'", ""]
)
paths = st.one_of(
    st.text(max_size=12), st.sampled_from(ODD),
    st.sampled_from(
        ["/", "/a/b", "a.b", "labels", "/labels/0", "status", "effective_from", "weight", "/x/-1/+2", "version.x"]
    ),
)  # fmt: skip
given_filters = st.one_of(
    junk,
    st.dictionaries(paths, st.one_of(junk, st.dictionaries(operators, junk, max_size=6)), max_size=6),
    st.lists(st.fixed_dictionaries({"path": paths, "operator": operators}, optional={"value": junk}), max_size=6),
)


@pytest.mark.slow
@settings(max_examples=sized(50, 200), deadline=None, suppress_health_check=ALL_HEALTH_CHECKS, database=None)
@given(node=given_filters, edge=given_filters)
def test_no_filter_breaks_anything(graph: Graph, node: Any, edge: Any) -> None:
    if not graph.ids:
        graph.put("b", labels=["x"], properties={"a": {"b": [1, "x", None]}, "x": "'"})
        graph.link("a knows b", weight=1.0, properties={"a": 1})
    answer = graph.client.post(
        "/v1/graph/expand", json={"roots": graph.roots("a"), "filters": {"node": node, "edge": edge}}
    )
    assert answer.status_code in (200, 400), answer.text
    if answer.status_code == 400:
        assert answer.json()["error"]["code"] in ("filter_invalid", "invalid_text"), answer.text


@pytest.mark.parametrize(
    "filters",
    [
        b'{"node": {"a": "\\u0000"}}', b'{"node": {"\\u0000": 1}}', b'{"node": {"a": "\\ud800"}}',
        b'{"node": {"a": 1e999}}',
        b'{"node": {"a": 1' + b"0" * 5000 + b"}}", b'{"node": ' + b"[" * 5000 + b"]" * 5000 + b"}",
        b'{"node": {"a": NaN}}',
        b'{"node": {"a": -0.0}}', b'{"node": {"a": 0.' + b"1" * 3000 + b"}}",
        b'{"node": {"\\ud83d\\ude00": {"contains": "\\ud83d"}}}',
    ],
)  # fmt: skip
def test_odd_bytes(graph: Graph, robin: httpx.Client, filters: bytes) -> None:
    graph.link("a knows b")
    body = b'{"roots": ["%b"], "filters": %b}' % (graph.ids["a"].encode(), filters)
    answer = robin.post("/v1/graph/expand", content=body, headers={"Content-Type": "application/json"})
    assert answer.status_code in (200, 400), answer.text


@pytest.mark.parametrize("text", ODD)
def test_injection_is_a_value(graph: Graph, text: str) -> None:
    graph.put("b", title=text, labels=[text[:100]], properties={text: text})
    graph.link("a knows b", role_src=text)
    asked: dict[str, Any] = {
        "node": [
            {"path": f"/properties/{text}"[:256], "operator": "exists", "value": len(text) < 240}
        ]
        + [
            {"path": "title", "operator": operator, "value": value}
            for operator, value in (
                ("equals", text), ("in", [text]), ("contains", text), ("startsWith", text), ("endsWith", text),
                (">=", text), ("<=", text), ("notEquals", f"{text}x"),
            )
        ],
        "edge": {"role_src": text},
    }  # fmt: skip
    assert graph.near("a", filters=asked, labels=[text[:100], "x"]) == "a0 b1"
    (node,) = graph.expand("b", maxDepth=1, limitNodes=1, include={"object": ["properties", "title", "labels"]})[
        "nodes"
    ]
    assert node["properties"] == {text: text}
    if len(text) < 200:
        (node,) = graph.expand("b", maxDepth=1, limitNodes=1, include={"object": [f"/properties/{text}"]})["nodes"]
        assert node["properties"] == {text: text}
    assert graph.refused("a", nodeTypes=[text[:100]])[:2] == (400, "type_unknown")


@pytest.mark.parametrize("value", [10**400, -(10**400), 10**31])
def test_numbers_beyond_all_reason(graph: Graph, value: int) -> None:
    graph.put("a")
    for kind in ("node", "edge"):
        assert graph.refused("a", filters={kind: {"x": value}})[:2] == (400, "filter_invalid")
