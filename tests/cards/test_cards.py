"""RECALL 20.4.1, 20.4.2, 20.4.4: what cards there are, what they tell, and to whom."""

from collections.abc import Callable
from typing import Any
from uuid import UUID, uuid4

import httpx
import pytest

from tests.cards.shared import (
    Superuser,
    built,
    card,
    cards,
    do_jobs,
    forced,
    jobs,
    section,
    table,
    text,
    values,
)
from tests.conftest import Tenancy, TestDatabase
from tests.facts.shared import entity, error, fact, garden, new, predicate, write, year


def test_20_4_1_a_card_in_its_form(robin: httpx.Client) -> None:
    name = new("Alice")
    entity(robin, name, kind="person", aliases=[f"{name} alias"])
    one = fact(robin, name, "role", "CEO", confidence=0.9, source="hr", valid_from=year(2024))
    found = card(robin, name)
    assert found == {
        "card_id": found["card_id"],
        "entity": one["subject"],
        "relation": "memory:card",
        "value": {"type": "text", "v": text(found)},
        "source": "system:palimpsest:card-generator",
        "scope": "project_shared",
        "garden_id": None,
        "confidence": 1.0,
        "card_stale": False,
        "facts": 1,
        "omitted": 0,
        "built_at": found["built_at"],
    }
    assert UUID(found["card_id"]).version == 7
    assert one["created_at"] < found["built_at"]
    markdown = text(found)
    assert markdown.startswith(f"# {name} (person)\n\nAlso known as: {name} alias\n\n## Facts\n")
    since = one["created_at"][:19] + "Z"
    assert table(markdown) == [["role", "CEO", "0.9", "hr", "2024-01-01T00:00:00Z", since]]
    assert section(markdown, "Sources") == ["- hr: 1 fact"]
    answer = robin.get(f"/v1/cards/{found['card_id']}")
    assert (answer.status_code, answer.json()) == (200, found)


def test_20_4_2_all_live_facts_are_in_it_and_no_others(robin: httpx.Client) -> None:
    name, single = new("Alice"), predicate(robin, cardinality="single")["name"]
    fact(robin, name, single, "former", valid_from=year(2020))
    fact(robin, name, single, "present", valid_from=year(2021))
    fact(robin, name, new("p"), "ends later", valid_from=year(2020), valid_to=year(2090))
    fact(robin, name, new("p"), "over", valid_from=year(2020), valid_to=year(2022))
    fact(robin, name, new("p"), "to come", valid_from=year(2090))
    fact(robin, name, new("p"), "just sure enough", confidence=0.3)
    fact(robin, name, new("p"), "hardly sure", confidence=0.29)
    fact(robin, name, new("knows"), {"entity": f"{name}'s friend"})
    fact(robin, name, new("p"), 12.5)
    fact(robin, name, new("p"), True)
    fact(robin, name, new("p"), None)
    fact(robin, f"{name}'s friend", new("knows"), {"entity": name})
    wrong = fact(robin, name, new("p"), "taken back")
    assert robin.post(f"/v1/facts/{wrong['fact_id']}/retract", json={}).status_code == 200
    found = card(robin, name)
    wanted = {"present", "ends later", "just sure enough", f"{name}'s friend", "12.5", "true", "null"}
    assert values(found) == wanted
    assert (found["facts"], found["omitted"]) == (7, 0)


def test_20_4_2_rows_by_relation_and_the_latest_assertion_first(robin: httpx.Client) -> None:
    name = new("Alice")
    zeta, alpha = (f"{letter} {uuid4().hex}" for letter in "za")
    for value in ("first", "second", "third"):
        fact(robin, name, zeta, {"entity": f"{value} {name}"})
        fact(robin, name, alpha, {"entity": f"{value} {name}"}, valid_from=year(2030 - len(value)))
    rows = [cells[:2] for cells in table(text(card(robin, name)))]
    assert rows == [
        [relation, f"{value} {name}"] for relation in (alpha, zeta) for value in ("third", "second", "first")
    ]


def test_20_4_2_trust_counts_where_the_project_judges_its_sources(
    tenancy: Tenancy, as_key: Callable[..., httpx.Client], database: TestDatabase
) -> None:
    tenancy.tenant("judging", "default")
    client, boss = as_key(tenancy.key("judging")), as_key(tenancy.key("judging", kind="admin"), "default")
    name = new("Alice")
    # .5 when no source is named, .255 of one nobody knows.
    fact(client, name, new("p"), "said by nobody", confidence=0.7)
    fact(client, name, new("p"), "hardly said", confidence=0.5)
    fact(client, name, new("p"), "from the street", confidence=1.0, source="the street")
    assert values(card(client, name)) == {"said by nobody", "hardly said", "from the street"}
    (before,) = cards(client, entity=name)
    assert not before["card_stale"]
    answer = boss.patch("/v1/admin/projects/default", json={"trust_mode": "warn"})
    assert answer.status_code == 200, answer.text
    # What the card tells is no longer what is to be told.
    assert [found["card_stale"] for found in cards(client, entity=name)] == [True]
    found = card(client, name)
    assert values(found) == {"said by nobody"}
    assert found["card_id"] == before["card_id"]


def test_20_4_2_contradictions_are_told_and_not_decided(robin: httpx.Client) -> None:
    name, born = new("Alice"), new("born in")
    fact(robin, name, born, "Bern", confidence=0.9)
    assert write(robin, name, born, "Basel", confidence=0.6)["conflicts"]
    found = card(robin, name)
    assert values(found) == {"Bern", "Basel"}
    assert section(text(found), "Contradictions") == [
        f"- {born}: Bern (confidence 0.9) against Basel (confidence 0.6)",
    ]


def test_20_4_2_over_the_cap_it_says_how_many_are_missing(robin: httpx.Client) -> None:
    name, likes = new("Alice"), new("likes")
    body = [
        {
            "subject": name,
            "predicate": likes,
            "object": {"entity": f"thing {number} of {name}"},
            "confidence": 0.3 + number * 0.001,
        }
        for number in range(600)
    ]
    assert robin.post("/v1/facts/batch", json={"facts": body}).status_code == 200
    found = card(robin, name)
    assert found["facts"] + found["omitted"] == 600
    assert found["omitted"] > 0
    assert len(text(found).encode()) <= 16_000
    assert text(found).endswith(f"\n… {found['omitted']} lower-confidence facts omitted\n")
    assert values(found) == {f"thing {number} of {name}" for number in range(found["omitted"], 600)}


def test_20_4_2_a_card_is_of_one_scope_and_garden(robin: httpx.Client, wren: httpx.Client) -> None:
    name = new("Alice")
    bed, other = garden(robin, wren="reader"), garden(robin)
    fact(robin, name, new("p"), "shared")
    fact(robin, name, new("p"), "org wide", scope="org_shared")
    fact(robin, name, new("p"), "for all", scope="public")
    fact(robin, name, new("p"), "robin's own", scope="agent_private")
    fact(wren, name, new("p"), "wren's own", scope="agent_private")
    fact(robin, name, new("p"), "in the bed", garden_id=bed)
    fact(robin, name, new("p"), "in another", garden_id=other)
    seen = {(found["scope"], found["garden_id"]): values(found) for found in built(robin, name)}
    assert seen == {
        ("project_shared", None): {"shared"},
        ("org_shared", None): {"org wide"},
        ("public", None): {"for all"},
        ("agent_private", None): {"robin's own"},
        ("project_shared", bed): {"in the bed"},
        ("project_shared", other): {"in another"},
    }
    (shared,) = [found for found in built(robin, name, scope="team") if found["garden_id"] is None]
    assert values(shared) == {"shared"}


def test_20_4_4_only_who_may_read_the_facts_gets_the_card(
    robin: httpx.Client,
    wren: httpx.Client,
    elsewhere: httpx.Client,
    admin: httpx.Client,
    rival: httpx.Client,
    database: TestDatabase,
    superuser: Superuser,
) -> None:
    name = new("Alice")
    bed = garden(robin)
    one = fact(robin, name, new("p"), "robin's own", scope="agent_private")
    fact(robin, name, new("p"), "in the bed", garden_id=bed)
    hidden = {found["card_id"] for found in built(robin, name)}
    assert len(hidden) == 2
    fact(robin, name, new("p"), "shared")
    # Also when the job makes them, which nobody's eyes bound.
    do_jobs(database, superuser)
    assert len(built(robin, name)) == 3
    assert [values(found) for found in built(wren, name)] == [{"shared"}]
    assert {frozenset(values(found)) for found in built(admin, name)} == {
        frozenset({"shared"}),
        frozenset({"in the bed"}),
    }
    assert [values(found) for found in cards(wren) if found["entity"]["entity_id"] == one["subject"]["entity_id"]] == [
        {"shared"}
    ]
    for stranger in (elsewhere, rival):
        assert forced(stranger, name)["cards"] == []
        assert cards(stranger, entity=one["subject"]["entity_id"]) == []
        assert not hidden & {found["card_id"] for found in cards(stranger)}
        for card_id in hidden:
            assert error(stranger.get(f"/v1/cards/{card_id}")) == (404, "card_not_found")
    for card_id in hidden:
        assert error(wren.get(f"/v1/cards/{card_id}")) == (404, "card_not_found")
    # Once she belongs to the garden she reads its card, and no longer when she left.
    assert robin.put(f"/v1/gardens/{bed}/members/wren", json={"role": "reader"}).status_code == 201
    assert {frozenset(values(found)) for found in cards(wren, entity=name)} == {
        frozenset({"shared"}),
        frozenset({"in the bed"}),
    }
    assert robin.delete(f"/v1/gardens/{bed}/members/wren").status_code == 204
    assert [values(found) for found in cards(wren, entity=name)] == [{"shared"}]


def test_nobody_makes_cards_of_what_they_cannot_read(
    robin: httpx.Client, wren: httpx.Client, superuser: Superuser
) -> None:
    name = new("Alice")
    one = fact(robin, name, new("p"), "robin's own", scope="agent_private")
    entity_id = one["subject"]["entity_id"]
    assert forced(wren, name) == {"cards": [], "next_cursor": None}
    assert cards(wren, entity=name) == []
    row = superuser.execute("SELECT count(*) AS n FROM memory_cards WHERE entity_id = %s", (entity_id,)).fetchone()
    assert row == {"n": 0}
    assert jobs(superuser, entity_id) == []


def test_the_job_makes_the_private_cards_of_every_agent(
    robin: httpx.Client, wren: httpx.Client, database: TestDatabase, superuser: Superuser
) -> None:
    name = new("Alice")
    fact(robin, name, new("p"), "robin's own", scope="agent_private")
    fact(wren, name, new("p"), "wren's own", scope="agent_private")
    assert cards(robin, entity=name) == []
    do_jobs(database, superuser)
    assert [values(found) for found in cards(robin, entity=name)] == [{"robin's own"}]
    assert [values(found) for found in cards(wren, entity=name)] == [{"wren's own"}]


def test_names_with_markup_stay_in_their_cells(robin: httpx.Client) -> None:
    name = f"A|lice\n## Sources {uuid4().hex}"
    fact(robin, name, new("p|q\n"), "x | y\n- z", source="a|b\nc")
    fact(robin, name, new("p"), {"entity": f"<b>|\\ {uuid4().hex}"})
    markdown = text(card(robin, name))
    assert [line for line in markdown.splitlines() if line.startswith("#")] == [
        markdown.splitlines()[0],
        "## Facts",
        "## Sources",
    ]
    rows = table(markdown)
    assert len(rows) == 2
    assert ["x \\| y - z", "a\\|b c"] in [[cells[1], cells[3]] for cells in rows]


def test_lists_page_in_the_order_of_entities(robin: httpx.Client, wren: httpx.Client) -> None:
    mine: list[str] = []
    for _ in range(5):
        name = new("Alice")
        fact(robin, name, new("p"), "shared", scope="public")
        mine += [found["card_id"] for found in built(robin, name)]
    seen: list[str] = []
    cursor = None
    while True:
        params: dict[str, Any] = {"limit": 2, "scope": "public", **({"cursor": cursor} if cursor else {})}
        answer = robin.get("/v1/cards", params=params)
        assert answer.status_code == 200, answer.text
        seen += [found["card_id"] for found in answer.json()["cards"]]
        if (cursor := answer.json()["next_cursor"]) is None:
            break
    assert [card_id for card_id in seen if card_id in mine] == mine
    assert len(seen) == len(set(seen))
    again = robin.get("/v1/cards", params={"limit": 2, "scope": "public"}).json()["next_cursor"]
    assert error(wren.get("/v1/cards", params={"limit": 2, "scope": "public", "cursor": again}))[0] == 400


def test_by_name_alias_uri_or_id_and_unknown_names_find_nothing(robin: httpx.Client) -> None:
    name, alias = new("Alice"), new("Ally")
    entity(robin, name, aliases=[alias])
    one = fact(robin, name, new("p"), "x")
    made = card(robin, name)
    for meant in (f"  {name.upper()} ", alias, one["subject"]["entity_id"]):
        assert cards(robin, entity=meant) == [made]
    assert forced(robin, new("nobody")) == {"cards": [], "next_cursor": None}
    assert cards(robin, entity=str(uuid4())) == []
    assert error(robin.get(f"/v1/cards/{uuid4()}")) == (404, "card_not_found")


def test_a_name_of_several_is_told_with_the_candidates(robin: httpx.Client) -> None:
    alias = new("Ally")
    entity(robin, new("Alice"), aliases=[alias])
    entity(robin, new("Alison"), aliases=[alias])
    assert error(robin.get("/v1/cards", params={"entity": alias})) == (409, "entity_ambiguous")


@pytest.mark.parametrize(
    "params", [{"force_refresh": "true"}, {"scope": "everybody"}, {"limit": "0"}, {"cursor": "x"}, {"entity": " "}]
)
def test_what_cannot_be_asked_is_refused(robin: httpx.Client, params: dict[str, str]) -> None:
    assert robin.get("/v1/cards", params=params).status_code == 400


def test_cards_need_the_scope_of_facts(
    tenancy: Tenancy, keys: dict[str, str], as_key: Callable[..., httpx.Client]
) -> None:
    without = as_key(tenancy.key("acme", scopes=["notes:read"]))
    assert error(without.get("/v1/cards"))[0] == 403
    assert error(without.get(f"/v1/cards/{uuid4()}"))[0] == 403
