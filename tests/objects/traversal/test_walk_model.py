"""Random graphs: the SQL functions and the model return the same nodes, edges, paths and limits."""

import json
from typing import Any

import httpx
import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from tests.long import ALL_HEALTH_CHECKS, sized
from tests.objects.traversal.shared import HEAD, RELATIONSHIP, Superuser, moment
from tests.objects.traversal.walk_model import Walk

NODE_TYPES = ("Alpha", "Beta", "Gamma")
EDGE_TYPES = ("knows", "likes", "owes")
LABELS = ("x", "y", "z")
WORDS = ("", "a", "ab", "b", "Äb", "%_", "a'b", '"', "\\", "null", "10", "😀")
YEARS = ("2020-01-01T00:00:00+00:00", "2021-01-01T00:00:00+00:00", "2022-06-01T00:00:00+00:00")
REGISTER = """
    INSERT INTO object_type_schemas (tenant_id, type, version, status, created_by, created_at)
    SELECT 'acme', t, 1, 'active', 'robin', now() FROM unnest(%s::text[]) t ON CONFLICT DO NOTHING"""
REGISTER_LINKS = """
    INSERT INTO relationship_type_schemas (tenant_id, type, version, status, created_by, created_at,
        allowed_src_types, allowed_dst_types, multiplicity_src, multiplicity_dst)
    SELECT 'acme', t, 1, 'active', 'robin', now(), '{}', '{}', 'many', 'many'
    FROM unnest(%s::text[]) t ON CONFLICT DO NOTHING"""


@pytest.fixture(scope="module")
def types(superuser: Superuser, keys: dict[str, str]) -> None:
    superuser.execute(REGISTER.encode(), (list(NODE_TYPES),))
    superuser.execute(REGISTER_LINKS.encode(), (list(EDGE_TYPES),))


def maybe(strategy: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return st.one_of(st.none(), strategy)


scalars = st.one_of(
    st.none(), st.booleans(), st.integers(-3, 12), st.sampled_from([0.5, 1.0, -2.25]), st.sampled_from(WORDS)
)
properties = st.fixed_dictionaries(
    {},
    optional={
        "rank": scalars,
        "title": scalars,
        "deep": st.one_of(
            scalars,
            st.lists(scalars, max_size=3),
            st.fixed_dictionaries({}, optional={"x": scalars, "0": scalars, "-1": scalars, "list": st.lists(scalars)}),
        ),
    },
)
times = st.tuples(maybe(st.sampled_from(YEARS)), maybe(st.sampled_from(YEARS))).map(
    lambda pair: tuple(None if one is None else moment(one) for one in pair)
)
gone = st.sampled_from([None] * 7 + [moment(YEARS[0])])


@st.composite
def graphs(draw: st.DrawFn) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """Return the stored objects and relationships, in any order."""
    nodes: list[dict[str, Any]] = []
    for node_id in draw(st.lists(st.uuids(version=4), min_size=1, max_size=8, unique=True)):
        start, end = draw(times)
        nodes.append(
            {
                "tenant": "acme", "project": draw(st.sampled_from(["default", "default", "default", None])),
                "canonical_id": str(node_id), "version_id": str(node_id), "version": draw(st.integers(1, 3)),
                "type": draw(st.sampled_from(NODE_TYPES)), "subtype": None, "key": None,
                "title": draw(maybe(st.sampled_from(WORDS))), "status": draw(maybe(st.sampled_from(["open", "done"]))),
                "labels": draw(st.lists(st.sampled_from(LABELS), max_size=2)), "effective_from": start,
                "effective_to": end, "properties": draw(properties), "evidence": None, "deleted_at": draw(gone),
                "suppression": 0,
            }
        )  # fmt: skip
    ids = [node["canonical_id"] for node in nodes]
    everywhere = {node["canonical_id"] for node in nodes if node["project"] is None}
    ends = st.tuples(st.sampled_from(ids), st.sampled_from(EDGE_TYPES), st.sampled_from(ids))
    edges: list[dict[str, Any]] = []
    for edge_id, (src, word, dst) in zip(
        draw(st.lists(st.uuids(version=4), min_size=16, max_size=16, unique=True)),
        draw(st.lists(ends, max_size=16, unique=True)),
        strict=False,
    ):
        start, end = draw(times)
        # What belongs to every project links only what does so too.
        shared = src in everywhere and dst in everywhere
        edges.append(
            {
                "tenant": "acme", "project": draw(st.sampled_from(["default", None])) if shared else "default",
                "canonical_id": str(edge_id), "type": word, "src": src, "dst": dst, "version": 1,
                "weight": draw(st.sampled_from([None, 0.1, 0.5, 0.5, 1.0])), "role_src": None,
                "role_dst": draw(maybe(st.sampled_from(WORDS))), "valid_from": start, "valid_to": end,
                "properties": draw(properties), "evidence": None, "deleted_at": draw(gone), "suppression": 0,
            }
        )  # fmt: skip
    return draw(st.permutations(nodes)), draw(st.permutations(edges))


lists = st.lists(scalars, min_size=1, max_size=3)
comparing = st.sampled_from(["greaterThan", "greaterThanOrEqual", "lessThan", "lessThanOrEqual", ">", ">=", "<", "<="])
conditions = st.one_of(
    st.tuples(st.sampled_from(["equals", "notEquals", "=", "==", "!=", "contains"]), scalars),
    st.tuples(comparing, scalars.filter(lambda value: value is not None and not isinstance(value, bool))),
    st.tuples(st.sampled_from(["startsWith", "endsWith", "contains"]), st.sampled_from(WORDS)),
    st.tuples(st.sampled_from(["in", "notIn"]), lists),
    st.tuples(st.just("exists"), st.booleans()),
)
moments = st.one_of(
    st.tuples(comparing, st.sampled_from(YEARS)),
    st.tuples(st.sampled_from(["equals", "notEquals"]), st.sampled_from(YEARS)),
    st.tuples(st.sampled_from(["in", "notIn"]), st.lists(st.sampled_from(YEARS), min_size=1)),
    st.tuples(st.just("exists"), st.booleans()),
)
PATHS = {
    "node": ["rank", "/rank", "properties.rank", "title", "/properties/title", "status", "type", "version", "labels",
             "/labels/0", "/labels/-1", "deep", "deep.x", "/deep/0", "/deep/list/1", "/deep/-1", "/deep/01",
             "none.none"],
    "edge": ["rank", "weight", "type", "role_dst", "version", "/deep/list/0", "deep.0", "/properties/rank"],
}  # fmt: skip


@st.composite
def filters(draw: st.DrawFn, kind: str) -> Any:
    starts = {"node": "effective_from", "edge": "valid_to"}[kind]
    predicates = draw(
        st.lists(
            st.one_of(st.tuples(st.sampled_from(PATHS[kind]), conditions), st.tuples(st.just(starts), moments)),
            max_size=2,
        )
    )
    if draw(st.booleans()):
        return [{"path": path, "operator": operator, "value": value} for path, (operator, value) in predicates]
    return {path: {operator: value} for path, (operator, value) in predicates}


def some(strategy: st.SearchStrategy[Any], chance: int = 4) -> st.SearchStrategy[Any]:
    """Draw from the strategy rarely, and None otherwise."""
    return st.integers(0, chance).flatmap(lambda picked: strategy if picked == 0 else st.none())


@st.composite
def hops(draw: st.DrawFn) -> dict[str, Any]:
    hop = {
        "direction": draw(st.sampled_from(["outbound", "inbound", "both", "both"])),
        "edgeTypes": draw(some(st.lists(st.sampled_from(EDGE_TYPES), max_size=2))),
        "nodeTypes": draw(some(st.lists(st.sampled_from(NODE_TYPES), max_size=2))),
        "labels": draw(some(st.lists(st.sampled_from(LABELS), max_size=2), 6)),
        "filters": draw(
            some(st.fixed_dictionaries({}, optional={"node": filters("node"), "edge": filters("edge")}), 2)
        ),
    }
    return {name: value for name, value in hop.items() if value is not None}


@st.composite
def questions(draw: st.DrawFn) -> dict[str, Any]:
    asked: dict[str, Any] = {
        "limitEdgesPerNode": draw(st.sampled_from([0, 0, 0, 1, 2, 5])),
        "limitNodes": draw(st.sampled_from([2000, 2000, 1, 2, 3, 5])),
        "limitEdges": draw(st.sampled_from([50_000, 50_000, 1, 3, 6])),
        "dedupe": draw(st.sampled_from(["node", "edge", "path"])),
        "distinctNodes": draw(st.booleans()),
        "returnPaths": draw(st.booleans()),
        "time": draw(some(st.sampled_from(YEARS), 2)),
    }
    if draw(st.integers(0, 2)) == 0:
        return asked | {"phases": draw(st.lists(hops(), min_size=1, max_size=4))}
    return asked | draw(hops()) | {"maxDepth": draw(st.integers(1, 4))}


def store(superuser: Superuser, nodes: list[dict[str, Any]], edges: list[dict[str, Any]]) -> None:
    """Replace the stored graph by this one."""

    def row(item: dict[str, Any]) -> dict[str, Any]:
        return item | {"properties": json.dumps(item["properties"])}

    with superuser.transaction(), superuser.cursor() as cursor:
        cursor.execute("DELETE FROM graph_relationships")
        cursor.execute("DELETE FROM graph_objects")
        cursor.executemany(HEAD.encode(), [row(node) for node in nodes])
        if edges:
            cursor.executemany(RELATIONSHIP.encode(), [row(edge) for edge in edges])


# Not shrunk: a graph that fails is small as it is, and shrinking it over HTTP takes minutes.
@pytest.mark.slow
@pytest.mark.usefixtures("types")
@settings(
    max_examples=sized(60, 250),
    deadline=None,
    suppress_health_check=ALL_HEALTH_CHECKS,
    database=None,
    phases=[Phase.generate],
)
@given(data=st.data())
def test_the_database_walks_as_the_model(superuser: Superuser, robin: httpx.Client, data: st.DataObject) -> None:
    nodes, edges = data.draw(graphs())
    store(superuser, nodes, edges)
    ids = [node["canonical_id"] for node in nodes]
    for _ in range(4):
        asked = data.draw(questions())
        roots = data.draw(st.lists(st.sampled_from(ids), min_size=1, max_size=3))
        expected = Walk(nodes, edges, asked).run(roots)
        answer = robin.post("/v1/graph/expand", json={"roots": roots, **asked})
        if expected is None:
            assert answer.status_code == 404, answer.text
            continue
        assert answer.status_code == 200, answer.text
        found = answer.json()
        assert [(node["id"], node["depth"]) for node in found["nodes"]] == expected.nodes
        assert [edge["id"] for edge in found["edges"]] == expected.edges
        if asked["returnPaths"]:
            assert found["paths"] == expected.paths
        meta = found["meta"]
        assert meta["overflowType"] == expected.overflow
        assert meta["truncated"] == (expected.overflow is not None)
        assert meta["depthReached"] == expected.nodes[-1][1]
        assert (meta["nodesReturned"], meta["edgesReturned"]) == (len(expected.nodes), len(expected.edges))
