"""Cards of other times: made of what was believed and valid then, and never kept."""

from collections.abc import Callable
from typing import Any
from uuid import uuid4

import httpx
import pytest

from tests.cards.shared import Superuser, built, card, cards, jobs, values
from tests.conftest import Tenancy
from tests.erasure.shared import tombstone
from tests.facts.shared import entity, error, fact, garden, new, predicate, year


def moment(superuser: Superuser) -> str:
    row = superuser.execute("SELECT clock_timestamp() AS now").fetchone()
    assert row is not None
    return row["now"].isoformat()


def at(client: httpx.Client, card_id: str, **params: Any) -> httpx.Response:
    return client.get(f"/v1/cards/{card_id}", params=params)


def test_a_card_of_then_tells_what_was_believed_then(robin: httpx.Client, superuser: Superuser) -> None:
    name, single = new("Alice"), predicate(robin, cardinality="single")["name"]
    entity(robin, name, aliases=[f"{name} alias"])
    fact(robin, name, single, "the old mill", confidence=0.8)
    wrong = fact(robin, name, new("owns"), "a garden", confidence=0.6)
    drinks = new("drinks")
    fact(robin, name, drinks, "oolong", confidence=0.5)
    seen = card(robin, name)
    then = moment(superuser)
    fact(robin, name, single, "the new mill")
    fact(robin, name, drinks, "oolong", confidence=0.9)
    assert robin.post(f"/v1/facts/{wrong['fact_id']}/retract", json={}).status_code == 200
    now = card(robin, name)
    assert values(now) == {"the new mill", "oolong"}
    (found,) = cards(robin, entity=name, as_of=then)
    assert found["built_at"].startswith(then[:19])
    assert {**found, "built_at": None} == {**seen, "built_at": None}
    assert at(robin, seen["card_id"], as_of=then).json() == found
    assert cards(robin, entity=name) == [now], "what is kept is as it was"


def test_a_card_of_what_was_valid_then(robin: httpx.Client, superuser: Superuser) -> None:
    name, single = new("Alice"), predicate(robin, cardinality="single")["name"]
    fact(robin, name, single, "former", valid_from=year(2020))
    before = moment(superuser)
    fact(robin, name, single, "present", valid_from=year(2022))
    fact(robin, name, new("p"), "to come", valid_from=year(2090))
    kept = card(robin, name)
    assert values(kept) == {"present"}
    for when, told in ((year(2021), {"former"}), (year(2023), {"present"}), (year(2091), {"present", "to come"})):
        (found,) = cards(robin, entity=name, valid_at=when)
        assert (values(found), found["card_stale"], found["card_id"]) == (told, False, kept["card_id"])
        assert at(robin, kept["card_id"], valid_at=when).json()["value"] == found["value"]
    (both,) = cards(robin, entity=name, valid_at=year(2023), as_of=before)
    assert values(both) == {"former"}, "as it was known then"
    assert cards(robin, entity=name, valid_at=year(2019)) == []
    assert error(at(robin, kept["card_id"], valid_at=year(2019))) == (404, "card_not_found")


def test_it_is_there_without_a_card_of_today_and_leaves_none(robin: httpx.Client, superuser: Superuser) -> None:
    name = new("Alice")
    one = fact(robin, name, new("p"), "x")
    (found,) = cards(robin, entity=name, as_of=moment(superuser))
    assert (found["card_id"], found["card_stale"], values(found)) == (None, False, {"x"})
    entity_id = one["subject"]["entity_id"]
    row = superuser.execute("SELECT count(*) AS n FROM memory_cards WHERE entity_id = %s", (entity_id,)).fetchone()
    assert row == {"n": 0}
    assert jobs(superuser, entity_id) == []


def test_contradictions_are_those_of_then(robin: httpx.Client, superuser: Superuser) -> None:
    name, born = new("Alice"), new("born in")
    fact(robin, name, born, "Bern", confidence=0.9)
    before = moment(superuser)
    fact(robin, name, born, "Basel", confidence=0.6)
    for when, told in (
        ({"as_of": before}, False),
        ({"as_of": moment(superuser)}, True),
        ({"valid_at": year(2090)}, True),
    ):
        (found,) = cards(robin, entity=name, **when)
        assert ("Contradictions" in found["value"]["v"]) is told


def test_each_place_has_its_own_and_only_for_who_may_read_it(
    robin: httpx.Client, wren: httpx.Client, rival: httpx.Client, superuser: Superuser
) -> None:
    name = new("Alice")
    bed, nook = garden(robin), garden(robin, scope="agent_private")
    one = fact(robin, name, new("p"), "shared")
    fact(robin, name, new("p"), "robin's own", scope="agent_private")
    fact(robin, name, new("p"), "robin's own in the nook", scope="agent_private", garden_id=nook)
    fact(robin, name, new("p"), "in the bed", garden_id=bed)
    then = moment(superuser)
    told = {(found["scope"], found["garden_id"]): values(found) for found in cards(robin, entity=name, as_of=then)}
    assert told == {
        ("project_shared", None): {"shared"},
        ("agent_private", None): {"robin's own"},
        ("agent_private", nook): {"robin's own in the nook"},
        ("project_shared", bed): {"in the bed"},
    }
    assert {found["scope"] for found in cards(robin, entity=name, as_of=then, scope="local")} == {"agent_private"}
    assert [values(found) for found in cards(wren, entity=name, as_of=then)] == [{"shared"}]
    assert cards(rival, entity=one["subject"]["entity_id"], as_of=then) == []
    for kept in built(robin, name):
        readable = (kept["scope"], kept["garden_id"]) == ("project_shared", None)
        assert at(wren, kept["card_id"], as_of=moment(superuser)).status_code == (200 if readable else 404)


def test_pages_show_each_place_once(robin: httpx.Client, superuser: Superuser) -> None:
    name = new("Alice")
    for scope in ("agent_private", "project_shared", "org_shared", "public"):
        fact(robin, name, new("p"), scope, scope=scope)
    then = moment(superuser)
    seen: list[str] = []
    cursor: dict[str, str] = {}
    while True:
        answer = robin.get("/v1/cards", params={"entity": name, "as_of": then, "limit": 1, **cursor})
        assert answer.status_code == 200, answer.text
        seen += [found["scope"] for found in answer.json()["cards"]]
        if answer.json()["next_cursor"] is None:
            break
        cursor = {"cursor": answer.json()["next_cursor"]}
    assert seen == sorted(["agent_private", "project_shared", "org_shared", "public"])
    assert robin.get("/v1/cards", params={"entity": name, "limit": 1, **cursor}).status_code == 400


@pytest.mark.parametrize("hold", [False, True])
def test_what_was_forgotten_is_in_no_card_of_then(
    robin: httpx.Client, admin: httpx.Client, superuser: Superuser, hold: bool
) -> None:
    name, other = new("Mallory"), new("Alice")
    fact(robin, name, new("p"), "x")
    fact(robin, other, new("p"), "y")
    fact(robin, other, new("knows"), {"entity": name})
    kept = card(robin, name)
    then = moment(superuser)
    tombstone(admin, name, legal_hold=hold)
    for client in (robin, admin):
        assert cards(client, entity=name, as_of=then) == []
        assert error(at(client, kept["card_id"], as_of=then)) == (404, "card_not_found")
        assert [values(found) for found in cards(client, entity=other, as_of=then)] == [{"y"}]


def test_looking_back_needs_its_scope_and_respects_the_floor(
    robin: httpx.Client, tenancy: Tenancy, as_key: Callable[..., httpx.Client], superuser: Superuser
) -> None:
    name = new("Alice")
    fact(robin, name, new("p"), "x")
    kept = card(robin, name)
    then = moment(superuser)
    present = as_key(tenancy.key("acme", agent_id="robin", scopes=["facts:read"]))

    def asks(client: httpx.Client, **params: Any) -> set[tuple[int, str]]:
        listed = client.get("/v1/cards", params={"entity": name, **params})
        return {error(listed), error(at(client, kept["card_id"], **params))}

    assert asks(present, as_of=then) == {(403, "missing_scope")}
    assert len(cards(present, entity=name, valid_at=then)) == 1
    assert asks(robin, as_of=year(2999)) == {(400, "as_of_future")}
    assert asks(robin, as_of="yesterday") == {(400, "as_of_invalid_timestamp")}
    assert asks(robin, valid_at="yesterday") == {(400, "invalid_request")}
    place = "tenant_id = 'acme' AND project_id = 'default'"
    superuser.execute(
        f"UPDATE projects SET settings = settings || jsonb_build_object('as_of_floor', %s::text) WHERE {place}",
        (moment(superuser),),
    )
    try:
        assert asks(robin, as_of=then) == {(400, "as_of_before_retention_floor")}
    finally:
        superuser.execute(f"UPDATE projects SET settings = settings - 'as_of_floor' WHERE {place}")


def test_cards_of_then_are_of_one_entity(robin: httpx.Client, superuser: Superuser) -> None:
    then = moment(superuser)
    answer = robin.get("/v1/cards", params={"as_of": then})
    assert answer.status_code == 400
    assert answer.json()["error"]["message"].startswith("entity: ")
    assert cards(robin, entity=new("nobody"), as_of=then) == []
    assert error(at(robin, str(uuid4()), as_of=then)) == (404, "card_not_found")
