"""What is forgotten is in no card, from that moment on; what is restored is told again."""

import json
from typing import Any

import httpx
import psycopg
import pytest

from tests.cards.shared import Superuser, built, card, cards, forced, text, values
from tests.conftest import TestDatabase
from tests.erasure.conftest import worker  # noqa: F401
from tests.erasure.shared import revoke, tombstone, until_erased
from tests.facts.shared import entity, fact, new


def stored(superuser: Superuser, *entity_ids: str) -> list[dict[str, Any]]:
    """Cards of these entities that are there at all, whoever may see them."""
    return superuser.execute(
        "SELECT * FROM memory_cards WHERE entity_id = ANY (%s::uuid[])", ([*entity_ids],)
    ).fetchall()


def vectors(superuser: Superuser, *card_ids: str) -> int:
    row = superuser.execute(
        "SELECT (SELECT count(*) FROM embeddings WHERE owner_id = ANY (%(ids)s::uuid[])) "
        "+ (SELECT count(*) FROM embedding_queue WHERE owner_id = ANY (%(ids)s::uuid[])) AS n",
        {"ids": [*card_ids]},
    ).fetchone()
    assert row is not None
    return row["n"]


def embed(superuser: Superuser, card_id: str) -> None:
    """A vector for a card, as a worker would have made it."""
    superuser.execute(
        "INSERT INTO embeddings (tenant_id, project_id, owner_kind, owner_id, view, model_id, agent_id, scope, "
        "garden_id, suppression, text_hash, embedded_at, vector) "
        "SELECT c.tenant_id, c.project_id, 'card', c.card_id, 'self', m.model_id, c.agent_id, c.scope, c.garden_id, "
        "c.suppression, '\\x00', now(), array_fill(0.1, ARRAY[m.dimensions])::vector "
        "FROM memory_cards c CROSS JOIN embedding_models m WHERE c.card_id = %s",
        (card_id,),
    )


@pytest.mark.parametrize("hold", [False, True])
def test_a_tombstone_takes_the_card_away_at_once_and_revoking_lets_it_be_made_again(
    robin: httpx.Client, admin: httpx.Client, superuser: Superuser, hold: bool
) -> None:
    name = new("Alice")
    fact(robin, name, new("p"), "known")
    fact(robin, name, new("p"), "private", scope="agent_private")
    before = built(robin, name)
    assert len(before) == 2
    for found in before:
        embed(superuser, found["card_id"])
    made = tombstone(admin, name, legal_hold=hold)
    for client in (robin, admin):
        assert cards(client, entity=name) == []
        assert forced(client, name)["cards"] == []
        assert not {found["card_id"] for found in before} & {found["card_id"] for found in cards(client)}
        for found in before:
            assert client.get(f"/v1/cards/{found['card_id']}").status_code == 404
    assert stored(superuser, before[0]["entity"]["entity_id"]) == []
    assert vectors(superuser, *(found["card_id"] for found in before)) == 0
    # Nor do facts that are born hidden make one.
    fact(robin, name, new("p"), "said meanwhile")
    assert forced(robin, name)["cards"] == []
    revoke(admin, made)
    after = {found["scope"]: values(found) for found in built(robin, name)}
    assert after == {"project_shared": {"known", "said meanwhile"}, "agent_private": {"private"}}


def test_a_tombstone_in_one_scope_takes_that_card_alone(
    robin: httpx.Client, admin: httpx.Client, superuser: Superuser
) -> None:
    name = new("Alice")
    fact(robin, name, new("p"), "known")
    fact(robin, name, new("p"), "for all", scope="public")
    kept = {found["scope"]: found for found in built(robin, name)}["public"]
    made = tombstone(admin, name, scope="project_shared")
    assert cards(robin, entity=name) == [kept]
    assert [values(found) for found in built(robin, name)] == [{"for all"}]
    revoke(admin, made)
    assert {found["scope"] for found in built(robin, name)} == {"project_shared", "public"}


@pytest.mark.parametrize("by", ["object", "value"])
def test_the_card_of_another_no_longer_names_who_is_forgotten(
    robin: httpx.Client, admin: httpx.Client, superuser: Superuser, by: str
) -> None:
    name, friend = new("Alice"), new("Bob")
    entity(robin, name)
    fact(robin, friend, new("knows"), {"entity": name} if by == "object" else f"a friend of {name}, they say")
    fact(robin, friend, new("p"), "known")
    before = card(robin, friend)
    embed(superuser, before["card_id"])
    assert name in text(before)
    made = tombstone(admin, name)
    assert name not in json.dumps(cards(robin))
    assert all(name not in row["content"] for row in stored(superuser, before["entity"]["entity_id"]))
    assert vectors(superuser, before["card_id"]) == 0
    during = card(robin, friend)
    assert values(during) == {"known"}
    assert name not in text(during)
    # Restored, it is missing in the card that was made meanwhile, which must not pass for right.
    revoke(admin, made)
    assert all(found["card_stale"] for found in cards(robin, entity=friend))
    assert name in text(card(robin, friend))


def test_a_card_that_was_being_made_when_somebody_was_forgotten_is_not_kept(
    robin: httpx.Client, admin: httpx.Client, database: TestDatabase, superuser: Superuser
) -> None:
    name, friend = new("Alice"), new("Bob")
    told = fact(robin, friend, new("knows"), {"entity": name})
    about = told["subject"]["entity_id"]
    scope = "SELECT set_scope('acme', 'default', '', NULL, '')"
    with psycopg.connect(database.app) as slow:
        slow.execute(scope)
        row = slow.execute("SELECT read_at, facts FROM read_card_facts(%s)", (about,)).fetchone()
    assert row is not None
    assert name in row[1]
    made = tombstone(admin, name)
    late = json.dumps(
        [
            {
                "card_id": told["fact_id"],
                "scope": "project_shared",
                "owner_key": "",
                "content": name,
                "facts": 1,
                "omitted": 0,
            }
        ]
    )
    store = "SELECT store_cards(%s, %s, NULL, %s)"
    with psycopg.connect(database.app) as slow:
        slow.execute(scope)
        assert slow.execute(store, (about, row[0], late)).fetchone() == ("changed",)
    assert stored(superuser, about) == []
    revoke(admin, made)
    with psycopg.connect(database.app) as slow:
        slow.execute(scope)
        assert slow.execute(store, (about, row[0], late)).fetchone() == ("changed",)


def test_a_card_waits_for_a_tombstone_that_is_being_issued(
    robin: httpx.Client, database: TestDatabase, superuser: Superuser
) -> None:
    name = new("Alice")
    fact(robin, name, new("p"), "known")
    with psycopg.connect(database.superuser) as issuing:
        issuing.execute("SELECT FROM projects WHERE tenant_id = 'acme' AND project_id = 'default' FOR NO KEY UPDATE")
        assert forced(robin, name) == {"cards": [], "next_cursor": None, "force_refresh_timeout": True}
    assert values(card(robin, name)) == {"known"}


@pytest.mark.usefixtures("worker")
def test_erasure_removes_cards_of_and_about_the_entity_and_says_so(
    robin: httpx.Client, admin: httpx.Client, superuser: Superuser
) -> None:
    name, friend, third = new("Alice"), new("Bob"), new("Carol")
    fact(robin, name, new("p"), "known")
    fact(robin, name, new("p"), "private", scope="agent_private")
    fact(robin, friend, new("knows"), {"entity": name})
    fact(robin, friend, new("p"), "stays")
    fact(robin, third, new("p"), "said by her", source=f"letter of {name}")
    mine = built(robin, name)
    other, heard = card(robin, friend), card(robin, third)
    assert name in text(heard)
    ids = [found["entity"]["entity_id"] for found in (mine[0], other, heard)]
    made = tombstone(admin, name, erase=True)
    receipt = until_erased(admin, made)
    signed = json.loads(receipt["signed"])
    assert "memory_cards" in signed["destroyed"]
    assert [left for left in signed["names_left"] if left["table"] in ("memory_cards", "jobs", "embeddings")] == []
    assert stored(superuser, ids[0]) == []
    assert all(name not in row["content"] for row in stored(superuser, *ids))
    row = superuser.execute("SELECT count(*) AS n FROM jobs WHERE dedupe_key = %s", (ids[0],)).fetchone()
    assert row == {"n": 0}
    assert forced(robin, name)["cards"] == []
    assert values(card(robin, friend)) == {"stays"}
    assert name not in text(card(robin, third))


@pytest.mark.usefixtures("worker")
def test_erasure_takes_what_was_told_of_it_since_the_tombstone(
    robin: httpx.Client, admin: httpx.Client, superuser: Superuser
) -> None:
    name, friend = new("Alice"), new("Bob")
    fact(robin, name, new("p"), "known")
    fact(robin, friend, new("p"), "stays")
    made = tombstone(admin, name, erase=True, grace_seconds=2)
    fact(robin, friend, new("p"), f"was seen with {name}")
    before = card(robin, friend)
    assert name in text(before)
    until_erased(admin, made)
    assert all(name not in row["content"] for row in stored(superuser, before["entity"]["entity_id"]))
    assert values(card(robin, friend)) == {"stays"}
