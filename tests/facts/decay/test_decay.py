"""Decay: policies, and how a sweep changes old facts."""

import math
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import uuid4

import httpx
import pytest

from tests.conftest import Tenancy, TestDatabase
from tests.facts.shared import (
    Superuser,
    error,
    fact,
    garden,
    history,
    ids,
    listed,
    new,
    now,
    predicate,
    read,
    retracted_as,
    tombstone,
    work_until,
    write,
    year,
)

HOUR = 3600.0
DAY = 86400.0


@pytest.fixture(autouse=True)
def no_policies(superuser: Superuser) -> Iterator[None]:
    """Each test has only its own."""
    yield
    superuser.execute("DELETE FROM decay_policies")


def policy(admin: httpx.Client, **fields: Any) -> dict[str, Any]:
    answer = admin.post("/v1/decay/policies", json=fields)
    assert answer.status_code == 201, answer.text
    return answer.json()["policy"]


def sweep(admin: httpx.Client, **fields: Any) -> dict[str, Any]:
    answer = admin.post("/v1/decay/sweep", json=fields)
    assert answer.status_code == 200, answer.text
    assert set(answer.json()) == {"dry_run", "swept_at", "affected", "by_policy", "facts"}
    return answer.json()


def age(superuser: Superuser, fact_id: str, seconds: float) -> None:
    """Make a fact and its edge look as if written so long ago and never again."""
    at = datetime.now(UTC) - timedelta(seconds=seconds)
    for table, key in (("graph_facts", "fact_id"), ("entity_edges", "edge_id")):
        statement = f"UPDATE {table} SET created_at = %s, valid_from = %s, weighed_at = NULL WHERE {key} = %s"
        superuser.execute(statement.encode(), (at, at, fact_id))


def old(
    client: httpx.Client,
    superuser: Superuser,
    name: str,
    target: Any = "tea",
    *,
    seconds: float = 2 * DAY,
    **fields: Any,
) -> dict[str, Any]:
    """A fact that was written so long ago."""
    made = fact(client, fields.pop("subject", new()), name, target, **fields)
    age(superuser, made["fact_id"], seconds)
    return made


def halved(confidence: float, elapsed: float, half_life: float) -> float:
    return confidence * math.exp(-math.log(2) * elapsed / half_life)


def told(swept: dict[str, Any], fact_id: str) -> dict[str, Any]:
    """What a sweep tells of one fact."""
    (line,) = [item for item in swept["facts"] if item["fact_id"] == fact_id]
    return line


# Policies


def test_a_policy_is_made_listed_and_removed(admin: httpx.Client) -> None:
    answer = admin.post(
        "/v1/decay/policies",
        json={
            "relation": "  Likes \t much ",
            "scope": "team",
            "mode": "confidence",
            "half_life_s": 86400,
            "min_confidence": 0.2,
            "exempt_relations": ["Born In"],
        },
    )
    assert answer.status_code == 201
    assert set(answer.json()) == {"policy", "created"}
    made = answer.json()["policy"]
    assert answer.json()["created"] is True
    assert made == {
        "policy_id": made["policy_id"],
        "relation": "likes much",
        "scope": "project_shared",
        "mode": "confidence",
        "ttl_s": None,
        "half_life_s": 86400.0,
        "min_confidence": 0.2,
        "exempt_relations": ["born in"],
        "created_by": "admin",
        "created_at": made["created_at"],
        "swept_at": None,
    }
    assert admin.get("/v1/decay/policies").json() == {"policies": [made], "next_cursor": None}
    assert admin.delete(f"/v1/decay/policies/{made['policy_id']}").status_code == 204
    assert admin.get("/v1/decay/policies").json()["policies"] == []
    gone = admin.delete(f"/v1/decay/policies/{made['policy_id']}")
    assert error(gone) == (404, "decay_policy_not_found")


def test_there_is_no_policy_by_default_and_a_sweep_does_nothing(
    robin: httpx.Client, admin: httpx.Client, superuser: Superuser
) -> None:
    made = old(robin, superuser, new("likes"), seconds=99 * DAY)
    assert admin.get("/v1/decay/policies").json() == {"policies": [], "next_cursor": None}
    assert sweep(admin)["affected"] == 0
    assert read(robin, made["fact_id"])["confidence"] == 1.0


def test_what_is_left_out_means_everything(admin: httpx.Client) -> None:
    made = policy(admin, mode="retract", ttl_s=60)
    assert (made["relation"], made["scope"], made["min_confidence"], made["exempt_relations"]) == ("*", "*", 0, [])


def test_the_same_policy_again_is_the_same(admin: httpx.Client) -> None:
    made = policy(admin, relation="likes", mode="retract", ttl_s=60)
    again = admin.post("/v1/decay/policies", json={"relation": " LIKES ", "mode": "retract", "ttl_s": 60.0})
    assert again.status_code == 200
    assert again.json() == {"policy": made, "created": False}
    assert len(admin.get("/v1/decay/policies").json()["policies"]) == 1


def test_another_policy_for_the_same_place_is_refused(admin: httpx.Client) -> None:
    made = policy(admin, relation="likes", scope="public", mode="retract", ttl_s=60)
    for change in ({"ttl_s": 61}, {"mode": "dry_run"}, {"min_confidence": 0.1}, {"exempt_relations": ["x"]}):
        sent = {"relation": "likes", "scope": "public", "mode": "retract", "ttl_s": 60, **change}
        answer = admin.post("/v1/decay/policies", json=sent)
        assert error(answer) == (409, "decay_policy_exists")
        assert answer.json()["error"]["details"] == {"policy_id": made["policy_id"]}
    policy(admin, relation="likes", mode="retract", ttl_s=61)
    policy(admin, scope="public", mode="retract", ttl_s=61)
    assert len(admin.get("/v1/decay/policies").json()["policies"]) == 3


def test_an_idempotency_key_makes_a_policy_once(admin: httpx.Client) -> None:
    headers, sent = {"Idempotency-Key": uuid4().hex}, {"relation": new(), "mode": "retract", "ttl_s": 60}
    first = admin.post("/v1/decay/policies", json=sent, headers=headers)
    second = admin.post("/v1/decay/policies", json=sent, headers=headers)
    assert (first.status_code, second.status_code) == (201, 201)
    assert second.json() == first.json()


BAD: list[tuple[str, dict[str, Any]]] = [
    ("mode", {}),
    ("mode", {"mode": "forget", "ttl_s": 60}),
    ("ttl_s", {"mode": "retract"}),
    ("ttl_s", {"mode": "retract", "half_life_s": 60}),
    ("half_life_s", {"mode": "confidence"}),
    ("half_life_s", {"mode": "confidence", "ttl_s": 60}),
    ("ttl_s", {"mode": "dry_run"}),
    ("ttl_s", {"mode": "retract", "ttl_s": 0}),
    ("ttl_s", {"mode": "retract", "ttl_s": -1}),
    ("ttl_s", {"mode": "retract", "ttl_s": "60"}),
    ("ttl_s", {"mode": "retract", "ttl_s": 1e10}),
    ("half_life_s", {"mode": "confidence", "half_life_s": 0}),
    ("min_confidence", {"mode": "confidence", "half_life_s": 60, "min_confidence": 1.1}),
    ("min_confidence", {"mode": "confidence", "half_life_s": 60, "min_confidence": -0.1}),
    ("scope", {"mode": "retract", "ttl_s": 60, "scope": "everywhere"}),
    ("relation", {"mode": "retract", "ttl_s": 60, "relation": ""}),
    ("relation", {"mode": "retract", "ttl_s": 60, "relation": "   "}),
    ("relation", {"mode": "retract", "ttl_s": 60, "relation": "x" * 201}),
    ("exempt_relations", {"mode": "retract", "ttl_s": 60, "exempt_relations": "likes"}),
    ("exempt_relations", {"mode": "retract", "ttl_s": 60, "exempt_relations": [" "]}),
    ("exempt_relations", {"mode": "retract", "ttl_s": 60, "exempt_relations": ["x"] * 101}),
    ("halflife", {"mode": "retract", "ttl_s": 60, "halflife": 60}),
]


@pytest.mark.parametrize(("field", "sent"), BAD, ids=lambda item: str(item)[:60])
def test_a_malformed_policy_is_refused_by_its_field(admin: httpx.Client, field: str, sent: dict[str, Any]) -> None:
    answer = admin.post("/v1/decay/policies", json=sent)
    assert answer.status_code == 400, answer.text
    assert answer.json()["error"]["message"].startswith(field)
    assert admin.get("/v1/decay/policies").json()["policies"] == []


def test_policies_are_listed_page_by_page(admin: httpx.Client) -> None:
    made = [policy(admin, relation=new(), mode="retract", ttl_s=60)["policy_id"] for _ in range(5)]
    found: list[str] = []
    cursor: str | None = None
    while True:
        page = admin.get("/v1/decay/policies", params={"limit": 2, **({"cursor": cursor} if cursor else {})}).json()
        found += [item["policy_id"] for item in page["policies"]]
        cursor = page["next_cursor"]
        if cursor is None:
            break
    assert found == made


def test_only_administrators_decide_about_decay(robin: httpx.Client, admin: httpx.Client) -> None:
    made = policy(admin, relation=new(), mode="retract", ttl_s=60)
    assert error(robin.post("/v1/decay/policies", json={"mode": "retract", "ttl_s": 60})) == (403, "wrong_key_kind")
    assert error(robin.delete(f"/v1/decay/policies/{made['policy_id']}")) == (403, "wrong_key_kind")
    assert error(robin.post("/v1/decay/sweep", json={})) == (403, "wrong_key_kind")
    assert error(robin.post("/v1/decay/sweep", json={"dry_run": True})) == (403, "wrong_key_kind")
    assert admin.get("/v1/decay/policies").json()["policies"] == [made]


def test_policies_are_read_by_who_may_read_facts(
    robin: httpx.Client, admin: httpx.Client, tenancy: Tenancy, as_key: Callable[..., httpx.Client]
) -> None:
    made = policy(admin, relation=new(), mode="retract", ttl_s=60)
    assert robin.get("/v1/decay/policies").json()["policies"] == [made]
    noter = as_key(tenancy.key("acme", agent_id="wren", scopes=["notes:read"]))
    assert error(noter.get("/v1/decay/policies")) == (403, "missing_scope")


def test_policies_of_another_project_or_tenant_are_not_there(
    admin: httpx.Client,
    keys: dict[str, str],
    tenancy: Tenancy,
    as_key: Callable[..., httpx.Client],
    elsewhere: httpx.Client,
) -> None:
    made = policy(admin, relation=new(), mode="retract", ttl_s=60)
    assert elsewhere.get("/v1/decay/policies").json()["policies"] == []
    for stranger in (
        as_key(keys["admin"], "other"),
        as_key(tenancy.key("rival", kind="admin"), "default"),
    ):
        assert stranger.get("/v1/decay/policies").json()["policies"] == []
        assert error(stranger.delete(f"/v1/decay/policies/{made['policy_id']}")) == (404, "decay_policy_not_found")
    assert admin.get("/v1/decay/policies").json()["policies"] == [made]


def test_what_a_removed_policy_did_stays_and_it_does_no_more(
    robin: httpx.Client, admin: httpx.Client, superuser: Superuser
) -> None:
    name = new("likes")
    gone = old(robin, superuser, name)
    made = policy(admin, relation=name, mode="retract", ttl_s=DAY)
    sweep(admin)
    admin.delete(f"/v1/decay/policies/{made['policy_id']}")
    kept = old(robin, superuser, name)
    assert sweep(admin)["affected"] == 0
    assert read(robin, gone["fact_id"])["retracted_at"] is not None
    assert read(robin, kept["fact_id"])["retracted_at"] is None


# Taken back by age


def test_what_outlived_its_time_is_taken_back_as_decayed(
    robin: httpx.Client, admin: httpx.Client, superuser: Superuser
) -> None:
    name = new("likes")
    stale = old(robin, superuser, name, confidence=0.7, seconds=DAY + 60)
    fresh = old(robin, superuser, name, seconds=DAY - 60)
    made = policy(admin, relation=name, mode="retract", ttl_s=DAY)
    before = now()
    swept = sweep(admin)
    assert (swept["dry_run"], swept["affected"]) == (False, 1)
    assert swept["by_policy"] == [{"policy_id": made["policy_id"], "action": "retract", "facts": 1}]
    assert swept["facts"] == [
        {
            "fact_id": stale["fact_id"],
            "policy_id": made["policy_id"],
            "action": "retract",
            "confidence_before": 0.7,
            "confidence_after": 0.0,
        }
    ]
    gone = read(robin, stale["fact_id"])
    assert gone["confidence"] == 0
    assert gone["retracted_at"] >= before
    assert listed(robin, entity=stale["subject"]["entity_id"]) == []
    assert ids(listed(robin, entity=stale["subject"]["entity_id"], include_inactive=True)) == [stale["fact_id"]]
    (line,) = history(robin, stale["fact_id"])["retractions"]
    assert (line["kind"], line["confidence_before"], line["retracted_by"]) == ("decayed", 0.7, "admin")
    then = read(robin, stale["fact_id"], as_of=before)
    assert (then["confidence"], then["retracted_at"]) == (0.7, None)
    assert ids(listed(robin, entity=stale["subject"]["entity_id"], as_of=before)) == [stale["fact_id"]]
    assert read(robin, fresh["fact_id"])["confidence"] == 1.0
    (policies,) = admin.get("/v1/decay/policies").json()["policies"]
    assert policies["swept_at"] == swept["swept_at"]


def test_a_second_sweep_at_once_changes_nothing(robin: httpx.Client, admin: httpx.Client, superuser: Superuser) -> None:
    likes, hates = new("likes"), new("hates")
    made = [old(robin, superuser, likes), old(robin, superuser, hates), old(robin, superuser, hates, {"entity": new()})]
    policy(admin, relation=likes, mode="retract", ttl_s=DAY)
    policy(admin, relation=hates, mode="confidence", half_life_s=DAY)
    assert sweep(admin)["affected"] == 3
    after = [read(robin, item["fact_id"]) for item in made]
    again = sweep(admin)
    assert (again["affected"], again["by_policy"], again["facts"]) == (0, [], [])
    assert [read(robin, item["fact_id"]) for item in made] == after


def test_a_decayed_fact_can_be_asserted_anew(robin: httpx.Client, admin: httpx.Client, superuser: Superuser) -> None:
    single = predicate(robin, cardinality="single")["name"]
    for name in (new("likes"), single):
        first = old(robin, superuser, name)
        made = policy(admin, relation=name, mode="retract", ttl_s=DAY)
        sweep(admin)
        again = write(robin, first["subject"]["canonical"], name, "tea", confidence=0.8)
        assert (again["outcome"], again["fact"]["confidence"], again["fact"]["mentions"]) == ("created", 0.8, 1)
        assert again["fact"]["fact_id"] != first["fact_id"]
        assert sweep(admin)["affected"] == 0
        admin.delete(f"/v1/decay/policies/{made['policy_id']}")


def test_a_conflict_ends_when_one_of_the_two_decays(
    robin: httpx.Client, admin: httpx.Client, superuser: Superuser
) -> None:
    subject, name = new(), new("born in")
    one = fact(robin, subject, name, "Bern")
    two = write(robin, subject, name, "Basel")
    age(superuser, one["fact_id"], 2 * DAY)
    policy(admin, relation=name, mode="retract", ttl_s=DAY)
    sweep(admin)
    assert read(robin, two["fact"]["fact_id"])["contradicted"] is False
    assert robin.get(f"/v1/conflicts/{two['conflicts'][0]}").json()["status"] == "resolved"


# Believed less by half-life


@pytest.mark.parametrize("elapsed", [0.5 * DAY, DAY, 3 * DAY], ids=str)
@pytest.mark.parametrize("confidence", [1.0, 0.6])
def test_confidence_halves_with_every_half_life(
    robin: httpx.Client, admin: httpx.Client, superuser: Superuser, confidence: float, elapsed: float
) -> None:
    name = new("likes")
    made = old(robin, superuser, name, confidence=confidence, seconds=elapsed)
    rule = policy(admin, relation=name, mode="confidence", half_life_s=DAY)
    before = now()
    swept = sweep(admin)
    expected = pytest.approx(halved(confidence, elapsed, DAY), rel=0.001)
    line = told(swept, made["fact_id"])
    assert (line["action"], line["policy_id"], line["confidence_before"]) == (
        "confidence",
        rule["policy_id"],
        confidence,
    )
    assert line["confidence_after"] == expected
    less = read(robin, made["fact_id"])
    assert less["confidence"] == line["confidence_after"]
    assert (less["retracted_at"], less["valid_to"], less["mentions"]) == (None, None, 1)
    assert less["fact_hash"] == made["fact_hash"]
    assert retracted_as(robin, made["fact_id"]) == []
    assert read(robin, made["fact_id"], as_of=before)["confidence"] == confidence
    assert listed(robin, entity=made["subject"]["entity_id"], as_of=before)[0]["confidence"] == confidence
    assert listed(robin, entity=made["subject"]["entity_id"])[0]["confidence"] == less["confidence"]


def test_two_sweeps_apart_are_as_one(robin: httpx.Client, admin: httpx.Client, superuser: Superuser) -> None:
    name = new("likes")
    made = old(robin, superuser, name, seconds=DAY)
    policy(admin, relation=name, mode="confidence", half_life_s=DAY)
    sweep(admin)
    superuser.execute(
        "UPDATE graph_facts SET weighed_at = weighed_at - interval '1 day' WHERE fact_id = %s", (made["fact_id"],)
    )
    sweep(admin)
    assert read(robin, made["fact_id"])["confidence"] == pytest.approx(0.25, rel=0.001)


def test_confidence_stops_at_the_floor(robin: httpx.Client, admin: httpx.Client, superuser: Superuser) -> None:
    name = new("likes")
    high = old(robin, superuser, name, confidence=0.9, seconds=20 * DAY)
    low = old(robin, superuser, name, confidence=0.2, seconds=20 * DAY)
    level = old(robin, superuser, name, confidence=0.3, seconds=20 * DAY)
    policy(admin, relation=name, mode="confidence", half_life_s=DAY, min_confidence=0.3)
    swept = sweep(admin)
    assert [item["fact_id"] for item in swept["facts"]] == [high["fact_id"]]
    assert read(robin, high["fact_id"])["confidence"] == pytest.approx(0.3)
    assert read(robin, low["fact_id"])["confidence"] == 0.2, "never raised"
    assert read(robin, level["fact_id"])["confidence"] == 0.3


def test_what_is_older_than_a_thousand_half_lives_is_believed_no_more(
    robin: httpx.Client, admin: httpx.Client, superuser: Superuser
) -> None:
    name = new("likes")
    made = old(robin, superuser, name, seconds=HOUR)
    policy(admin, relation=name, mode="confidence", half_life_s=1)
    sweep(admin)
    assert read(robin, made["fact_id"])["confidence"] == pytest.approx(0.0, abs=1e-6)


def test_a_half_life_and_a_ttl_do_what_the_mode_says(
    robin: httpx.Client, admin: httpx.Client, superuser: Superuser
) -> None:
    both = {"ttl_s": DAY, "half_life_s": 2 * DAY}
    likes, hates = new("likes"), new("hates")
    kept, gone = old(robin, superuser, likes, seconds=2 * DAY), old(robin, superuser, hates, seconds=2 * DAY)
    policy(admin, relation=likes, mode="confidence", **both)
    policy(admin, relation=hates, mode="retract", **both)
    sweep(admin)
    assert read(robin, kept["fact_id"])["confidence"] == pytest.approx(0.5, rel=0.001)
    assert read(robin, kept["fact_id"])["retracted_at"] is None
    assert read(robin, gone["fact_id"])["retracted_at"] is not None


def test_time_before_the_last_mention_does_not_count(
    robin: httpx.Client, admin: httpx.Client, superuser: Superuser
) -> None:
    likes, hates = new("likes"), new("hates")
    confirmed = [old(robin, superuser, name, seconds=9 * DAY) for name in (likes, hates)]
    for item, name in zip(confirmed, (likes, hates), strict=True):
        again = write(robin, item["subject"]["canonical"], name, "tea")
        assert (again["outcome"], again["fact"]["mentions"]) == ("reused", 2)
    policy(admin, relation=likes, mode="retract", ttl_s=DAY)
    policy(admin, relation=hates, mode="confidence", half_life_s=DAY)
    assert sweep(admin)["affected"] == 0
    assert [read(robin, item["fact_id"])["confidence"] for item in confirmed] == [1.0, 1.0]


def test_what_decayed_rises_again_when_it_is_said_again(
    robin: httpx.Client, admin: httpx.Client, superuser: Superuser
) -> None:
    name = new("likes")
    made = old(robin, superuser, name, seconds=DAY)
    policy(admin, relation=name, mode="confidence", half_life_s=DAY)
    sweep(admin)
    again = write(robin, made["subject"]["canonical"], name, "tea", confidence=1.0)
    assert (again["outcome"], again["fact"]["fact_id"]) == ("reused", made["fact_id"])
    assert again["fact"]["confidence"] == pytest.approx(0.75, rel=0.001)
    assert sweep(admin)["affected"] == 0


# Fact and edge


KEPT_ALIKE = ("confidence", "retracted_at", "weighed_at", "created_at", "valid_to", "suppression", "source_trust")


def both(superuser: Superuser, fact_id: str) -> tuple[dict[str, Any], dict[str, Any]]:
    columns = ", ".join(KEPT_ALIKE)
    row = superuser.execute(f"SELECT {columns} FROM graph_facts WHERE fact_id = %s".encode(), (fact_id,)).fetchone()
    line = superuser.execute(
        f"SELECT {columns}, decayed_at FROM entity_edges WHERE edge_id = %s".encode(), (fact_id,)
    ).fetchone()
    assert row is not None
    assert line is not None
    return row, line


@pytest.mark.parametrize(
    "rule",
    [{"mode": "confidence", "half_life_s": DAY}, {"mode": "retract", "ttl_s": DAY}],
    ids=lambda item: item["mode"],
)
def test_the_edge_decays_with_its_fact(
    robin: httpx.Client, admin: httpx.Client, superuser: Superuser, rule: dict[str, Any]
) -> None:
    name = new("knows")
    made = old(robin, superuser, name, {"entity": new()}, confidence=0.8)
    assert both(superuser, made["fact_id"])[1]["decayed_at"] is None
    policy(admin, relation=name, **rule)
    before = datetime.now(UTC)
    assert sweep(admin)["affected"] == 1
    row, line = both(superuser, made["fact_id"])
    assert {key: line[key] for key in KEPT_ALIKE} == row
    assert row["confidence"] == pytest.approx(0.2 if rule["mode"] == "confidence" else 0, rel=0.001)
    assert line["decayed_at"] is not None
    assert line["decayed_at"] >= before


def test_an_edge_that_is_confirmed_keeps_when_it_last_decayed(
    robin: httpx.Client, admin: httpx.Client, superuser: Superuser
) -> None:
    name, target = new("knows"), {"entity": new()}
    made = old(robin, superuser, name, target)
    policy(admin, relation=name, mode="confidence", half_life_s=DAY)
    sweep(admin)
    _, before = both(superuser, made["fact_id"])
    write(robin, made["subject"]["canonical"], name, target)
    row, after = both(superuser, made["fact_id"])
    assert {key: after[key] for key in KEPT_ALIKE} == row
    assert after["decayed_at"] == before["decayed_at"]
    assert after["weighed_at"] > before["weighed_at"]


# Which policy


PLACES: list[tuple[dict[str, str], float]] = [
    ({"relation": "named", "scope": "public"}, 0.4),
    ({"relation": "named"}, 0.5),
    ({"scope": "public"}, 0.6),
    ({}, 0.7),
]


@pytest.mark.parametrize("order", [1, -1], ids=["specific first", "general first"])
@pytest.mark.parametrize("without", range(5), ids=lambda number: f"without {number}")
def test_the_most_specific_policy_wins(
    robin: httpx.Client, admin: httpx.Client, superuser: Superuser, order: int, without: int
) -> None:
    name = new("likes")
    there = [
        ({**place, "relation": name} if "relation" in place else place, floor)
        for number, (place, floor) in enumerate(PLACES)
        if number >= without
    ]
    for place, floor in there[::order]:
        policy(admin, mode="confidence", half_life_s=DAY, min_confidence=floor, **place)
    facts = {
        (relation, scope): old(robin, superuser, relation, scope=scope, seconds=20 * DAY)["fact_id"]
        for relation in (name, new("hates"))
        for scope in ("public", "project_shared")
    }
    sweep(admin)
    for (relation, scope), fact_id in facts.items():
        fitting = [
            floor
            for place, floor in there
            if place.get("relation", relation) == relation and place.get("scope", scope) == scope
        ]
        assert read(robin, fact_id)["confidence"] == pytest.approx(fitting[0] if fitting else 1.0), (relation, scope)


def test_a_policy_finds_its_relation_by_any_name(
    robin: httpx.Client, admin: httpx.Client, superuser: Superuser
) -> None:
    relation, alias = predicate(robin), new("Alias")
    robin.post(f"/v1/predicates/{relation['predicate_id']}/aliases", json={"alias": alias})
    made, other = old(robin, superuser, relation["name"]), old(robin, superuser, new("hates"))
    policy(admin, relation=alias.upper(), mode="retract", ttl_s=DAY)
    sweep(admin)
    assert retracted_as(robin, made["fact_id"]) == ["decayed"]
    assert retracted_as(robin, other["fact_id"]) == []


def test_a_policy_for_a_relation_nobody_used_yet_waits_for_it(
    robin: httpx.Client, admin: httpx.Client, superuser: Superuser
) -> None:
    name = new("likes")
    policy(admin, relation=name, mode="retract", ttl_s=DAY)
    assert sweep(admin)["affected"] == 0
    made = old(robin, superuser, name)
    sweep(admin)
    assert retracted_as(robin, made["fact_id"]) == ["decayed"]


def test_exempt_relations_are_left_alone(robin: httpx.Client, admin: httpx.Client, superuser: Superuser) -> None:
    relation, alias, plain = predicate(robin), new("alias"), new("born in")
    robin.post(f"/v1/predicates/{relation['predicate_id']}/aliases", json={"alias": alias})
    by_name, by_alias = old(robin, superuser, plain), old(robin, superuser, relation["name"])
    gone = old(robin, superuser, new("likes"))
    policy(admin, mode="retract", ttl_s=DAY, exempt_relations=[plain.upper(), alias, new("never used")])
    sweep(admin)
    assert retracted_as(robin, by_name["fact_id"]) == []
    assert retracted_as(robin, by_alias["fact_id"]) == []
    assert retracted_as(robin, gone["fact_id"]) == ["decayed"]


# Only told


@pytest.mark.parametrize(
    "rule", [{"mode": "retract", "ttl_s": DAY}, {"mode": "confidence", "half_life_s": DAY}], ids=str
)
def test_a_dry_sweep_tells_and_changes_nothing(
    robin: httpx.Client, admin: httpx.Client, superuser: Superuser, rule: dict[str, Any]
) -> None:
    name = new("likes")
    made = old(robin, superuser, name, {"entity": new()}, confidence=0.8)
    before = read(robin, made["fact_id"]), both(superuser, made["fact_id"])
    policy(admin, relation=name, **rule)
    would = sweep(admin, dry_run=True)
    assert (would["dry_run"], would["affected"]) == (True, 1)
    line = told(would, made["fact_id"])
    assert (line["action"], line["confidence_before"]) == (rule["mode"], 0.8)
    assert line["confidence_after"] == pytest.approx(0 if rule["mode"] == "retract" else 0.2, rel=0.001)
    assert (read(robin, made["fact_id"]), both(superuser, made["fact_id"])) == before
    assert admin.get("/v1/decay/policies").json()["policies"][0]["swept_at"] is None
    did = sweep(admin)
    assert did["by_policy"] == would["by_policy"]
    assert told(did, made["fact_id"])["confidence_after"] == pytest.approx(line["confidence_after"], abs=0.001)
    assert read(robin, made["fact_id"]) != before[0]


@pytest.mark.parametrize("rule", [{"ttl_s": DAY}, {"half_life_s": DAY}, {"ttl_s": DAY, "half_life_s": DAY}], ids=str)
def test_a_policy_of_mode_dry_run_tells_and_changes_nothing(
    robin: httpx.Client, admin: httpx.Client, superuser: Superuser, rule: dict[str, Any]
) -> None:
    name = new("likes")
    made = old(robin, superuser, name, {"entity": new()}, confidence=0.8)
    before = read(robin, made["fact_id"]), both(superuser, made["fact_id"])
    tried = policy(admin, relation=name, mode="dry_run", **rule)
    for _ in range(2):
        swept = sweep(admin)
        assert swept["by_policy"] == [{"policy_id": tried["policy_id"], "action": "dry_run", "facts": 1}]
        line = told(swept, made["fact_id"])
        assert (line["action"], line["confidence_before"]) == ("dry_run", 0.8)
        assert line["confidence_after"] == pytest.approx(0 if "ttl_s" in rule else 0.2, rel=0.001)
    assert (read(robin, made["fact_id"]), both(superuser, made["fact_id"])) == before


def test_a_dry_policy_for_one_relation_shields_it_from_the_general_one(
    robin: httpx.Client, admin: httpx.Client, superuser: Superuser
) -> None:
    name = new("likes")
    made = old(robin, superuser, name)
    policy(admin, relation=name, mode="dry_run", ttl_s=DAY)
    policy(admin, mode="retract", ttl_s=DAY)
    sweep(admin)
    assert retracted_as(robin, made["fact_id"]) == []


# Whose facts


def test_facts_of_other_projects_and_tenants_are_untouched(
    robin: httpx.Client,
    admin: httpx.Client,
    elsewhere: httpx.Client,
    rival: httpx.Client,
    superuser: Superuser,
) -> None:
    name = new("likes")
    mine, beside, foreign = (old(client, superuser, name) for client in (robin, elsewhere, rival))
    policy(admin, mode="retract", ttl_s=DAY)
    sweep(admin)
    assert retracted_as(robin, mine["fact_id"]) == ["decayed"]
    assert read(elsewhere, beside["fact_id"])["retracted_at"] is None
    assert read(rival, foreign["fact_id"])["retracted_at"] is None


def test_private_facts_and_gardens_decay_too_and_only_their_number_is_told(
    robin: httpx.Client, admin: httpx.Client, superuser: Superuser
) -> None:
    name = new("likes")
    private = old(robin, superuser, name, scope="agent_private")
    grown = old(robin, superuser, name, garden_id=garden(robin))
    made = policy(admin, relation=name, mode="retract", ttl_s=DAY)
    would = sweep(admin, dry_run=True)
    swept = sweep(admin)
    for told_of in (would, swept):
        assert told_of["affected"] == 2
        assert told_of["by_policy"] == [{"policy_id": made["policy_id"], "action": "retract", "facts": 2}]
        assert [item["fact_id"] for item in told_of["facts"]] == [grown["fact_id"]]
    assert retracted_as(robin, private["fact_id"]) == ["decayed"]
    assert retracted_as(robin, grown["fact_id"]) == ["decayed"]


@pytest.mark.parametrize("hold", [False, True], ids=["tombstone", "legal hold"])
@pytest.mark.parametrize(
    "rule",
    [{"mode": "retract", "ttl_s": DAY}, {"mode": "confidence", "half_life_s": DAY}],
    ids=lambda item: item["mode"],
)
def test_what_is_hidden_is_left_as_it_is(
    robin: httpx.Client, admin: httpx.Client, superuser: Superuser, rule: dict[str, Any], hold: bool
) -> None:
    name = new("likes")
    hidden = old(robin, superuser, name, {"entity": new()}, confidence=0.8)
    stone = tombstone(admin, hidden["subject"]["entity_id"], legal_hold=hold)
    before = both(superuser, hidden["fact_id"])
    policy(admin, relation=name, **rule)
    assert sweep(admin, dry_run=True)["affected"] == 0
    assert sweep(admin)["affected"] == 0
    assert both(superuser, hidden["fact_id"]) == before
    admin.post(f"/v1/tombstones/{stone}/revoke", json={"reason": "by mistake"})
    assert read(robin, hidden["fact_id"])["confidence"] == 0.8
    assert sweep(admin)["affected"] == 1


def test_what_was_taken_back_already_is_not_taken_back_again(
    robin: httpx.Client, admin: httpx.Client, superuser: Superuser
) -> None:
    name = new("likes")
    made = old(robin, superuser, name)
    robin.post(f"/v1/facts/{made['fact_id']}/retract", json={})
    policy(admin, relation=name, mode="retract", ttl_s=DAY)
    assert sweep(admin)["affected"] == 0
    assert retracted_as(robin, made["fact_id"]) == ["retracted"]


def test_a_sweep_reaches_every_fact_however_many(
    robin: httpx.Client, admin: httpx.Client, superuser: Superuser
) -> None:
    name = predicate(robin)["name"]
    subject = new()
    facts = [{"subject": subject, "predicate": name, "object": {"value": number}} for number in range(1000)]
    assert robin.post("/v1/facts/batch", json={"facts": facts}).status_code == 200
    facts = [{"subject": subject, "predicate": name, "object": {"value": -number}} for number in range(1, 101)]
    assert robin.post("/v1/facts/batch", json={"facts": facts}).status_code == 200
    superuser.execute(
        "UPDATE graph_facts f SET created_at = now() - interval '2 days', weighed_at = NULL FROM graph_predicates p "
        "WHERE p.predicate_id = f.predicate_id AND p.canonical = %s",
        (name,),
    )
    policy(admin, relation=name, mode="retract", ttl_s=DAY)
    would, did = sweep(admin, dry_run=True), sweep(admin)
    assert (would["affected"], did["affected"]) == (1100, 1100)
    assert (len(did["facts"]), did["by_policy"][0]["facts"]) == (200, 1100)
    assert listed(robin, entity=subject) == []


def test_two_sweeps_at_once_let_time_pass_once(
    robin: httpx.Client, keys: dict[str, str], as_key: Callable[..., httpx.Client], superuser: Superuser
) -> None:
    likes, hates = new("likes"), new("hates")
    less = [old(robin, superuser, likes, seconds=DAY)["fact_id"] for _ in range(15)]
    gone = [old(robin, superuser, hates)["fact_id"] for _ in range(15)]
    sweepers = [as_key(keys["admin"], "default") for _ in range(3)]
    policy(sweepers[0], relation=likes, mode="confidence", half_life_s=DAY)
    policy(sweepers[0], relation=hates, mode="retract", ttl_s=DAY)
    with ThreadPoolExecutor(3) as pool:
        swept = list(pool.map(sweep, sweepers))
    assert sum(item["affected"] for item in swept) == 30
    assert [read(robin, fact_id)["confidence"] for fact_id in less] == [pytest.approx(0.5, rel=0.001)] * 15
    assert [retracted_as(robin, fact_id) for fact_id in gone] == [["decayed"]] * 15


def test_a_sweep_takes_no_other_field(admin: httpx.Client) -> None:
    for sent in ({"dryrun": True}, {"dry_run": "yes"}, {"dry_run": None}):
        assert admin.post("/v1/decay/sweep", json=sent).status_code == 400


# By schedule


def test_a_worker_sweeps_every_project_with_a_policy(
    robin: httpx.Client, admin: httpx.Client, elsewhere: httpx.Client, superuser: Superuser, database: TestDatabase
) -> None:
    likes, hates = new("likes"), new("hates")
    gone, less = old(robin, superuser, likes), old(robin, superuser, hates, {"entity": new()}, seconds=DAY)
    private = old(robin, superuser, likes, scope="agent_private")
    beside = old(elsewhere, superuser, likes)
    policy(admin, relation=likes, mode="retract", ttl_s=DAY)
    policy(admin, relation=hates, mode="confidence", half_life_s=DAY)

    def jobs() -> list[dict[str, Any]]:
        return superuser.execute(
            "SELECT tenant_id, project_id, status, created_by FROM jobs WHERE kind = 'decay'"
        ).fetchall()

    work_until(database, lambda: any(job["status"] == "completed" for job in jobs()))
    assert jobs() == [{"tenant_id": "acme", "project_id": "default", "status": "completed", "created_by": "schedule"}]
    assert retracted_as(robin, gone["fact_id"]) == ["decayed"]
    assert retracted_as(robin, private["fact_id"]) == ["decayed"]
    assert read(robin, less["fact_id"])["confidence"] == pytest.approx(0.5, rel=0.001)
    row, line = both(superuser, less["fact_id"])
    assert {key: line[key] for key in KEPT_ALIKE} == row
    assert line["decayed_at"] is not None
    assert read(elsewhere, beside["fact_id"])["retracted_at"] is None
    assert all(item["swept_at"] for item in admin.get("/v1/decay/policies").json()["policies"])


def scheduled(superuser: Superuser, *, before: datetime) -> list[str]:
    """The projects that get a decay job when all not swept since then are due; nothing stays of it."""
    with superuser.transaction(force_rollback=True):
        made = superuser.execute("SELECT job_id FROM schedule_decay(%s)", (before,)).fetchall()
        found = superuser.execute(
            "SELECT tenant_id, project_id FROM jobs WHERE job_id = ANY (%s)", ([row["job_id"] for row in made],)
        ).fetchall()
    return [f"{row['tenant_id']}/{row['project_id']}" for row in found]


def test_a_sweep_is_due_an_hour_after_the_last_one(admin: httpx.Client, superuser: Superuser) -> None:
    hour_ago = datetime.now(UTC) - timedelta(hours=1)
    assert scheduled(superuser, before=hour_ago) == []
    policy(admin, relation=new(), mode="retract", ttl_s=DAY)
    policy(admin, relation=new(), mode="confidence", half_life_s=DAY)
    assert scheduled(superuser, before=hour_ago) == ["acme/default"]
    sweep(admin, dry_run=True)
    assert scheduled(superuser, before=hour_ago) == ["acme/default"], "a dry sweep is none"
    sweep(admin)
    assert scheduled(superuser, before=hour_ago) == []
    assert scheduled(superuser, before=datetime.now(UTC)) == ["acme/default"]


def test_nobody_sweeps_for_policies_that_only_tell(admin: httpx.Client, superuser: Superuser) -> None:
    policy(admin, relation=new(), mode="dry_run", ttl_s=DAY)
    assert scheduled(superuser, before=datetime.now(UTC)) == []


def test_a_fact_of_the_future_has_not_aged(robin: httpx.Client, admin: httpx.Client) -> None:
    name = new("likes")
    made = fact(robin, new(), name, "tea", valid_from=year(2990))
    policy(admin, relation=name, mode="confidence", half_life_s=DAY)
    assert sweep(admin)["affected"] == 0
    assert read(robin, made["fact_id"])["confidence"] == 1.0


def test_a_sweep_needs_no_body(admin: httpx.Client) -> None:
    answer = admin.post("/v1/decay/sweep")
    assert answer.status_code == 200
    assert answer.json()["dry_run"] is False
