"""Who is near an entity, on graphs drawn by hand; sections are those of RECALL."""

import time
from collections.abc import Callable, Iterator
from typing import Any
from uuid import UUID, uuid4

import httpx
import pytest

from app.graph.service import FANOUT, MAX_NODES
from tests.conftest import Tenancy, TestDatabase
from tests.erasure.shared import revoke, tombstone
from tests.facts.shared import error, new, note, year
from tests.graph.shared import Graph, Superuser, moment, reached, walk
from tests.service import RunningService, start_service

PATH = "/v1/graph/neighbors"


@pytest.fixture
def graph(robin: httpx.Client) -> Graph:
    return Graph(robin)


def test_the_answer_has_the_form_that_is_documented(graph: Graph, robin: httpx.Client) -> None:
    (made,) = graph.draw("a knows b", confidence=0.8)
    answer = walk(robin, entity=graph.name("a"))
    assert answer == {
        "entity": {"entity_id": graph.id("a"), "canonical": graph.name("a"), "kind": None},
        "depth": 1,
        "neighbors": [
            {
                "entity": {"entity_id": graph.id("b"), "canonical": graph.name("b"), "kind": None},
                "relation": graph.relation("knows"),
                "hops": 1,
                "confidence": 0.8,
                "source_trust": made["source_trust"],
                "path": [
                    {
                        "from": graph.id("a"),
                        "relation": graph.relation("knows"),
                        "to": graph.id("b"),
                        "direction": "out",
                        "fact_id": made["fact_id"],
                    }
                ],
            }
        ],
        "next_cursor": None,
        "total_hint": 1,
        "truncated": False,
    }


def test_defaults_are_one_hop_both_ways_in_the_project_with_a_page_of_20(graph: Graph, robin: httpx.Client) -> None:
    graph.draw("a knows b", "c knows a", "b knows d")
    graph.draw("a knows e", confidence=0.05)
    graph.draw("a knows f", scope="org_shared")
    assert graph.near("a") == "b1 c1"
    graph.draw(*(f"a likes n{number}" for number in range(30)))
    answer = robin.get(PATH, params={"entity": graph.name("a")}).json()
    assert (len(answer["neighbors"]), answer["total_hint"]) == (20, 32)
    assert answer["next_cursor"] is not None


@pytest.mark.parametrize(
    ("depth", "near"), [(1, "b1"), (2, "b1 c2"), (3, "b1 c2 d3")], ids=["one hop", "two hops", "three hops"]
)
def test_20_1_5_depth_counts_hops(graph: Graph, depth: int, near: str) -> None:
    graph.draw("a to b", "b to c", "c to d", "d to e")
    assert graph.near("a", depth=depth) == near


@pytest.mark.parametrize("depth", [4, 5, 99, 10**30, 0, -1], ids=lambda depth: str(depth)[:8])
def test_20_1_5_a_depth_beyond_three_is_refused(graph: Graph, robin: httpx.Client, depth: int) -> None:
    graph.draw("a to b")
    answer = robin.get(PATH, params={"entity": graph.name("a"), "depth": depth})
    assert error(answer) == (400, "graph_depth_exceeded")
    assert answer.json()["error"]["message"].startswith("depth: ")


@pytest.mark.parametrize(
    ("name", "choices"),
    [
        ("scope", "agent_private, company, local, org_shared, project_shared, public, team, team_shared"),
        ("direction", "both, in, out"),
    ],
)
def test_a_wrong_word_is_told_the_right_ones(robin: httpx.Client, name: str, choices: str) -> None:
    answer = robin.get(PATH, params={"entity": "a", name: "zz"})
    assert error(answer) == (400, "invalid_request")
    assert answer.json()["error"]["message"] == f"{name}: one of {choices}"
    assert answer.json()["error"]["details"]["fields"] == [
        {"field": name, "message": f"one of {choices}", "in": "query"}
    ]


def test_direction_is_chosen_and_told(graph: Graph) -> None:
    graph.draw("a knows b", "c likes a", "c knows d", "b likes e", "f likes b")
    assert graph.near("a", direction="out", depth=3) == "b1 e2"
    assert graph.near("a", direction="in", depth=3) == "c1"
    assert graph.near("a", direction="both", depth=3) == "b1 c1 d2 e2 f2"
    assert graph.path("a", "d", depth=2) == "a <-likes- c -knows-> d"
    assert graph.path("a", "f", depth=2) == "a -knows-> b <-likes- f"


def test_circles_and_self_loops_end(graph: Graph) -> None:
    graph.draw("a to b", "b to c", "c to a", "a to a", "b to b", "b to a")
    assert graph.near("a", depth=3) == "b1 c1"
    assert graph.near("a", depth=3, direction="out") == "b1 c2"
    lonely = Graph(graph.client)
    lonely.draw("a to a")
    assert lonely.near("a", depth=3) == ""


def test_20_1_5_each_is_reached_once_by_the_fewest_hops(graph: Graph) -> None:
    graph.draw("a long b", "b long c", "c long d", confidence=1.0)
    graph.draw("a short d", confidence=0.2)
    assert graph.near("a", depth=3) == "b1 d1 c2"
    assert graph.path("a", "d", depth=3) == "a -short-> d"
    assert graph.path("a", "c", depth=3) == "a -long-> b -long-> c"


def test_20_1_5_parallel_edges_are_one_neighbour_by_the_surest(graph: Graph, robin: httpx.Client) -> None:
    graph.draw("a weak b", confidence=0.3)
    graph.draw("b strong a", confidence=0.9)
    graph.draw("a middle b", confidence=0.6)
    (found,) = walk(robin, entity=graph.name("a"))["neighbors"]
    assert (found["relation"], found["confidence"]) == (graph.relation("strong"), 0.9)
    assert found["path"][0]["direction"] == "in"


def test_paths_of_equal_length_are_decided_by_the_last_fact_then_by_entity(graph: Graph) -> None:
    graph.draw("a to b", "a to c", "a to e")
    graph.draw("b to d", confidence=0.5)
    graph.draw("c to d", confidence=0.7)
    graph.draw("e to d", confidence=0.7)
    first = min("c", "e", key=lambda letter: UUID(graph.id(letter)))
    for _ in range(3):
        assert graph.path("a", "d", depth=2) == f"a -to-> {first} -to-> d"


def test_the_same_question_has_the_same_answer(graph: Graph, robin: httpx.Client) -> None:
    graph.draw(*(f"{left} to {right}" for left in "abcdefgh" for right in "efghijkl" if left != right))
    answers = [walk(robin, entity=graph.name("a"), depth=3) for _ in range(5)]
    assert all(answer == answers[0] for answer in answers)
    order = [(item["hops"], UUID(item["entity"]["entity_id"])) for item in answers[0]["neighbors"]]
    assert order == sorted(order)


def test_20_1_5_unsure_edges_are_pruned_before_the_walk(graph: Graph) -> None:
    graph.draw("a to b", confidence=0.4)
    graph.draw("b to c", "a to d", confidence=0.9)
    graph.draw("d to c", confidence=0.05)
    assert graph.near("a", depth=2) == "b1 d1 c2"
    assert graph.near("a", depth=3, min_confidence=0.5) == "d1", "what is too unsure leads nowhere"
    assert graph.near("a", depth=2, min_confidence=0.4) == "b1 d1 c2"
    assert graph.near("a", depth=1, min_confidence=0.95) == ""


def test_20_1_5_untrusted_edges_are_pruned_before_the_walk(graph: Graph, superuser: Superuser) -> None:
    doubtful, _, good = graph.draw("a to b", "b to c", "a to d")
    for made, trust in ((doubtful, 0.2), (good, 0.9)):
        superuser.execute("UPDATE entity_edges SET source_trust = %s WHERE edge_id = %s", (trust, made["fact_id"]))
    assert graph.near("a", depth=2) == "b1 d1 c2"
    assert graph.near("a", depth=2, min_trust=0.3) == "d1"
    found = walk(graph.client, entity=graph.name("a"))["neighbors"]
    assert {item["source_trust"] for item in found} == {0.2, 0.9}


@pytest.mark.parametrize("scope", ["agent_private", "project_shared", "org_shared", "public"])
def test_20_1_5_a_walk_never_leaves_its_scope(graph: Graph, scope: str) -> None:
    scopes = ("agent_private", "project_shared", "org_shared", "public")
    for number, other in enumerate(scopes):
        graph.draw(f"a to {other[0]}{number}", f"{other[0]}{number} to shared", scope=other)
        # A bridge of another scope leads on from there.
        graph.draw(f"{other[0]}{number} to beyond", scope=scopes[number - 1])
    own = f"{scope[0]}{scopes.index(scope)}"
    found = walk(graph.client, entity=graph.name("a"), depth=3, scope=scope)["neighbors"]
    letters = {graph.letter(item["entity"]["entity_id"]) for item in found}
    assert letters == {own, "shared"}


@pytest.mark.parametrize(
    ("synonym", "scope"), [("local", "agent_private"), ("team", "project_shared"), ("company", "org_shared")]
)
def test_synonyms_of_scopes(graph: Graph, synonym: str, scope: str) -> None:
    graph.draw("a to b", scope=scope)
    assert graph.near("a", scope=synonym) == "b1"


def test_an_entity_is_named_in_any_way(graph: Graph, robin: httpx.Client) -> None:
    graph.draw("a to b")
    alias = new("alias")
    robin.post(f"/v1/entities/{graph.id('a')}/aliases", json={"alias": alias})
    for text in (graph.name("a"), f"  {graph.name('a').upper()} ", alias, graph.id("a"), graph.id("a").upper()):
        assert reached(walk(robin, entity=text)["neighbors"]) == [graph.id("b")]
    assert reached(walk(robin, entity_uri=graph.name("a"))["neighbors"]) == [graph.id("b")]


def test_an_entity_without_edges_has_no_neighbours(robin: httpx.Client) -> None:
    made = robin.post("/v1/entities", json={"canonical": new("alone")}).json()["entity"]
    answer = walk(robin, entity=made["entity_id"], depth=3)
    assert (answer["neighbors"], answer["total_hint"], answer["next_cursor"]) == ([], 0, None)


def test_a_name_that_fits_several_is_answered_with_the_candidates(graph: Graph, robin: httpx.Client) -> None:
    graph.draw("a to b")
    alias = new("alias")
    for letter in "ab":
        robin.post(f"/v1/entities/{graph.id(letter)}/aliases", json={"alias": alias})
    answer = robin.get(PATH, params={"entity": alias})
    assert error(answer) == (409, "entity_ambiguous")
    candidates = answer.json()["error"]["details"]["candidates"]
    assert {item["entity_id"] for item in candidates} == {graph.id("a"), graph.id("b")}


def test_unknown_hidden_and_foreign_entities_are_alike(
    graph: Graph, robin: httpx.Client, elsewhere: httpx.Client, rival: httpx.Client, admin: httpx.Client
) -> None:
    graph.draw("a to b", "h to b")
    tombstone(admin, graph.name("h"))
    asked = [
        (robin, new("nobody")),
        (robin, str(uuid4())),
        (robin, graph.name("h")),
        (robin, graph.id("h")),
        (elsewhere, graph.name("a")),
        (elsewhere, graph.id("a")),
        (rival, graph.name("a")),
        (rival, graph.id("a")),
    ]
    answers = [client.get(PATH, params={"entity": name}) for client, name in asked]
    # As facts, cards and recall answer for a name that is unknown or hidden.
    nothing = {"entity": None, "depth": 1, "neighbors": [], "next_cursor": None, "total_hint": 0, "truncated": False}
    assert [(answer.status_code, answer.json()) for answer in answers] == [(200, nothing)] * len(asked)


def test_graphs_of_projects_and_tenants_are_apart(
    graph: Graph, elsewhere: httpx.Client, rival: httpx.Client, robin: httpx.Client
) -> None:
    graph.draw("a to b", "b to c", scope="public")
    for client in (elsewhere, rival):
        other = Graph(client)
        other.mark = graph.mark
        other.draw("b to x", "a to y", scope="public")
        assert other.near("a", depth=3, scope="public") == "y1"
    assert graph.near("a", depth=3, scope="public") == "b1 c2"
    assert walk(robin, entity=graph.name("a"), depth=3, scope="public")["total_hint"] == 2


def test_private_facts_are_walked_by_their_own_agent_alone(graph: Graph, wren: httpx.Client) -> None:
    graph.draw("a to b", "b to c", scope="agent_private")
    graph.draw("a to w", "w to c", scope="agent_private", client=wren)
    assert graph.near("a", depth=3, scope="agent_private") == "b1 c2"
    assert graph.near("a", depth=3, scope="agent_private", client=wren) == "w1 c2"
    assert graph.near("a", depth=3) == ""


def test_gardens_are_walked_by_members_alone(graph: Graph, robin: httpx.Client, wren: httpx.Client) -> None:
    made = robin.post("/v1/gardens", json={"slug": f"g{uuid4().hex[:8]}"}).json()["garden"]["garden_id"]
    graph.draw("a to b", "c to d")
    graph.draw("b to c", garden_id=made)
    assert graph.near("a", depth=3) == "b1 c2 d3"
    assert graph.near("a", depth=3, client=wren) == "b1", "a bridge in a garden is none for strangers"
    assert graph.near("d", depth=3, client=wren) == "c1"
    robin.put(f"/v1/gardens/{made}/members/wren", json={"role": "reader"})
    assert graph.near("a", depth=3, client=wren) == "b1 c2 d3"
    robin.delete(f"/v1/gardens/{made}/members/wren")
    assert graph.near("a", depth=3, client=wren) == "b1"


def test_a_tombstone_in_the_middle_is_not_walked_through(
    graph: Graph, admin: httpx.Client, robin: httpx.Client
) -> None:
    graph.draw("a to m", "m to z", "a to b", "b to c", "c to z")
    assert graph.near("a", depth=3) == "b1 m1 c2 z2"
    made = tombstone(admin, graph.name("m"))
    assert graph.near("a", depth=3) == "b1 c2 z3", "the longer way is taken"
    assert walk(robin, entity=graph.name("a"), depth=3)["total_hint"] == 3
    revoke(admin, made)
    assert graph.near("a", depth=3) == "b1 m1 c2 z2"


def test_a_tombstone_in_one_scope_leaves_the_others(graph: Graph, admin: httpx.Client) -> None:
    graph.draw("a to m", "m to z")
    graph.draw("a to m", "m to z", scope="org_shared")
    made = tombstone(admin, graph.name("m"), scope="org_shared")
    assert graph.near("a", depth=2) == "m1 z2"
    assert graph.near("a", depth=2, scope="org_shared") == ""
    revoke(admin, made)
    assert graph.near("a", depth=2, scope="org_shared") == "m1 z2"


def test_tombstones_hide_from_the_past_too(graph: Graph, admin: httpx.Client, superuser: Superuser) -> None:
    graph.draw("a to m", "m to z")
    then = moment(superuser)
    tombstone(admin, graph.name("m"))
    assert graph.near("a", depth=2, as_of=then) == ""
    assert graph.near("a", depth=2, as_of=then, client=admin) == ""


def test_an_administrator_who_looks_back_is_told_of_holds(
    graph: Graph, admin: httpx.Client, robin: httpx.Client, superuser: Superuser
) -> None:
    graph.draw("a to m", "m to z", "a to b")
    then = moment(superuser)
    made = tombstone(admin, graph.name("m"), legal_hold=True)
    assert graph.near("a", depth=2, as_of=then) == "b1"
    assert graph.near("a", depth=2, client=admin) == "b1", "now nobody sees it"
    answer = walk(admin, entity=graph.name("a"), depth=2, as_of=then)
    shown = {graph.letter(item["entity"]["entity_id"]): item.get("tombstone_status") for item in answer["neighbors"]}
    assert shown == {"b": None, "m": "legal_hold", "z": "legal_hold"}
    (told,) = answer["tombstone_notices"]
    assert (told["tombstone_id"], told["legal_hold"]) == (made["tombstone_id"], True)
    assert "tombstone_notices" not in walk(robin, entity=graph.name("a"), depth=2, as_of=then)
    of_the_held = walk(admin, entity=graph.id("m"), as_of=then)
    assert [item["tombstone_id"] for item in of_the_held["tombstone_notices"]] == [made["tombstone_id"]]
    row = superuser.execute(
        "SELECT details FROM audit_log WHERE event_type = 'fact_read' AND details::text LIKE %s",
        (f"%{made['tombstone_id']}%",),
    ).fetchall()
    assert len(row) == 2, "each reading is on record"


@pytest.fixture(scope="module")
def guarded(database: TestDatabase) -> Iterator[RunningService]:
    """A service that denies administrators the past of whatever is held."""
    with start_service(database.url("app"), LEGAL_HOLD_DENIED="*") as running:
        yield running


def test_a_deployment_may_deny_the_past_of_what_is_held(
    graph: Graph, admin: httpx.Client, guarded: RunningService, superuser: Superuser
) -> None:
    graph.draw("a to m", "a to b")
    then = moment(superuser)
    tombstone(admin, graph.name("m"), legal_hold=True)
    with httpx.Client(base_url=guarded.url, headers=admin.headers, timeout=30) as strict:
        for name in (graph.name("a"), graph.id("m")):
            answer = strict.get(PATH, params={"entity": name, "as_of": then})
            assert error(answer) == (403, "as_of_legal_hold_forbidden")
        assert strict.get(PATH, params={"entity": graph.name("b"), "as_of": then}).status_code == 200


def test_merged_entities_are_one_node(graph: Graph, robin: httpx.Client) -> None:
    graph.draw("a to b", "c to d", "a to c")
    merged = robin.post(f"/v1/entities/{graph.id('b')}/merge", json={"into": graph.id("c")})
    assert merged.status_code == 200, merged.text
    assert graph.near("a", depth=2) == "c1 d2"
    by_old_id = walk(robin, entity=graph.id("b"), depth=1)
    assert by_old_id["entity"]["entity_id"] == graph.id("c")
    assert set(reached(by_old_id["neighbors"])) == {graph.id("a"), graph.id("d")}
    assert walk(robin, entity=graph.name("b"))["entity"]["entity_id"] == graph.id("c")


def test_two_ends_of_an_edge_that_become_one_are_no_neighbours(graph: Graph, robin: httpx.Client) -> None:
    graph.draw("a to b", "b to c")
    robin.post(f"/v1/entities/{graph.id('a')}/merge", json={"into": graph.id("b")})
    assert graph.near("b", depth=3) == "c1"


def test_retracted_edges_are_not_walked(graph: Graph, superuser: Superuser) -> None:
    graph.draw("a to b", "b to c", confidence=0.6)
    before = moment(superuser)
    graph.retract("a to b")
    assert graph.near("a", depth=2) == ""
    assert graph.near("a", depth=2, min_confidence=0.0) == ""
    assert graph.near("a", depth=2, as_of=before) == "b1 c2"
    (found, _) = walk(graph.client, entity=graph.name("a"), depth=2, as_of=before)["neighbors"]
    assert found["confidence"] == 0.6, "as sure as it was"
    assert graph.near("a", depth=2, as_of=before, min_confidence=0.7) == ""


def test_superseded_edges_give_way(graph: Graph, robin: httpx.Client, superuser: Superuser) -> None:
    robin.post("/v1/predicates", json={"name": graph.relation("lives"), "cardinality": "single"})
    graph.draw("a lives b", valid_from=year(2010))
    before = moment(superuser)
    graph.draw("a lives c", valid_from=year(2020))
    assert graph.near("a") == "c1"
    assert graph.near("a", valid_at=year(2015)) == "b1"
    assert graph.near("a", as_of=before) == "b1"
    assert graph.near("a", as_of=before, valid_at=year(2021)) == "b1"
    assert graph.near("a", as_of=moment(superuser), valid_at=year(2021)) == "c1"


def test_both_times_are_asked_of_every_edge_of_a_path(graph: Graph, superuser: Superuser) -> None:
    graph.draw("a to b", valid_from=year(2000), valid_to=year(2010))
    first = moment(superuser)
    graph.draw("b to c", valid_from=year(2005), valid_to=year(2015))
    graph.draw("b to d", valid_from=year(2999))
    assert graph.near("a", depth=2) == ""
    assert graph.near("a", depth=2, valid_at=year(2002)) == "b1"
    assert graph.near("a", depth=2, valid_at=year(2007)) == "b1 c2"
    assert graph.near("b", valid_at=year(2012)) == "c1"
    assert graph.near("b", valid_at=year(3000)) == "d1"
    assert graph.near("a", depth=2, as_of=first, valid_at=year(2007)) == "b1"
    assert graph.near("a", depth=2, as_of=moment(superuser), valid_at=year(2007)) == "b1 c2"


def test_ends_are_read_as_they_were_recorded(graph: Graph, robin: httpx.Client, superuser: Superuser) -> None:
    (made,) = graph.draw("a to b", valid_from=year(2000))
    opened = moment(superuser)
    robin.patch(f"/v1/facts/{made['fact_id']}", json={"valid_to": year(2010)})
    ended = moment(superuser)
    robin.patch(f"/v1/facts/{made['fact_id']}", json={"valid_to": None})
    assert graph.near("a") == "b1"
    assert graph.near("a", as_of=ended) == ""
    assert graph.near("a", as_of=ended, valid_at=year(2005)) == "b1"
    assert graph.near("a", as_of=opened) == "b1"


def test_confidence_is_read_as_it_was(graph: Graph, robin: httpx.Client, superuser: Superuser) -> None:
    graph.draw("a to b", confidence=1.0)
    sure = moment(superuser)
    graph.draw("a to b", confidence=0.2, evidence=[note(robin)])
    (now,) = walk(robin, entity=graph.name("a"))["neighbors"]
    (then,) = walk(robin, entity=graph.name("a"), as_of=sure)["neighbors"]
    assert (now["confidence"], then["confidence"]) == (pytest.approx(0.6), 1.0)
    assert graph.near("a", min_confidence=0.9) == ""
    assert graph.near("a", min_confidence=0.9, as_of=sure) == "b1"


def test_before_it_was_known_there_is_no_such_entity(graph: Graph, robin: httpx.Client, superuser: Superuser) -> None:
    before = moment(superuser)
    graph.draw("a to b")
    assert walk(robin, entity=graph.name("a"), as_of=before)["entity"] is None


def test_now_and_as_of_now_are_the_same(graph: Graph, robin: httpx.Client, superuser: Superuser) -> None:
    graph.draw(*(f"{left} to {right}" for left in "abcd" for right in "cdefg" if left != right), confidence=0.5)
    graph.draw("a likes e", "g likes h", confidence=0.9)
    graph.retract("b to f")
    now = walk(robin, entity=graph.name("a"), depth=3)
    assert walk(robin, entity=graph.name("a"), depth=3, as_of=moment(superuser)) == now


def test_looking_back_needs_its_scope_and_respects_the_floor(
    graph: Graph, tenancy: Tenancy, as_key: Callable[..., httpx.Client], robin: httpx.Client, superuser: Superuser
) -> None:
    graph.draw("a to b")
    then = moment(superuser)
    present = as_key(tenancy.key("acme", agent_id="robin", scopes=["graph:read"]))
    assert walk(present, entity=graph.name("a"))["total_hint"] == 1
    assert error(present.get(PATH, params={"entity": graph.name("a"), "as_of": then})) == (403, "missing_scope")
    future = robin.get(PATH, params={"entity": graph.name("a"), "as_of": year(2999)})
    assert error(future) == (400, "as_of_future")
    project = "tenant_id = 'acme' AND project_id = 'default'"
    superuser.execute(
        f"UPDATE projects SET settings = settings || jsonb_build_object('as_of_floor', %s::text) WHERE {project}",
        (moment(superuser),),
    )
    try:
        refused = robin.get(PATH, params={"entity": graph.name("a"), "as_of": then})
        assert error(refused) == (400, "as_of_before_retention_floor")
    finally:
        superuser.execute(f"UPDATE projects SET settings = settings - 'as_of_floor' WHERE {project}")


def test_a_key_needs_graph_read(tenancy: Tenancy, graph: Graph, as_key: Callable[..., httpx.Client]) -> None:
    graph.draw("a to b")
    client = as_key(tenancy.key("acme", agent_id="robin", scopes=["facts:read", "graph:write"]))
    answer = client.get(PATH, params={"entity": graph.name("a")})
    assert error(answer) == (403, "missing_scope")
    assert answer.json()["error"]["details"]["needs"] == ["graph:read"]


@pytest.mark.parametrize(
    ("words", "near"),
    [
        (["knows"], "b1"),
        (["KNOWS "], "b1"),
        (["knows", "works at"], "b1 d1"),
        (["work*"], "d1 e1 f1"),
        (["works *"], "d1 e1"),
        (["WORKS at*"], "d1"),
        (["work*", "knows"], "b1 d1 e1 f1"),
        (["*"], "b1 c1 d1 e1 f1"),
        (["nothing*"], ""),
        (["nothing"], ""),
        (["know"], ""),
    ],
)
def test_20_1_5_relations_are_filtered_by_name_or_beginning(robin: httpx.Client, words: list[str], near: str) -> None:
    graph, mark = Graph(robin), uuid4().hex[:8]
    edges = {"b": "knows", "c": "likes", "d": "works at", "e": "works for", "f": "workshop of"}
    for letter, relation in edges.items():
        fact = {
            "subject": graph.name("a"),
            "predicate": f"{mark} {relation}",
            "object": {"entity": graph.name(letter)},
        }
        made = robin.post("/v1/facts", json=fact).json()["fact"]
        graph.entities[letter] = made["object"]["entity"]["entity_id"]
    asked = ",".join(word if word == "*" else f"{mark} {word}" for word in words)
    assert graph.near("a", relation_filter=asked) == near


def test_20_1_5_only_these_relations_are_walked(graph: Graph) -> None:
    graph.draw("a knows b", "b knows c", "b likes d", "d knows e")
    assert graph.near("a", depth=3, relation_filter=graph.relation("knows")) == "b1 c2"


def test_relations_are_named_by_alias_and_id(graph: Graph, robin: httpx.Client) -> None:
    made, _ = graph.draw("a knows b", "a likes c")
    predicate_id, alias = made["predicate"]["predicate_id"], new("alias")
    answer = robin.post(f"/v1/predicates/{predicate_id}/aliases", json={"alias": alias})
    assert answer.status_code == 201, answer.text
    assert graph.near("a", relation_filter=alias) == "b1"
    assert graph.near("a", relation_filter=predicate_id) == "b1"
    assert graph.near("a", relation_filter=f"{alias[:-3]}*") == "", "a beginning is one of a name"
    assert graph.near("a", relation_filter=f"{alias},{graph.relation('likes')}") == "b1 c1"


@pytest.mark.parametrize(
    "text",
    [
        ".*", "know.*", "kno*s", "*knows", "knows**", "**", "(knows)", "knows|likes", "^knows", "knows$", "know[sn]",
        "knows?", "knows+", "kno{2}ws", "know\\w", "knows,li*es", "", " ", ",", "knows,", "knows,,likes", "k" * 201,
        ",".join("k" * 51), "\u200b", "\u200b*",
    ],
)  # fmt: skip
def test_20_1_5_patterns_beyond_a_beginning_are_refused(graph: Graph, robin: httpx.Client, text: str) -> None:
    graph.draw("a knows b")
    answer = robin.get(PATH, params={"entity": graph.name("a"), "relation_filter": text})
    assert error(answer) == (400, "invalid_relation_filter")
    assert answer.json()["error"]["message"].startswith("relation_filter: ")


@pytest.mark.parametrize(
    ("params", "field", "code"),
    [
        ({}, "entity", "invalid_request"),
        ({"entity": ""}, "entity", "invalid_entity"),
        ({"entity": " \t"}, "entity", "invalid_entity"),
        ({"entity": "user:"}, "entity", "invalid_entity"),
        ({"entity": "x" * 513}, "entity", "invalid_request"),
        ({"entity": "a", "entity_uri": "b"}, "entity", "invalid_request"),
        ({"depth": "two"}, "depth", "invalid_request"),
        ({"depth": "1.5"}, "depth", "invalid_request"),
        ({"scope": "everywhere"}, "scope", "invalid_request"),
        ({"direction": "up"}, "direction", "invalid_request"),
        ({"min_confidence": "1.1"}, "min_confidence", "invalid_request"),
        ({"min_confidence": "-0.1"}, "min_confidence", "invalid_request"),
        ({"min_confidence": "nan"}, "min_confidence", "invalid_request"),
        ({"min_confidence": "sure"}, "min_confidence", "invalid_request"),
        ({"min_trust": "2"}, "min_trust", "invalid_request"),
        ({"min_trust": "nan"}, "min_trust", "invalid_request"),
        ({"page_size": "0"}, "page_size", "invalid_request"),
        ({"page_size": "201"}, "page_size", "invalid_request"),
        ({"limit": "201"}, "limit", "invalid_request"),
        ({"page_size": "5", "limit": "5"}, "page_size", "invalid_request"),
        ({"as_of": "yesterday"}, "as_of", "as_of_invalid_timestamp"),
        ({"valid_at": "yesterday"}, "valid_at", "invalid_request"),
        ({"valid_at": "2020-01-01"}, "valid_at", "invalid_request"),
        ({"cursor": "forged"}, "cursor", "cursor_invalid"),
        ({"relation_filter": "x" * 5000}, "relation_filter", "invalid_request"),
    ],
)
def test_bad_input_names_its_field(robin: httpx.Client, params: dict[str, Any], field: str, code: str) -> None:
    answer = robin.get(PATH, params=params if "entity" in params or not params else {"entity": "Alice", **params})
    assert error(answer) == (400, code)
    told = answer.json()["error"]
    named = [item["field"] for item in told["details"].get("fields", [])]
    assert told["message"].startswith(f"{field}: ") or field in named or field in told["message"], told


def test_a_hub_is_followed_so_far_and_no_farther(robin: httpx.Client, superuser: Superuser) -> None:
    """Of the first entity's edges 1,000, of others 100, the surest of them; and it is said."""
    graph = Graph(robin)
    graph.draw("seed to hub", confidence=1.0)
    extra = 5
    for start in range(0, FANOUT[1] + extra, 50):
        numbers = range(start, min(start + 50, FANOUT[1] + extra))
        graph.draw(*(f"hub to n{number:03}" for number in numbers), confidence=0.5)
    graph.draw(*(f"hub to sure{number}" for number in range(extra)), confidence=0.9)
    answer = walk(robin, entity=graph.name("seed"), depth=2)
    assert answer["truncated"] is True
    # The edge back to the seed is one of those that are followed.
    assert answer["total_hint"] == FANOUT[1]
    found = {graph.letter(item["entity"]["entity_id"]) for item in answer["neighbors"]}
    assert {f"sure{number}" for number in range(extra)} <= found
    newest = {f"n{number:03}" for number in range(FANOUT[1] + extra)} & found
    assert min(newest) > f"n{2 * extra:03}", "of those equally sure the newest"
    whole = walk(robin, entity=graph.name("hub"), depth=1)
    assert (whole["truncated"], whole["total_hint"]) == (False, FANOUT[1] + 2 * extra + 1)
    surer = walk(robin, entity=graph.name("seed"), depth=2, min_confidence=0.6)
    assert (surer["truncated"], surer["total_hint"]) == (False, 1 + extra)


def test_so_many_are_reached_and_no_more(robin: httpx.Client) -> None:
    graph = Graph(robin)
    for part in range(12):
        graph.draw(*(f"m{part:02} to n{part * 90 + number}" for number in range(90)))
    graph.draw(*(f"a to m{part:02}" for part in range(12)))
    answer = walk(robin, entity=graph.name("a"), depth=2)
    assert (answer["total_hint"], answer["truncated"]) == (12 + 12 * 90, False)
    for part in range(12, 24):
        graph.draw(*(f"m{part:02} to n{part * 90 + number}" for number in range(90)))
    graph.draw(*(f"a to m{part:02}" for part in range(12, 24)))
    answer = walk(robin, entity=graph.name("a"), depth=2)
    assert (answer["total_hint"], answer["truncated"]) == (MAX_NODES, True)
    assert walk(robin, entity=graph.name("a"), depth=3)["truncated"] is True
    assert walk(robin, entity=graph.name("a"), depth=2)["neighbors"] == answer["neighbors"]


def test_a_walk_under_way_sees_one_state(graph: Graph, robin: httpx.Client) -> None:
    """A fact written a moment ago is there at once."""
    for number in range(5):
        graph.draw(f"a to n{number}")
        assert walk(robin, entity=graph.name("a"))["total_hint"] == number + 1
        time.sleep(0.01)
