"""RECALL 20.4.3, 20.4.5: when a card is stale, how it is made anew, and that a wrong one never passes for right."""

import json
import time
from collections.abc import AsyncIterator, Callable
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

import httpx
import psycopg
import pytest

from app.access import Principal
from app.cards import service
from app.db.database import Database
from app.main import open_database
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
from tests.facts.shared import entity, fact, finish_job, new, predicate, write, year


def stale(client: httpx.Client, name: str) -> bool:
    (found,) = cards(client, entity=name)
    return found["card_stale"]


def retract(client: httpx.Client, told: dict[str, Any]) -> None:
    assert client.post(f"/v1/facts/{told['fact_id']}/retract", json={}).status_code == 200


@pytest.fixture
def name(robin: httpx.Client) -> str:
    return known(robin)


def known(robin: httpx.Client) -> str:
    """Somebody with a card of one fact."""
    made = new("Alice")
    fact(robin, made, new("p"), "known", confidence=0.8)
    assert values(card(robin, made)) == {"known"}
    assert not stale(robin, made)
    return made


def entity_id(client: httpx.Client, name: str) -> str:
    (found,) = cards(client, entity=name)
    return found["entity"]["entity_id"]


def test_20_4_3_a_new_fact_makes_it_stale_until_the_job_is_done(
    robin: httpx.Client, name: str, database: TestDatabase, superuser: Superuser
) -> None:
    (before,) = cards(robin, entity=name)
    fact(robin, name, new("p"), "news")
    # The old one stays readable, and says so.
    for _ in range(3):
        (found,) = cards(robin, entity=name)
        assert found == {**before, "card_stale": True}
    assert robin.get(f"/v1/cards/{before['card_id']}").json()["card_stale"]
    # One job, however often it was asked for.
    assert len(jobs(superuser, entity_id(robin, name), status="pending")) == 1
    do_jobs(database, superuser)
    (after,) = cards(robin, entity=name)
    assert values(after) == {"known", "news"}
    assert not after["card_stale"]
    assert after["card_id"] == before["card_id"]
    assert after["built_at"] > before["built_at"]


def test_no_card_yet_makes_a_job_and_nobody_waits(
    robin: httpx.Client, database: TestDatabase, superuser: Superuser
) -> None:
    name = new("Alice")
    one = fact(robin, name, new("p"), "known")
    assert jobs(superuser, one["subject"]["entity_id"]) == []
    assert cards(robin, entity=name) == []
    assert cards(robin, entity=name) == []
    assert len(jobs(superuser, one["subject"]["entity_id"])) == 1
    do_jobs(database, superuser)
    assert [values(found) for found in cards(robin, entity=name)] == [{"known"}]
    assert len(jobs(superuser, one["subject"]["entity_id"])) == 1


def test_nothing_to_tell_makes_no_job(robin: httpx.Client, superuser: Superuser) -> None:
    name = new("Alice")
    made = entity(robin, name)
    fact(robin, name, new("p"), "hardly", confidence=0.1)
    assert cards(robin, entity=name) == []
    assert built(robin, name) == []
    assert jobs(superuser, made["entity_id"]) == []


def test_20_4_3_said_again_taken_back_and_ended_make_it_stale(robin: httpx.Client, name: str) -> None:
    other, relation = fact(robin, name, new("p"), "other"), new("p")
    again = fact(robin, name, relation, "again", confidence=0.5, valid_from=year(2020))
    assert values(card(robin, name)) == {"known", "other", "again"}
    fact(robin, name, relation, "again", confidence=1.0)
    assert stale(robin, name)
    rows = {cells[1]: cells[2] for cells in table(text(card(robin, name)))}
    assert rows["again"] == "0.75"
    retract(robin, other)
    assert stale(robin, name)
    assert values(card(robin, name)) == {"known", "again"}
    # It ended long before the card was made, which is known only now.
    assert robin.patch(f"/v1/facts/{again['fact_id']}", json={"valid_to": year(2022)}).status_code == 200
    assert stale(robin, name)
    assert values(card(robin, name)) == {"known"}


def test_20_4_5_what_begins_or_ends_by_the_clock_makes_it_stale(robin: httpx.Client, superuser: Superuser) -> None:
    def clock() -> datetime:
        row = superuser.execute("SELECT clock_timestamp() AS now").fetchone()
        assert row is not None
        return row["now"]

    # On a slow machine the moment may pass before the card was read: then once more, with a later one.
    for seconds in (1.2, 5, 20, 60):
        name = known(robin)
        soon = clock() + timedelta(seconds=seconds)
        fact(robin, name, new("p"), "ends soon", valid_from=year(2020), valid_to=soon.isoformat())
        fact(robin, name, new("p"), "begins soon", valid_from=soon.isoformat())
        before, was_stale = values(card(robin, name)), stale(robin, name)
        if clock() < soon:
            break
    assert before == {"known", "ends soon"}
    assert not was_stale
    while clock() <= soon:
        time.sleep(0.05)
    assert stale(robin, name)
    assert values(card(robin, name)) == {"known", "begins soon"}
    assert not stale(robin, name)


def test_20_4_3_decay_of_a_constituent_makes_it_stale_and_queues_it(
    tenancy: Tenancy, as_key: Callable[..., httpx.Client], database: TestDatabase, superuser: Superuser
) -> None:
    tenancy.tenant("fading")
    client, boss = as_key(tenancy.key("fading")), as_key(tenancy.key("fading", kind="admin"), "default")
    name, relation = new("Alice"), new("p")
    one = fact(client, name, relation, "fading")
    fact(client, name, new("p"), "lasting")
    (made,) = built(client, name)
    policy = {"relation": relation, "mode": "confidence", "half_life_s": 86_400}
    assert boss.post("/v1/decay/policies", json=policy).status_code == 201
    superuser.execute(
        "UPDATE graph_facts SET created_at = created_at - interval '1 day' WHERE fact_id = %s", (one["fact_id"],)
    )
    assert boss.post("/v1/decay/sweep", json={"dry_run": True}).json()["affected"] == 1
    assert not stale(client, name)
    assert jobs(superuser, made["entity"]["entity_id"]) == []
    assert boss.post("/v1/decay/sweep").json()["affected"] == 1
    assert len(jobs(superuser, made["entity"]["entity_id"])) == 1
    assert stale(client, name)
    do_jobs(database, superuser)
    assert not stale(client, name)
    rows = {cells[1]: float(cells[2]) for cells in table(text(cards(client, entity=name)[0]))}
    assert rows["lasting"] == 1
    assert rows["fading"] == pytest.approx(0.5, abs=0.01)


def test_20_4_3_cards_themselves_do_not_decay(
    tenancy: Tenancy, as_key: Callable[..., httpx.Client], superuser: Superuser
) -> None:
    tenancy.tenant("timeless")
    client, boss = as_key(tenancy.key("timeless")), as_key(tenancy.key("timeless", kind="admin"), "default")
    name = new("Alice")
    fact(client, name, new("p"), "x")
    (made,) = built(client, name)
    assert boss.post("/v1/decay/policies", json={"mode": "retract", "ttl_s": 1e6}).status_code == 201
    old = {"id": made["card_id"]}
    superuser.execute("UPDATE memory_cards SET built_at = built_at - interval '1 year' WHERE card_id = %(id)s", old)
    assert boss.post("/v1/decay/sweep").json()["affected"] == 0
    (found,) = cards(client, entity=name)
    assert (found["confidence"], found["value"]) == (1.0, made["value"])


def test_20_4_3_a_card_of_a_day_is_stale(robin: httpx.Client, name: str, superuser: Superuser) -> None:
    (made,) = cards(robin, entity=name)

    def let_pass(interval: str) -> None:
        superuser.execute(
            "UPDATE memory_cards SET built_at = built_at - %s::interval WHERE card_id = %s", (interval, made["card_id"])
        )
        superuser.execute(
            "UPDATE graph_facts SET updated_at = updated_at - %s::interval, valid_from = valid_from - %s::interval "
            "WHERE subject_entity_id = %s",
            (interval, interval, made["entity"]["entity_id"]),
        )

    let_pass("86390 seconds")
    assert not stale(robin, name)
    let_pass("20 seconds")
    assert stale(robin, name)
    assert len(jobs(superuser, made["entity"]["entity_id"], status="pending")) == 1
    built(robin, name)
    assert not stale(robin, name)


def test_20_4_3_a_conflict_that_is_found_or_resolved_makes_it_stale_and_queues_it(
    robin: httpx.Client, name: str, database: TestDatabase, superuser: Superuser
) -> None:
    born = new("born in")
    one = fact(robin, name, born, "Bern", confidence=0.9)
    assert "Contradictions" not in text(card(robin, name))
    (conflict_id,) = write(robin, name, born, "Basel", confidence=0.6)["conflicts"]
    assert stale(robin, name)
    assert len(section(text(card(robin, name)), "Contradictions")) == 1
    done = len(jobs(superuser, entity_id(robin, name), status="completed"))
    do_jobs(database, superuser)
    answer = robin.post(f"/v1/conflicts/{conflict_id}/resolve", json={"winner": one["fact_id"]})
    assert answer.status_code == 200, answer.text
    assert len(jobs(superuser, entity_id(robin, name), status="pending")) == 1
    assert stale(robin, name)
    do_jobs(database, superuser)
    assert len(jobs(superuser, entity_id(robin, name), status="completed")) > done
    (found,) = cards(robin, entity=name)
    assert not found["card_stale"]
    assert values(found) == {"known", "Bern"}
    assert "Contradictions" not in text(found)


def test_20_4_5_a_conflict_that_ends_with_its_predicate_makes_it_stale(robin: httpx.Client, name: str) -> None:
    born = new("speaks")
    first = fact(robin, name, born, "German")
    fact(robin, name, born, "French")
    assert len(section(text(card(robin, name)), "Contradictions")) == 1
    predicate_id = first["predicate"]["predicate_id"]
    answer = robin.patch(f"/v1/predicates/{predicate_id}", json={"status": "active", "cardinality": "multi"})
    assert answer.status_code == 200, answer.text
    assert stale(robin, name)
    assert "Contradictions" not in text(card(robin, name))


def test_20_4_5_other_names_or_another_kind_make_it_stale(robin: httpx.Client, name: str) -> None:
    made = robin.post("/v1/entities", json={"canonical": name, "kind": "person"})
    assert made.status_code == 200, made.text
    assert stale(robin, name)
    assert "(person)" in text(card(robin, name))
    alias = new("Ally")
    given = robin.post(f"/v1/entities/{entity_id(robin, name)}/aliases", json={"alias": alias})
    assert given.status_code == 201, given.text
    assert stale(robin, name)
    assert f"Also known as: {alias}\n" in text(card(robin, name))


def test_20_4_5_a_merge_leaves_no_card_of_before(
    robin: httpx.Client, name: str, database: TestDatabase, superuser: Superuser
) -> None:
    other, friend = new("Alicia"), new("Bob")
    fact(robin, other, new("p"), "of the other")
    fact(robin, friend, new("knows"), {"entity": other})
    built(robin, other)
    assert values(card(robin, friend)) == {other}
    source = entity_id(robin, other)
    answer = robin.post(f"/v1/entities/{entity_id(robin, name)}/merge", json={"from": source})
    assert answer.status_code == 200, answer.text
    assert cards(robin, entity=name) == cards(robin, entity=other) == []
    assert stale(robin, friend)
    do_jobs(database, superuser)
    (found,) = cards(robin, entity=other)
    assert values(found) == {"known", "of the other"}
    assert f"Also known as: {other}" in text(found)
    assert [values(found) for found in cards(robin, entity=friend)] == [{name}]


def test_20_4_5_another_trust_in_its_source_makes_it_stale(
    tenancy: Tenancy, as_key: Callable[..., httpx.Client], database: TestDatabase, superuser: Superuser
) -> None:
    tenancy.tenant("trusting")
    client, boss = as_key(tenancy.key("trusting")), as_key(tenancy.key("trusting", kind="admin"), "default")
    assert boss.patch("/v1/admin/projects/default", json={"trust_mode": "enforce"}).status_code == 200
    name = new("Alice")
    fact(client, name, new("p"), "by one", source="one")
    fact(client, name, new("p"), "by two", source="two")
    fact(client, name, new("p"), "by nobody")
    assert values(card(client, name)) == {"by nobody", "by one", "by two"}

    def judge(**blocked: bool) -> None:
        for source, blocklisted in blocked.items():
            answer = boss.put("/v1/sources", json={"source": source, "blocklisted": blocklisted})
            assert answer.status_code in (200, 201), answer.text
            finish_job(database, superuser, answer.json()["job_id"])

    judge(one=True)
    assert stale(client, name)
    assert values(card(client, name)) == {"by nobody", "by two"}
    # As many as before, but not the same.
    judge(one=False, two=True)
    assert stale(client, name)
    assert values(card(client, name)) == {"by nobody", "by one"}


def test_a_card_of_which_nothing_is_left_goes(
    robin: httpx.Client, name: str, database: TestDatabase, superuser: Superuser
) -> None:
    (made,) = cards(robin, entity=name)
    answer = robin.post("/v1/facts/retract", json={"subject": name, "predicate": table(text(made))[0][0]})
    assert answer.status_code == 200, answer.text
    assert [found["card_stale"] for found in cards(robin, entity=name)] == [True]
    do_jobs(database, superuser)
    assert cards(robin, entity=name) == []
    row = superuser.execute("SELECT count(*) AS n FROM memory_cards WHERE card_id = %s", (made["card_id"],)).fetchone()
    assert row == {"n": 0}


def test_a_card_that_changed_is_queued_for_embedding_and_one_that_did_not_is_not(
    robin: httpx.Client, name: str, superuser: Superuser
) -> None:
    (made,) = cards(robin, entity=name)

    def queued() -> int:
        row = superuser.execute(
            "WITH gone AS (DELETE FROM embedding_queue WHERE owner_kind = 'card' AND owner_id = %s RETURNING 1) "
            "SELECT count(*) AS n FROM gone",
            (made["card_id"],),
        ).fetchone()
        assert row is not None
        return row["n"]

    assert queued() > 0
    again = card(robin, name)
    assert again["built_at"] > made["built_at"]
    assert queued() == 0
    fact(robin, name, new("p"), "news")
    built(robin, name)
    assert queued() > 0


def test_20_4_3_force_refresh_is_done_within_half_a_second(robin: httpx.Client, name: str) -> None:
    fact(robin, name, new("p"), "news")
    took: list[float] = []
    for _ in range(5):
        began = time.monotonic()
        (found,) = built(robin, name)
        took.append(time.monotonic() - began)
        assert values(found) == {"known", "news"}
    assert min(took) < 0.5


@pytest.mark.parametrize("had_card", [True, False])
def test_20_4_3_force_refresh_that_takes_too_long_serves_what_there_is(
    robin: httpx.Client, name: str, database: TestDatabase, superuser: Superuser, had_card: bool
) -> None:
    fact(robin, name, new("p"), "news")
    (before,) = cards(robin, entity=name)
    if not had_card:
        superuser.execute("DELETE FROM memory_cards WHERE card_id = %s", (before["card_id"],))
    with psycopg.connect(database.superuser) as blocker:
        blocker.execute("SELECT FROM graph_entities WHERE entity_id = %s FOR UPDATE", (before["entity"]["entity_id"],))
        began = time.monotonic()
        body = forced(robin, name)
        assert time.monotonic() - began < 3
    assert body["force_refresh_timeout"] is True
    # Nothing half-made.
    assert body["cards"] == ([{**before, "card_stale": True}] if had_card else [])
    assert len(jobs(superuser, before["entity"]["entity_id"], status="pending")) == 1
    assert values(card(robin, name)) == {"known", "news"}


def in_project(database: TestDatabase) -> psycopg.Connection[Any]:
    """The service's own role, in robin's scope; nothing is committed until the block ends."""
    connection = psycopg.connect(database.app)
    connection.execute("SELECT set_scope('acme', 'default', 'robin', NULL, '')")
    return connection


def test_20_4_5_what_is_being_written_is_waited_for(robin: httpx.Client, name: str, database: TestDatabase) -> None:
    """A card made meanwhile would not know of it, although it bears an earlier time."""
    gone = fact(robin, name, new("p"), "soon gone")
    built(robin, name)
    with in_project(database) as writer:
        writer.execute("SELECT * FROM retract_facts(%s::uuid[], NULL, NULL, NULL, NULL, false)", ([gone["fact_id"]],))
        assert forced(robin, name)["force_refresh_timeout"] is True
    assert stale(robin, name)
    assert values(card(robin, name)) == {"known"}


def test_20_4_5_a_predicate_that_is_being_changed_is_waited_for(
    robin: httpx.Client, name: str, database: TestDatabase
) -> None:
    speaks = new("speaks")
    one = fact(robin, name, speaks, "German")
    fact(robin, name, speaks, "French")
    built(robin, name)
    with in_project(database) as writer:
        writer.execute(
            "SELECT * FROM configure_predicate(%s::uuid, 'multi', 'active', false)", (one["predicate"]["predicate_id"],)
        )
        assert forced(robin, name)["force_refresh_timeout"] is True
    assert stale(robin, name)
    assert "Contradictions" not in text(card(robin, name))


def test_what_was_read_earlier_does_not_replace_what_was_read_later(
    robin: httpx.Client, name: str, database: TestDatabase
) -> None:
    (made,) = cards(robin, entity=name)
    about = made["entity"]["entity_id"]
    with in_project(database) as slow:
        (read_at,) = slow.execute("SELECT read_at FROM read_card_facts(%s)", (about,)).fetchone() or (None,)
    fact(robin, name, new("p"), "news")
    later = card(robin, name)
    place = {"card_id": made["card_id"], "scope": "project_shared", "owner_key": ""}
    old = json.dumps([{**place, "content": "old", "facts": 1, "omitted": 0}])
    with in_project(database) as slow:
        slow.execute("SELECT store_cards(%s, %s, NULL, %s)", (about, read_at, old))
        # Nor does it remove what it had not heard of.
        slow.execute("SELECT store_cards(%s, %s, NULL, '[]')", (about, read_at))
    assert cards(robin, entity=name) == [later]


def test_the_functions_know_no_other_project_or_tenant(robin: httpx.Client, name: str, database: TestDatabase) -> None:
    (made,) = cards(robin, entity=name)
    about = made["entity"]["entity_id"]
    for scope in (("acme", "other"), ("rival", "default"), ("", "")):
        with psycopg.connect(database.app) as stranger:
            stranger.execute("SELECT set_scope(%s, %s, 'robin', NULL, '')", scope)
            assert stranger.execute("SELECT * FROM read_card_facts(%s)", (about,)).fetchall() == []
            stored = stranger.execute("SELECT store_cards(%s, now(), NULL, '[]')", (about,)).fetchone()
            assert stored == ("gone",)
    assert cards(robin, entity=name) == [made]


def principal(agent: str = "robin") -> Principal:
    return Principal(
        tenant_id="acme",
        project_id="default",
        agent_id=agent,
        key_id="test",
        kind="agent",
        scopes=frozenset({"facts:read"}),
    )


@pytest.fixture
async def db(database: TestDatabase) -> AsyncIterator[Database]:
    made = open_database(database.settings())
    await made.open()
    yield made
    await made.close()


@pytest.mark.anyio
async def test_20_4_5_what_diverges_is_named(db: Database, robin: httpx.Client, name: str) -> None:
    (made,) = cards(robin, entity=name)
    about: dict[str, Any] = {"entity_id": UUID(made["entity"]["entity_id"])}
    (found,) = await service.find_cards(db, principal(), **about)
    assert (found.stale, found.divergent) == (False, [])
    relation = new("p")
    one, two = fact(robin, name, relation, {"entity": "one"}), fact(robin, name, relation, {"entity": "two"})
    gone = fact(robin, name, relation, {"entity": "three"})
    retract(robin, gone)
    (found,) = await service.find_cards(db, principal(), **about)
    assert found.stale
    assert found.read.card_stale
    assert found.divergent == [UUID(two["fact_id"]), UUID(one["fact_id"])]
    assert await service.find_cards(db, principal(), **about, scope="public") == []
    (aged,) = await service.find_cards(db, principal(), **about, max_age=0)
    assert aged.stale


@pytest.mark.anyio
async def test_20_4_3_refresh_now_keeps_to_its_budget(db: Database, robin: httpx.Client, name: str) -> None:
    (made,) = cards(robin, entity=name)
    about: dict[str, Any] = {"entity_id": UUID(made["entity"]["entity_id"])}
    found, timed_out = await service.refresh_now(db, principal(), **about, budget=0.0)
    assert timed_out
    assert [card.stale for card in found] == [True]
    assert [card.read.built_at.isoformat() for card in found] == [made["built_at"].replace("Z", "+00:00")]
    fact(robin, name, new("p"), "news")
    found, timed_out = await service.refresh_now(db, principal(), **about, budget=5.0)
    assert not timed_out
    assert [card.stale for card in found] == [False]
    assert found[0].read.facts == 2


def test_20_4_5_a_single_value_that_is_superseded_does_not_pass_for_present(robin: httpx.Client) -> None:
    name, role = new("Alice"), predicate(robin, cardinality="single")["name"]
    fact(robin, name, role, "CTO", valid_from=year(2020))
    assert values(card(robin, name)) == {"CTO"}
    fact(robin, name, role, "CEO", valid_from=year(2021))
    assert stale(robin, name)
    assert values(card(robin, name)) == {"CEO"}
