"""Provenance: what a fact was derived from, never from itself, and the walk along its sources."""

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from itertools import pairwise
from typing import Any
from uuid import uuid4

import httpx
import pytest

from tests.conftest import Tenancy
from tests.facts.shared import (
    body,
    error,
    fact,
    fact_hash,
    garden,
    ids,
    listed,
    new,
    now,
    predicate,
    provenance,
    read,
    refusal,
    tombstone,
    write,
    year,
)

NOWHERE = "ab" * 32


class Planned:
    """A fact that is not written yet, whose hash is known already."""

    def __init__(self, value: Any = "tea", **fields: Any) -> None:
        self.subject, self.relation = new("planned"), new("follows")
        self.target: dict[str, Any] = value if isinstance(value, dict) else {"value": value}
        self.fields = {"valid_from": year(2020), **fields}
        said = {"type": "ref", "v": value["entity"]} if isinstance(value, dict) else {"type": "string", "v": value}
        hashed = {name: given for name, given in self.fields.items() if name != "valid_from"}
        at: Any = self.fields["valid_from"]
        self.hash = fact_hash(self.subject, self.relation, said, valid_from=at, **hashed)

    def body(self, *derived_from: str, **fields: Any) -> dict[str, Any]:
        sent = body(self.subject, self.relation, self.target, **self.fields, derived_from=list(derived_from))
        return {**sent, **fields}

    def write(self, client: httpx.Client, *derived_from: str, **fields: Any) -> dict[str, Any]:
        answer = client.post("/v1/facts", json=self.body(*derived_from, **fields))
        assert answer.status_code == 201, answer.text
        assert answer.json()["fact"]["fact_hash"] == self.hash
        return answer.json()["fact"]

    def refused(self, client: httpx.Client, *derived_from: str, **fields: Any) -> None:
        answer = client.post("/v1/facts", json=self.body(*derived_from, **fields))
        assert error(answer) == (400, "provenance_cycle_detected"), answer.text
        assert answer.json()["error"]["message"].startswith("derived_from")

    def exists(self, client: httpx.Client) -> bool:
        return bool(listed(client, entity=self.subject, include_inactive=True))


def derived(client: httpx.Client, *parents: dict[str, Any] | str, **fields: Any) -> dict[str, Any]:
    """A new fact concluded from these facts or hashes."""
    hashes = [parent if isinstance(parent, str) else parent["fact_hash"] for parent in parents]
    return fact(client, new("thing"), new("follows"), "so", derived_from=hashes, **fields)


def chain(client: httpx.Client, length: int) -> list[dict[str, Any]]:
    """Facts each concluded from the one before; the last one first."""
    made = [derived(client)]
    for _ in range(length - 1):
        made.insert(0, derived(client, made[0]))
    return made


def hashes(walked: dict[str, Any]) -> list[str]:
    return [node["hash"] for node in walked["nodes"]]


def links(walked: dict[str, Any]) -> list[tuple[str, str]]:
    return [(edge["derived_fact_id"], edge["source_hash"]) for edge in walked["edges"]]


def absent(walked: dict[str, Any]) -> list[str]:
    """The hashes that are shown as not there, each exactly so."""
    found = [node for node in walked["nodes"] if not node["exists"]]
    assert all(node == {"hash": node["hash"], "exists": False} for node in found)
    return [node["hash"] for node in found]


# What can be cited


def test_a_fact_cites_what_it_was_concluded_from(robin: httpx.Client) -> None:
    one, two = derived(robin), derived(robin)
    made = derived(robin, one, two, one)
    assert made["derived_from"] == sorted([one["fact_hash"], two["fact_hash"]])
    assert read(robin, made["fact_id"])["derived_from"] == made["derived_from"]
    assert listed(robin, entity=made["subject"]["entity_id"])[0]["derived_from"] == made["derived_from"]


@pytest.mark.parametrize(
    "given",
    [
        ["ab" * 31], ["ab" * 33], ["AB" * 32], ["zz" * 32], [""], [f"{NOWHERE}\n"], [f" {NOWHERE}"], [f"0x{'ab' * 31}"],
        [NOWHERE, "x"], [7], [None], NOWHERE, {"hash": NOWHERE}, [[NOWHERE]],
        [f"{number:064x}" for number in range(101)],
    ],
    ids=lambda item: str(item)[:30],
)  # fmt: skip
def test_what_is_no_hash_is_refused(robin: httpx.Client, given: Any) -> None:
    subject = new()
    answer = robin.post("/v1/facts", json=body(subject, new("follows"), "so", derived_from=given))
    assert answer.status_code == 400, answer.text
    assert "derived_from" in answer.json()["error"]["message"]
    assert listed(robin, entity=subject) == []


def test_a_hundred_hashes_can_be_cited_and_none_need_exist(robin: httpx.Client) -> None:
    cited = sorted(uuid4().hex + uuid4().hex for _ in range(100))
    made = derived(robin, *cited)
    assert made["derived_from"] == cited
    walked = provenance(robin, made["fact_id"])
    assert sorted(absent(walked)) == cited
    assert walked["truncated"] is False


def test_what_is_cited_may_come_later(robin: httpx.Client) -> None:
    later = Planned()
    made = derived(robin, later.hash)
    assert absent(provenance(robin, made["fact_id"])) == [later.hash]
    written = later.write(robin)
    walked = provenance(robin, made["fact_id"])
    assert absent(walked) == []
    assert walked["nodes"][1]["fact"]["fact_id"] == written["fact_id"]


def test_what_a_fact_was_concluded_from_is_fixed(robin: httpx.Client) -> None:
    source = derived(robin)
    made = derived(robin, source)
    for given in ([], [NOWHERE], [source["fact_hash"]], None, "x"):
        for more in ({}, {"valid_to": year(2999)}):
            answer = robin.patch(f"/v1/facts/{made['fact_id']}", json={"derived_from": given, **more})
            assert error(answer) == (422, "derived_from_immutable")
    assert read(robin, made["fact_id"]) == made


def test_saying_it_again_does_not_alter_what_it_came_from(robin: httpx.Client, wren: httpx.Client) -> None:
    made, plain = derived(robin, NOWHERE), derived(robin)
    for client in (robin, wren):
        for item in (made, plain):
            again = write(
                client, item["subject"]["entity_id"], item["predicate"]["name"], "so", derived_from=["cd" * 32]
            )
            assert (again["outcome"], again["fact"]["derived_from"]) == ("reused", item["derived_from"])
    assert links(provenance(robin, made["fact_id"])) == [(made["fact_id"], NOWHERE)]
    assert links(provenance(robin, plain["fact_id"])) == []


# Never from itself


@pytest.mark.parametrize(
    ("value", "fields"),
    [
        ("tea", {}),
        ("tea", {"confidence": 0.5, "source": "a \"CRM\"", "scope": "public"}),
        ("tea", {"valid_from": "2020-05-06T07:08:09.123456+02:00"}),
        ({"entity": "somebody else"}, {}),
    ],
    ids=str,
)  # fmt: skip
def test_a_hash_can_be_computed_beforehand(robin: httpx.Client, value: Any, fields: dict[str, Any]) -> None:
    planned = Planned(value, **fields)
    planned.refused(robin, planned.hash)
    assert not planned.exists(robin)
    planned.write(robin)


def test_a_circle_of_one_is_refused_beside_other_sources(robin: httpx.Client) -> None:
    planned, other = Planned(), derived(robin)
    planned.refused(robin, other["fact_hash"], planned.hash)
    assert not planned.exists(robin)
    assert robin.get("/v1/entities", params={"name": planned.subject}).json()["entities"] == []


def test_a_circle_is_seen_through_every_name(robin: httpx.Client) -> None:
    planned = Planned()
    written = planned.write(robin)
    alias = new("alias")
    robin.post(f"/v1/entities/{written['subject']['entity_id']}/aliases", json={"alias": alias})
    robin.post(f"/v1/predicates/{written['predicate']['predicate_id']}/aliases", json={"alias": alias})
    robin.post(f"/v1/facts/{written['fact_id']}/retract", json={})
    for names in (
        {"subject": planned.subject.upper()},
        {"subject": alias, "predicate": alias},
        {"subject": written["subject"]["entity_id"], "predicate": written["predicate"]["predicate_id"]},
        {"valid_from": "2020-01-01T01:00:00+01:00"},
    ):
        planned.refused(robin, planned.hash, **names)
    assert ids(listed(robin, entity=planned.subject, include_inactive=True)) == [written["fact_id"]]


def test_a_circle_of_two_is_refused(robin: httpx.Client) -> None:
    one, two = Planned(), Planned()
    one.write(robin, two.hash)
    two.refused(robin, one.hash)
    assert not two.exists(robin)
    two.write(robin)


def test_a_circle_of_three_is_refused(robin: httpx.Client) -> None:
    one, two, three = Planned(), Planned(), Planned()
    one.write(robin, two.hash)
    two.write(robin, three.hash, NOWHERE)
    three.refused(robin, NOWHERE, one.hash)
    assert not three.exists(robin)
    three.write(robin, NOWHERE)


def test_a_long_circle_is_refused(robin: httpx.Client) -> None:
    planned = [Planned() for _ in range(12)]
    for one, two in pairwise(planned):
        one.write(robin, two.hash)
    planned[-1].refused(robin, planned[0].hash)


def test_a_circle_through_a_retracted_fact_is_a_circle(robin: httpx.Client) -> None:
    one, two = Planned(), Planned()
    robin.post(f"/v1/facts/{one.write(robin, two.hash)['fact_id']}/retract", json={})
    two.refused(robin, one.hash)


def test_two_ways_to_the_same_source_are_no_circle(robin: httpx.Client) -> None:
    top, left, right, bottom = Planned(), Planned(), Planned(), Planned()
    top.write(robin)
    left.write(robin, top.hash)
    right.write(robin, top.hash)
    bottom.write(robin, left.hash, right.hash, top.hash)


def test_another_value_or_time_is_no_circle(robin: httpx.Client) -> None:
    planned = Planned()
    first = planned.write(robin)
    sent = body(planned.subject, planned.relation, "milk", valid_from=year(2020), derived_from=[planned.hash])
    assert robin.post("/v1/facts", json=sent).status_code == 201
    assert robin.post(f"/v1/facts/{first['fact_id']}/retract", json={}).status_code == 200
    later = planned.body(planned.hash, valid_from=year(2021))
    assert robin.post("/v1/facts", json=later).status_code == 201


@pytest.mark.parametrize("by", ["name", "alias"])
def test_a_circle_about_what_is_forgotten_is_refused_like_any_other(
    robin: httpx.Client, admin: httpx.Client, by: str
) -> None:
    planned = Planned()
    written, alias = planned.write(robin), new("alias")
    robin.post(f"/v1/entities/{written['subject']['entity_id']}/aliases", json={"alias": alias})
    tombstone(admin, planned.subject)
    said = planned.subject if by == "name" else alias
    own = fact_hash(said, planned.relation, {"type": "string", "v": "tea"}, valid_from=year(2020))
    planned.refused(robin, own, subject=said)


def test_facts_of_another_tenant_or_project_make_no_circle(
    robin: httpx.Client, rival: httpx.Client, elsewhere: httpx.Client
) -> None:
    for stranger in (rival, elsewhere):
        one, two = Planned(), Planned()
        one.write(stranger, two.hash)
        two.write(robin, one.hash)


def batch(client: httpx.Client, *facts: dict[str, Any], atomic: bool = True) -> httpx.Response:
    return client.post("/v1/facts/batch", json={"facts": list(facts), "atomic": atomic})


def test_a_batch_with_a_circle_writes_nothing(robin: httpx.Client) -> None:
    plain, one, two, three, alone = (Planned() for _ in range(5))
    for first, sent in (
        (1, [plain.body(), one.body(two.hash), two.body(three.hash), three.body(one.hash)]),
        (0, [one.body(two.hash), two.body(one.hash), plain.body()]),
        (1, [plain.body(), alone.body(alone.hash)]),
    ):
        answer = batch(robin, *sent)
        assert error(answer) == (400, "provenance_cycle_detected")
        assert answer.json()["error"]["details"]["index"] == first
        assert not any(item.exists(robin) for item in (plain, one, two, three, alone))


def test_of_a_batch_that_is_not_atomic_only_the_circle_is_refused(robin: httpx.Client) -> None:
    there, closing, plain, citing = (Planned() for _ in range(4))
    there.write(robin, closing.hash)
    answer = batch(robin, plain.body(), closing.body(there.hash), citing.body(closing.hash), atomic=False)
    assert answer.status_code == 200
    results = answer.json()["results"]
    assert [item.get("outcome") for item in results] == ["created", None, "created"]
    assert results[1]["error"]["code"] == "provenance_cycle_detected"
    assert [item.exists(robin) for item in (plain, closing, citing)] == [True, False, True]


def test_a_circle_within_a_batch_that_is_not_atomic_is_never_whole(robin: httpx.Client) -> None:
    plain, one, two = Planned(), Planned(), Planned()
    answer = batch(robin, plain.body(), one.body(two.hash), two.body(one.hash), atomic=False)
    assert answer.status_code == 200
    results = answer.json()["results"]
    assert results[0]["outcome"] == "created"
    refused = [item["error"]["code"] for item in results if "error" in item]
    assert refused in (["provenance_cycle_detected"], ["provenance_cycle_detected"] * 2)
    assert not (one.exists(robin) and two.exists(robin))


def test_a_batch_may_cite_within_itself_in_any_order(robin: httpx.Client) -> None:
    one, two, three = Planned(), Planned(), Planned()
    results = batch(robin, one.body(two.hash), two.body(three.hash), three.body()).json()["results"]
    assert [item["outcome"] for item in results] == ["created"] * 3
    walked = provenance(robin, results[0]["fact"]["fact_id"])
    assert hashes(walked) == [one.hash, two.hash, three.hash]
    assert absent(walked) == []


def test_two_writers_at_once_do_not_close_a_circle(
    robin: httpx.Client, keys: dict[str, str], as_key: Callable[..., httpx.Client]
) -> None:
    clients = [as_key(keys["robin"]), as_key(keys["wren"])]
    for client in clients:
        client.get("/v1/whoami")
    for _ in range(25):
        one, two = Planned(), Planned()
        sent = [one.body(two.hash), two.body(one.hash)]
        start = threading.Barrier(2)

        def send(number: int, start: threading.Barrier = start, sent: Any = sent) -> int:
            start.wait(10)
            return clients[number].post("/v1/facts", json=sent[number]).status_code

        with ThreadPoolExecutor(2) as pool:
            statuses = list(pool.map(send, range(2)))
        assert sorted(statuses) != [201, 201]


# The walk back


def test_the_walk_shows_facts_and_links(robin: httpx.Client) -> None:
    root, parent, grandparent = chain(robin, 3)
    walked = provenance(robin, root["fact_id"])
    assert walked == {
        "root_fact_id": root["fact_id"],
        "depth_limit": 3,
        "nodes": [
            {"hash": item["fact_hash"], "exists": True, "depth": depth, "fact": read(robin, item["fact_id"])}
            for depth, item in enumerate((root, parent, grandparent))
        ],
        "edges": [
            {"derived_fact_id": root["fact_id"], "source_hash": parent["fact_hash"], "kind": "derived"},
            {"derived_fact_id": parent["fact_id"], "source_hash": grandparent["fact_hash"], "kind": "derived"},
        ],
        "truncated": False,
    }


def test_a_fact_that_cites_nothing_stands_alone(robin: httpx.Client) -> None:
    made = derived(robin)
    walked = provenance(robin, made["fact_id"])
    assert (hashes(walked), walked["edges"], walked["truncated"]) == ([made["fact_hash"]], [], False)


@pytest.mark.parametrize("depth", [None, 1, 2, 3, 4, 5])
def test_the_walk_goes_as_far_as_it_is_told_and_says_when_there_is_more(robin: httpx.Client, depth: int | None) -> None:
    made = chain(robin, 7)
    walked = provenance(robin, made[0]["fact_id"], **({} if depth is None else {"depth": depth}))
    reached = 3 if depth is None else depth
    assert walked["depth_limit"] == reached
    assert hashes(walked) == [item["fact_hash"] for item in made[: reached + 1]]
    assert len(walked["edges"]) == reached
    assert walked["truncated"] is True


@pytest.mark.parametrize("dangling", [False, True])
def test_a_walk_that_ends_at_its_depth_is_whole(robin: httpx.Client, dangling: bool) -> None:
    root, _, last = chain(robin, 3)
    assert provenance(robin, root["fact_id"], depth=2)["truncated"] is False
    assert provenance(robin, root["fact_id"], depth=1)["truncated"] is True
    if dangling:
        made = derived(robin, derived(robin, NOWHERE), last)
        assert provenance(robin, made["fact_id"], depth=2)["truncated"] is False
        assert provenance(robin, made["fact_id"], depth=1)["truncated"] is True


@pytest.mark.parametrize("depth", [0, -1, 6, 100, 10**12])
def test_a_depth_out_of_bounds_is_refused(robin: httpx.Client, depth: int) -> None:
    made = derived(robin)
    answer = robin.get(f"/v1/facts/{made['fact_id']}/provenance", params={"depth": depth})
    assert error(answer) == (400, "graph_depth_exceeded")


@pytest.mark.parametrize(
    "params", [{"depth": "deep"}, {"depth": 1.5}, {"scope": "everywhere"}, {"as_of": "yesterday"}], ids=str
)
def test_what_makes_no_sense_is_refused(robin: httpx.Client, params: dict[str, Any]) -> None:
    made = derived(robin)
    assert robin.get(f"/v1/facts/{made['fact_id']}/provenance", params=params).status_code == 400


def test_a_diamond_is_shown_once(robin: httpx.Client) -> None:
    top = derived(robin)
    middle = derived(robin, top)
    left, right = derived(robin, middle), derived(robin, middle)
    root = derived(robin, left, right)
    walked = provenance(robin, root["fact_id"], depth=5)
    assert sorted(hashes(walked)) == sorted(item["fact_hash"] for item in (root, left, right, middle, top))
    assert sorted(links(walked)) == sorted(
        [
            (root["fact_id"], left["fact_hash"]),
            (root["fact_id"], right["fact_hash"]),
            (left["fact_id"], middle["fact_hash"]),
            (right["fact_id"], middle["fact_hash"]),
            (middle["fact_id"], top["fact_hash"]),
        ]
    )
    assert walked["truncated"] is False


def uneven(client: httpx.Client) -> list[dict[str, Any]]:
    """A root that cites a fact and also what cites it: the fact is one step away, and two."""
    top = derived(client)
    middle = derived(client, top)
    longer = derived(client, middle)
    return [derived(client, middle, longer), longer, middle, top]


def test_what_is_reached_by_ways_of_different_lengths_is_shown_once(robin: httpx.Client) -> None:
    root, longer, middle, top = uneven(robin)
    walked = provenance(robin, root["fact_id"], depth=5)
    assert {node["hash"]: node["depth"] for node in walked["nodes"]} == {
        root["fact_hash"]: 0,
        longer["fact_hash"]: 1,
        middle["fact_hash"]: 1,
        top["fact_hash"]: 2,
    }
    assert len(walked["nodes"]) == 4
    assert sorted(links(walked)) == sorted(
        [
            (root["fact_id"], longer["fact_hash"]),
            (root["fact_id"], middle["fact_hash"]),
            (longer["fact_id"], middle["fact_hash"]),
            (middle["fact_id"], top["fact_hash"]),
        ]
    )


def test_a_walk_that_showed_everything_is_not_truncated(robin: httpx.Client) -> None:
    root, longer, middle, top = uneven(robin)
    walked = provenance(robin, root["fact_id"], depth=2)
    assert set(hashes(walked)) == {item["fact_hash"] for item in (root, longer, middle, top)}
    assert walked["truncated"] is False


def test_a_wide_walk_is_cut_and_says_so(robin: httpx.Client) -> None:
    name = predicate(robin)["name"]
    wide = [
        body(new(), name, number, derived_from=[uuid4().hex + uuid4().hex for _ in range(100)]) for number in range(15)
    ]
    results = batch(robin, *wide).json()["results"]
    root = derived(robin, *[item["fact"] for item in results])
    walked = provenance(robin, root["fact_id"])
    assert walked["truncated"] is True
    assert len(walked["nodes"]) <= 1000
    assert {item["fact"]["fact_hash"] for item in results} <= set(hashes(walked))
    assert walked == provenance(robin, root["fact_id"]), "a cut keeps the same nodes"


def test_a_retracted_source_is_still_there(robin: httpx.Client) -> None:
    root, parent, grandparent = chain(robin, 3)
    robin.post(f"/v1/facts/{parent['fact_id']}/retract", json={})
    walked = provenance(robin, root["fact_id"])
    assert absent(walked) == []
    assert walked["nodes"][1]["fact"]["retracted_at"] is not None
    assert hashes(walked)[2] == grandparent["fact_hash"]
    robin.post(f"/v1/facts/{root['fact_id']}/retract", json={})
    assert hashes(provenance(robin, root["fact_id"])) == hashes(walked)


def test_of_two_facts_with_one_hash_the_live_one_is_shown(robin: httpx.Client) -> None:
    planned = Planned()
    first = planned.write(robin)
    root = derived(robin, planned.hash)
    robin.post(f"/v1/facts/{first['fact_id']}/retract", json={})
    second = planned.write(robin)
    assert second["fact_id"] != first["fact_id"]
    walked = provenance(robin, root["fact_id"])
    assert [node["fact"]["fact_id"] for node in walked["nodes"]] == [root["fact_id"], second["fact_id"]]


# For whom


def missing(client: httpx.Client, **params: Any) -> dict[str, Any]:
    """The answer for a fact that never was."""
    return refusal(client.get(f"/v1/facts/{uuid4()}/provenance", params=params))


def test_ancestors_the_caller_cannot_see_look_like_absent_ones(
    robin: httpx.Client, wren: httpx.Client, admin: httpx.Client
) -> None:
    oldest = derived(robin)
    private = derived(robin, oldest, scope="agent_private")
    grown = derived(robin, oldest, garden_id=garden(robin))
    forgotten = derived(robin, oldest)
    root = derived(robin, private, grown, forgotten, NOWHERE)
    tombstone(admin, forgotten["subject"]["entity_id"])
    cited = {item["fact_hash"] for item in (private, grown, forgotten)} | {NOWHERE}
    for_wren = provenance(wren, root["fact_id"])
    assert set(absent(for_wren)) == cited
    assert set(hashes(for_wren)) == cited | {root["fact_hash"]}, "what they came from is not walked to"
    assert set(links(for_wren)) == {(root["fact_id"], item) for item in cited}
    assert for_wren["truncated"] is False
    assert provenance(wren, root["fact_id"], depth=1)["truncated"] is False
    for_robin = provenance(robin, root["fact_id"])
    assert set(absent(for_robin)) == {forgotten["fact_hash"], NOWHERE}
    assert oldest["fact_hash"] in hashes(for_robin)
    for_admin = provenance(admin, root["fact_id"])
    assert set(absent(for_admin)) == {private["fact_hash"], forgotten["fact_hash"], NOWHERE}


def test_ancestors_in_another_project_or_tenant_look_absent(
    robin: httpx.Client, elsewhere: httpx.Client, rival: httpx.Client
) -> None:
    strange = [derived(client, scope="public") for client in (elsewhere, rival)]
    root = derived(robin, *strange)
    assert set(absent(provenance(robin, root["fact_id"]))) == {item["fact_hash"] for item in strange}


def test_what_a_legal_hold_hides_looks_absent_but_to_administrators_who_look_back(
    robin: httpx.Client, admin: httpx.Client
) -> None:
    oldest = derived(robin)
    held = derived(robin, oldest)
    root = derived(robin, held)
    before = now()
    made = tombstone(admin, held["subject"]["entity_id"], legal_hold=True)
    for client, params in ((robin, {}), (robin, {"as_of": before}), (admin, {})):
        walked = provenance(client, root["fact_id"], **params)
        assert absent(walked) == [held["fact_hash"]]
        assert hashes(walked) == [root["fact_hash"], held["fact_hash"]]
        assert "tombstone_notices" not in walked
        assert error(client.get(f"/v1/facts/{held['fact_id']}/provenance", params=params))[0] == 404
    walked = provenance(admin, root["fact_id"], as_of=before)
    assert absent(walked) == []
    assert hashes(walked) == [root["fact_hash"], held["fact_hash"], oldest["fact_hash"]]
    assert [notice["tombstone_id"] for notice in walked["tombstone_notices"]] == [made]
    assert provenance(admin, held["fact_id"], as_of=before)["tombstone_notices"]


def test_what_is_no_longer_hidden_is_shown_again(robin: httpx.Client, admin: httpx.Client) -> None:
    root, parent, grandparent = chain(robin, 3)
    before = provenance(robin, root["fact_id"])
    stone = tombstone(admin, parent["subject"]["entity_id"])
    assert absent(provenance(robin, root["fact_id"])) == [parent["fact_hash"]]
    admin.post(f"/v1/tombstones/{stone}/revoke", json={"reason": "by mistake"})
    assert provenance(robin, root["fact_id"]) == before
    assert hashes(before)[2] == grandparent["fact_hash"]


def test_a_root_out_of_reach_is_not_found_like_one_that_never_was(
    robin: httpx.Client, wren: httpx.Client, admin: httpx.Client, elsewhere: httpx.Client, rival: httpx.Client
) -> None:
    private = derived(robin, NOWHERE, scope="agent_private")
    grown = derived(robin, NOWHERE, garden_id=garden(robin))
    public = derived(robin, NOWHERE, scope="public")
    forgotten = derived(robin, NOWHERE)
    tombstone(admin, forgotten["subject"]["entity_id"])
    for client, root in (
        (wren, private),
        (admin, private),
        (wren, grown),
        (elsewhere, public),
        (rival, public),
        (robin, forgotten),
        (admin, forgotten),
    ):
        answer = refusal(client.get(f"/v1/facts/{root['fact_id']}/provenance"))
        assert answer == missing(client)
        assert (answer["status"], answer["code"]) == (404, "fact_not_found")
    for root in (private, grown):
        assert absent(provenance(robin, root["fact_id"])) == [NOWHERE]


def test_a_scope_leaves_only_its_own_facts(robin: httpx.Client) -> None:
    beyond = derived(robin, scope="public")
    shared = derived(robin, beyond)
    wide = derived(robin, shared, scope="public")
    root = derived(robin, wide, beyond, scope="public")
    walked = provenance(robin, root["fact_id"], scope="public")
    assert absent(walked) == [shared["fact_hash"]]
    assert set(hashes(walked)) == {item["fact_hash"] for item in (root, wide, beyond, shared)}
    for scope in ("project_shared", "team", "agent_private"):
        answer = robin.get(f"/v1/facts/{root['fact_id']}/provenance", params={"scope": scope})
        assert refusal(answer) == missing(robin, scope=scope)
    assert absent(provenance(robin, root["fact_id"])) == []
    team = provenance(robin, shared["fact_id"], scope="team")
    assert absent(team) == [beyond["fact_hash"]]


def test_a_walk_at_a_past_time_shows_what_was_known_then(robin: httpx.Client) -> None:
    later = Planned()
    root = derived(robin, later.hash, confidence=0.5)
    then = now()
    parent = later.write(robin)
    write(robin, root["subject"]["entity_id"], root["predicate"]["name"], "so", confidence=0.9)
    robin.post(f"/v1/facts/{root['fact_id']}/retract", json={})
    past = provenance(robin, root["fact_id"], as_of=then)
    assert absent(past) == [later.hash]
    assert past["nodes"][0]["fact"] == read(robin, root["fact_id"], as_of=then)
    assert (past["nodes"][0]["fact"]["confidence"], past["nodes"][0]["fact"]["retracted_at"]) == (0.5, None)
    present = provenance(robin, root["fact_id"], as_of=now())
    assert [node["fact"]["fact_id"] for node in present["nodes"]] == [root["fact_id"], parent["fact_id"]]
    assert present["nodes"][0]["fact"]["retracted_at"] is not None


def test_before_it_was_written_a_root_is_not_found(robin: httpx.Client) -> None:
    before = now()
    root = derived(robin)
    answer = robin.get(f"/v1/facts/{root['fact_id']}/provenance", params={"as_of": before})
    assert refusal(answer) == missing(robin, as_of=before)
    future = datetime(2999, 1, 1, tzinfo=UTC).isoformat()
    ahead = robin.get(f"/v1/facts/{root['fact_id']}/provenance", params={"as_of": future})
    assert error(ahead) == (400, "as_of_future")


def test_looking_back_needs_its_scope(
    robin: httpx.Client, tenancy: Tenancy, as_key: Callable[..., httpx.Client]
) -> None:
    root = derived(robin)
    reader = as_key(tenancy.key("acme", agent_id="wren", scopes=["facts:read"]))
    assert hashes(provenance(reader, root["fact_id"])) == [root["fact_hash"]]
    answer = reader.get(f"/v1/facts/{root['fact_id']}/provenance", params={"as_of": now()})
    assert error(answer) == (403, "missing_scope")
    noter = as_key(tenancy.key("acme", agent_id="wren", scopes=["notes:read"]))
    assert error(noter.get(f"/v1/facts/{root['fact_id']}/provenance")) == (403, "missing_scope")
