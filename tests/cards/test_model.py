"""RECALL 20.4.5: whatever happens to its facts, a card that is served as right says what one made now would say."""

import random
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import httpx
import psycopg
import pytest

from tests.cards.shared import Superuser, built, cards, forced, text, values
from tests.conftest import Tenancy, TestDatabase
from tests.erasure.shared import revoke, tombstone
from tests.facts.conftest import UNLIMITED
from tests.facts.shared import body, fact, garden, new
from tests.long import sized

STEPS = sized(20, 70)


class World:
    """One entity, and everything that can happen to what is known of it."""

    def __init__(
        self, robin: httpx.Client, admin: httpx.Client, database: TestDatabase, superuser: Superuser, seed: int
    ) -> None:
        self.random = random.Random(seed)
        self.robin, self.admin, self.database, self.superuser = robin, admin, database, superuser
        self.name = new("Alice")
        self.garden = garden(robin)
        self.friends = [new("friend") for _ in range(3)]
        self.relations = [new("relation") for _ in range(4)]
        self.sources = [new("source") for _ in range(2)]
        self.facts: list[dict[str, Any]] = []
        self.conflicts: list[str] = []
        self.tombstones: list[str] = []

    def write(self) -> None:
        draw = self.random
        target = {"entity": draw.choice(self.friends)} if draw.random() < 0.4 else {"value": draw.choice("abcd")}
        if draw.random() < 0.2:
            target = {"value": f"met {draw.choice(self.friends)} once"}
        body: dict[str, Any] = {
            "subject": self.name,
            "predicate": draw.choice(self.relations),
            "object": target,
            "confidence": draw.choice([0.2, 0.35, 0.7, 1.0]),
            "scope": draw.choice(["project_shared", "project_shared", "agent_private", "public"]),
        }
        if body["scope"] == "project_shared" and draw.random() < 0.3:
            body["garden_id"] = self.garden
        if draw.random() < 0.5:
            body["source"] = draw.choice(self.sources)
        if draw.random() < 0.4:
            body["valid_from"] = f"{draw.randint(2010, 2025)}-01-01T00:00:00Z"
        answer = self.robin.post("/v1/facts", json=body)
        assert answer.status_code in (200, 201, 409), answer.text
        if answer.status_code < 300:
            self.facts.append(answer.json()["fact"])
            self.conflicts += answer.json()["conflicts"]

    def retract(self) -> None:
        if self.facts:
            self.robin.post(f"/v1/facts/{self.random.choice(self.facts)['fact_id']}/retract", json={})

    def end(self) -> None:
        if self.facts:
            until = self.random.choice(["2026-01-01T00:00:00Z", "2090-01-01T00:00:00Z", None])
            self.robin.patch(f"/v1/facts/{self.random.choice(self.facts)['fact_id']}", json={"valid_to": until})

    def resolve(self) -> None:
        if self.conflicts:
            conflict = self.random.choice(self.conflicts)
            shown = self.robin.get(f"/v1/conflicts/{conflict}")
            if shown.status_code == 200:
                body = {"winner": self.random.choice([shown.json()["fact_a"], shown.json()["fact_b"]])}
                self.robin.post(f"/v1/conflicts/{conflict}/resolve", json=body)

    def rename(self) -> None:
        body = {"canonical": self.name, "kind": self.random.choice(["person", "robot"]), "aliases": [new("Ally")]}
        self.robin.post("/v1/entities", json=body)

    def merge(self) -> None:
        if self.random.random() < 0.5:
            other = self.robin.post("/v1/entities", json={"canonical": new("Alicia")}).json()["entity"]
            mine = self.robin.get(f"/v1/entities/{self.name}").json()
            if "entity_id" in mine:
                self.robin.post(f"/v1/entities/{mine['entity_id']}/merge", json={"from": other["entity_id"]})
        else:
            one, two = self.random.sample(self.friends, 2)
            found = [self.robin.get(f"/v1/entities/{name}").json().get("entity_id") for name in (one, two)]
            if all(found):
                self.robin.post(f"/v1/entities/{found[0]}/merge", json={"from": found[1]})

    def activate(self) -> None:
        found = [one for one in self.facts if one["predicate"]["status"] == "pending"]
        if found:
            body = {"status": "active", "cardinality": self.random.choice(["single", "multi"]), "resolve": "latest"}
            self.robin.patch(f"/v1/predicates/{self.random.choice(found)['predicate']['predicate_id']}", json=body)

    def forget(self) -> None:
        name = self.random.choice([self.name, *self.friends, *self.friends])
        scope = self.random.choice(["*", "project_shared"])
        body = {"entity": name, "reason": "r", "scope": scope, "legal_hold": self.random.random() < 0.3}
        answer = self.admin.post("/v1/tombstones", json=body)
        if answer.status_code == 201:
            self.tombstones.append(answer.json()["tombstone"]["tombstone_id"])

    def restore(self) -> None:
        if self.tombstones:
            chosen = self.tombstones.pop(self.random.randrange(len(self.tombstones)))
            answer = self.admin.post(f"/v1/tombstones/{chosen}/revoke", json={"reason": "r"})
            assert answer.status_code == 200, answer.text

    def trust(self) -> None:
        mode = self.random.choice(["off", "warn"])
        assert self.admin.patch("/v1/admin/projects/default", json={"trust_mode": mode}).status_code == 200
        with psycopg.connect(self.database.app) as connection:
            connection.execute("SELECT set_scope('modelled', 'default', '', NULL, '')")
            connection.execute(
                "SELECT * FROM refresh_trust(%s, '{}', %s, 0.1, '00000000-0000-0000-0000-000000000000', 1000)",
                (self.random.choice(self.sources), self.random.choice([0.1, 0.5, 0.9])),
            )

    def decay(self) -> None:
        if self.facts:
            self.superuser.execute(
                "UPDATE graph_facts SET weighed_at = coalesce(weighed_at, created_at) - interval '2 days' "
                "WHERE fact_id = %s",
                (self.random.choice(self.facts)["fact_id"],),
            )
            assert self.admin.post("/v1/decay/sweep").status_code == 200

    def step(self) -> str:
        acts = [self.write] * 8 + [self.retract, self.end, self.resolve, self.rename, self.merge, self.activate]
        acts += [self.forget, self.restore, self.restore, self.trust, self.decay]
        act = self.random.choice(acts)
        act()
        return act.__name__

    def check(self, told: str) -> None:
        served = {found["card_id"]: found for found in cards(self.robin, entity=self.name)}
        now = {found["card_id"]: found for found in built(self.robin, self.name)}
        for card_id, found in served.items():
            if not found["card_stale"]:
                assert card_id in now, told
                assert found["value"] == now[card_id]["value"], told


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(4))
def test_20_4_5_a_card_that_passes_for_right_is_right(
    tenancy: Tenancy,
    as_key: Callable[..., httpx.Client],
    database: TestDatabase,
    superuser: Superuser,
    modelled: tuple[httpx.Client, httpx.Client],
    seed: int,
) -> None:
    world = World(*modelled, database, superuser, seed)
    told: list[str] = []
    for _ in range(STEPS):
        told.append(world.step())
        if world.random.random() < 0.7:
            world.check(f"seed {seed} after {told}")


@pytest.mark.slow
def test_20_4_5_writers_makers_and_tombstones_at_the_same_time(
    modelled: tuple[httpx.Client, httpx.Client], modelled_keys: tuple[str, str], as_key: Callable[..., httpx.Client]
) -> None:
    robin, _ = modelled
    name, friend, started = new("Alice"), new("friend"), time.monotonic()
    fact(robin, name, new("knows"), {"entity": friend})
    hidden: list[dict[str, Any]] = []
    seen: list[str] = []

    def going_on() -> bool:
        """Until cards were seen under a tombstone, however slow this machine is."""
        took = time.monotonic() - started
        return took < sized(2, 4) or (not seen and took < 60)

    def write(number: int) -> None:
        client, relation = as_key(modelled_keys[0]), new(f"likes {number}")
        while going_on():
            answer = client.post("/v1/facts", json=body(name, relation, {"entity": new("thing")}, confidence=0.9))
            assert answer.status_code == 201, answer.text

    def make(_: int) -> None:
        client = as_key(modelled_keys[0])
        while going_on():
            before = list(hidden)
            found = forced(client, name)["cards"]
            # Under the same tombstone all the while.
            if before and before == hidden:
                seen.extend(text(one) for one in found)

    def forget(_: int) -> None:
        client = as_key(modelled_keys[1], "default")
        while going_on():
            made = tombstone(client, friend)
            hidden.append(made)
            before, held = len(seen), time.monotonic()
            while time.monotonic() - held < 0.4 or (len(seen) == before and going_on()):
                time.sleep(0.05)
            hidden.clear()
            revoke(client, made)

    with ThreadPoolExecutor(7) as threads:
        acts: list[Callable[[int], None]] = [write, make]
        running = [threads.submit(act, number) for act in acts for number in range(3)]
        running.append(threads.submit(forget, 0))
        for one in running:
            one.result()
    assert seen
    assert not any(friend in one for one in seen)
    (last,) = built(robin, name)
    assert last["facts"] + last["omitted"] == len(_all(robin, name))
    assert friend in values(last)


def _all(client: httpx.Client, name: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = []
    cursor: str | None = None
    while True:
        params = {"entity": name, "limit": 200, **({"cursor": cursor} if cursor else {})}
        answer = client.get("/v1/facts", params=params).json()
        found += answer["facts"]
        if (cursor := answer["next_cursor"]) is None:
            return found


@pytest.fixture(scope="module")
def modelled_keys(tenancy: Tenancy) -> tuple[str, str]:
    tenancy.tenant("modelled")
    return (
        tenancy.key("modelled", rate_limits=UNLIMITED),
        tenancy.key("modelled", kind="admin", rate_limits=UNLIMITED),
    )


@pytest.fixture
def modelled(modelled_keys: tuple[str, str], as_key: Callable[..., httpx.Client]) -> tuple[httpx.Client, httpx.Client]:
    """An agent and an administrator of a tenant where facts fade."""
    boss = as_key(modelled_keys[1], "default")
    answer = boss.post("/v1/decay/policies", json={"mode": "confidence", "half_life_s": 86_400})
    assert answer.status_code in (200, 201), answer.text
    return as_key(modelled_keys[0]), boss
