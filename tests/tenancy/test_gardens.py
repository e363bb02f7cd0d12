"""Gardens over HTTP: what they are, who belongs to them, and who may change that."""

import secrets
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from threading import Barrier
from typing import Any
from uuid import UUID, uuid4

import httpx
import pytest

from tests.conftest import Tenancy
from tests.service import RunningService

Calls = list[Callable[[], httpx.Response]]

GARDEN_FIELDS = {"garden_id", "slug", "name", "scope", "description", "created_by", "created_at"}
SCOPES = {
    "agent_private": "agent_private",
    "local": "agent_private",
    "project_shared": "project_shared",
    "team": "project_shared",
    "team_shared": "project_shared",
    "org_shared": "org_shared",
    "company": "org_shared",
    "public": "public",
}


@dataclass
class People:
    """Callers of one tenant in project default and elsewhere, and two of another tenant with the same names."""

    robin: httpx.Client
    wren: httpx.Client
    finch: httpx.Client
    robin_reading: httpx.Client
    robin_elsewhere: httpx.Client
    admin: httpx.Client
    admin_elsewhere: httpx.Client
    stranger: httpx.Client
    stranger_admin: httpx.Client


@pytest.fixture(scope="module")
def people(tenancy: Tenancy, service: RunningService) -> Iterator[People]:
    """A client for each of them."""
    tenancy.tenant("acme", "default", "other")
    tenancy.tenant("rival", "default")
    with ExitStack() as stack:

        def client(tenant: str, project: str, **fields: Any) -> httpx.Client:
            headers = {"Authorization": f"Bearer {tenancy.key(tenant, **fields)}", "X-Project-Id": project}
            return stack.enter_context(httpx.Client(base_url=service.url, timeout=30, headers=headers, verify=False))

        yield People(
            robin=client("acme", "default", agent_id="robin"),
            wren=client("acme", "default", agent_id="wren"),
            finch=client("acme", "default", agent_id="finch"),
            robin_reading=client("acme", "default", agent_id="robin", scopes=["notes:read"]),
            robin_elsewhere=client("acme", "other", agent_id="robin", project_id="other"),
            admin=client("acme", "default", kind="admin"),
            admin_elsewhere=client("acme", "other", kind="admin"),
            stranger=client("rival", "default", agent_id="robin"),
            stranger_admin=client("rival", "default", kind="admin"),
        )


def slug() -> str:
    """A slug nobody else uses."""
    return f"bed-{secrets.token_hex(4)}"


def plant(client: httpx.Client, **fields: Any) -> dict[str, Any]:
    """A new garden."""
    answer = client.post("/v1/gardens", json={"slug": slug(), **fields})
    assert answer.status_code == 201, answer.text
    return answer.json()["garden"]


def admit(client: httpx.Client, garden: str, agent: str, role: str) -> httpx.Response:
    """Sets a member."""
    return client.put(f"/v1/gardens/{garden}/members/{agent}", json={"role": role})


def dismiss(client: httpx.Client, garden: str, agent: str) -> httpx.Response:
    """Removes a member."""
    return client.delete(f"/v1/gardens/{garden}/members/{agent}")


def members(client: httpx.Client, garden: str) -> dict[str, str]:
    """Roles by agent."""
    answer = client.get(f"/v1/gardens/{garden}/members")
    assert answer.status_code == 200, answer.text
    return {member["agent_id"]: member["role"] for member in answer.json()["members"]}


def walk(client: httpx.Client, path: str, items: str, limit: int) -> list[dict[str, Any]]:
    """All rows of a list, page by page."""
    found: list[dict[str, Any]] = []
    cursor: dict[str, str] = {}
    while True:
        answer = client.get(path, params={"limit": limit, **cursor})
        assert answer.status_code == 200, answer.text
        assert len(answer.json()[items]) <= limit
        found += answer.json()[items]
        if answer.json()["next_cursor"] is None:
            return found
        cursor = {"cursor": answer.json()["next_cursor"]}


def slugs(client: httpx.Client) -> set[str]:
    """Slugs of the gardens a caller is shown."""
    return {garden["slug"] for garden in walk(client, "/v1/gardens", "gardens", 200)}


def refused(answer: httpx.Response, status: int, code: str) -> None:
    """Checks that an answer is this refusal."""
    assert answer.status_code == status, answer.text
    assert answer.json()["error"]["code"] == code


def every_use_of(client: httpx.Client, garden: str) -> list[httpx.Response]:
    """The answers to everything one can do with a garden."""
    return [
        client.get(f"/v1/gardens/{garden}"),
        client.patch(f"/v1/gardens/{garden}", json={"name": "taken over"}),
        client.get(f"/v1/gardens/{garden}/members"),
        admit(client, garden, "robin", "reader"),
        admit(client, garden, "magpie", "admin"),
        dismiss(client, garden, "robin"),
        dismiss(client, garden, "magpie"),
    ]


def at_once(calls: Calls) -> list[int]:
    """The statuses of calls that start together."""
    barrier = Barrier(len(calls))

    def start(call: Callable[[], httpx.Response]) -> int:
        barrier.wait()
        return call().status_code

    with ThreadPoolExecutor(len(calls)) as pool:
        return list(pool.map(start, calls))


# What a garden is


def test_a_garden_is_answered_as_it_was_made(people: People) -> None:
    name = slug()
    fields = {"slug": name, "name": "Roses", "scope": "org_shared", "description": "Red ones."}
    answer = people.robin.post("/v1/gardens", json=fields)
    assert answer.status_code == 201
    assert answer.json()["created"] is True
    garden = answer.json()["garden"]
    assert set(garden) == GARDEN_FIELDS
    assert {field: garden[field] for field in fields} == fields
    assert garden["created_by"] == "robin"
    assert UUID(garden["garden_id"])
    assert people.robin.get(f"/v1/gardens/{garden['garden_id']}").json() == garden


def test_a_garden_needs_only_a_slug(people: People) -> None:
    garden = plant(people.robin)
    assert (garden["name"], garden["scope"], garden["description"]) == (garden["slug"], "project_shared", "")


@pytest.mark.parametrize("text", ["a", "7", "a-b-c", "0-", "x" * 63])
def test_slugs_of_small_letters_digits_and_dashes_are_taken(people: People, text: str) -> None:
    answer = people.robin.post("/v1/gardens", json={"slug": text})
    assert answer.status_code == 201
    assert answer.json()["garden"]["slug"] == text


@pytest.mark.parametrize("text", ["", "-a", "A", "aB", "a_b", "a b", "a.b", "a/b", "é", "x" * 64, "a\n", "\na"])
def test_other_slugs_are_refused(people: People, text: str) -> None:
    before = slugs(people.admin)
    refused(people.robin.post("/v1/gardens", json={"slug": text}), 400, "invalid_request")
    assert slugs(people.admin) == before


@pytest.mark.parametrize(("given", "stored"), SCOPES.items())
def test_every_word_for_a_scope_is_kept_as_the_canonical_one(people: People, given: str, stored: str) -> None:
    garden = plant(people.robin, scope=given)
    assert garden["scope"] == stored
    assert people.robin.get(f"/v1/gardens/{garden['garden_id']}").json()["scope"] == stored


@pytest.mark.parametrize("scope", ["", "private", "TEAM", "everybody", None])
def test_an_unknown_scope_is_refused(people: People, scope: str | None) -> None:
    name = slug()
    refused(people.robin.post("/v1/gardens", json={"slug": name, "scope": scope}), 400, "invalid_request")
    assert name not in slugs(people.admin)


@pytest.mark.parametrize(("field", "longest"), [("name", 200), ("description", 2000)])
def test_texts_have_a_longest_length(people: People, field: str, longest: int) -> None:
    assert plant(people.robin, **{field: "ö" * longest})[field] == "ö" * longest
    too_long = {"slug": slug(), field: "ö" * (longest + 1)}
    refused(people.robin.post("/v1/gardens", json=too_long), 400, "invalid_request")
    assert too_long["slug"] not in slugs(people.admin)


def test_a_slug_is_taken_once_in_a_project(people: People) -> None:
    first = plant(people.robin)
    refused(people.wren.post("/v1/gardens", json={"slug": first["slug"]}), 409, "garden_exists")
    assert people.robin.get(f"/v1/gardens/{first['garden_id']}").json() == first


def test_the_same_slug_is_free_in_another_project_and_another_tenant(people: People) -> None:
    name = plant(people.robin)["slug"]
    assert plant(people.robin_elsewhere, slug=name)["slug"] == name
    assert plant(people.stranger, slug=name)["slug"] == name


def test_an_idempotency_key_used_in_one_project_says_nothing_of_another(people: People) -> None:
    body, repeat = {"slug": slug()}, {"Idempotency-Key": secrets.token_hex(8)}
    here = people.admin.post("/v1/gardens", json=body, headers=repeat)
    assert here.status_code == 201
    # The same key of the same caller, only the project is another.
    elsewhere = people.admin.post("/v1/gardens", json=body, headers={**repeat, "X-Project-Id": "other"})
    assert elsewhere.status_code in {201, 409}
    assert (body["slug"] in slugs(people.admin_elsewhere)) is (elsewhere.status_code == 201)


def test_an_admin_key_makes_gardens_too(people: People) -> None:
    garden = plant(people.admin)
    assert garden["created_by"] == "admin"
    assert members(people.admin, garden["garden_id"]) == {"admin": "admin"}


def test_a_read_only_key_creates_no_garden(people: People) -> None:
    name = slug()
    refused(people.robin_reading.post("/v1/gardens", json={"slug": name}), 403, "missing_scope")
    assert name not in slugs(people.admin)


def test_an_admin_of_the_garden_renames_it(people: People) -> None:
    garden = plant(people.robin)
    path = f"/v1/gardens/{garden['garden_id']}"
    renamed = people.robin.patch(path, json={"name": "Tulips"})
    assert (renamed.status_code, renamed.json()) == (200, {"garden": {**garden, "name": "Tulips"}, "created": False})
    described = people.robin.patch(path, json={"description": "Yellow ones."})
    assert described.json()["garden"] == {**garden, "name": "Tulips", "description": "Yellow ones."}
    assert people.robin.get(path).json() == described.json()["garden"]


@pytest.mark.parametrize("change", [{"scope": "public"}, {"slug": "renamed"}, {"created_by": "wren"}, {}])
def test_nothing_else_of_a_garden_can_be_changed(people: People, change: dict[str, str]) -> None:
    garden = plant(people.robin)
    path = f"/v1/gardens/{garden['garden_id']}"
    for caller in (people.robin, people.admin):
        refused(caller.patch(path, json=change), 400, "invalid_request")
        with_name = caller.patch(path, json={"name": "Tulips", **change}) if change else None
        assert with_name is None or with_name.status_code == 400
    assert people.robin.get(path).json() == garden


# Who sees which garden


def test_the_creator_is_its_first_admin(people: People) -> None:
    garden = plant(people.robin)["garden_id"]
    assert members(people.robin, garden) == {"robin": "admin"}


def test_an_agent_is_shown_its_gardens_and_an_admin_key_all_of_the_project(people: People) -> None:
    mine, shared, theirs = plant(people.robin), plant(people.wren), plant(people.wren)
    admit(people.wren, shared["garden_id"], "robin", "reader")
    mine, shared, theirs = mine["slug"], shared["slug"], theirs["slug"]
    assert slugs(people.robin) >= {mine, shared}
    assert theirs not in slugs(people.robin)
    assert slugs(people.wren) >= {shared, theirs}
    assert mine not in slugs(people.wren)
    assert slugs(people.admin) >= {mine, shared, theirs}


@pytest.mark.parametrize("caller", ["robin", "admin"])
@pytest.mark.parametrize("limit", [1, 3, 200])
def test_pages_of_gardens_show_each_garden_once_by_slug(people: People, caller: str, limit: int) -> None:
    made = {plant(people.robin)["garden_id"] for _ in range(4)}
    listed = walk(getattr(people, caller), "/v1/gardens", "gardens", limit)
    ids = [garden["garden_id"] for garden in listed]
    assert len(ids) == len(set(ids))
    assert made <= set(ids)
    assert {frozenset(garden) for garden in listed} == {frozenset(GARDEN_FIELDS)}


def test_whoami_names_the_gardens_one_belongs_to(people: People) -> None:
    mine, theirs = plant(people.robin)["garden_id"], plant(people.wren)["garden_id"]

    def known(client: httpx.Client) -> set[str]:
        return set(client.get("/v1/whoami").json()["gardens"])

    assert mine in known(people.robin)
    assert theirs not in known(people.robin)
    admit(people.wren, theirs, "robin", "reader")
    assert {mine, theirs} <= known(people.robin)
    dismiss(people.wren, theirs, "robin")
    assert theirs not in known(people.robin)
    assert known(people.robin_elsewhere).isdisjoint({mine, theirs})
    assert known(people.stranger).isdisjoint({mine, theirs})


def test_an_unknown_garden_is_not_found(people: People) -> None:
    for caller in (people.robin, people.admin):
        for answer in every_use_of(caller, str(uuid4())):
            refused(answer, 404, "garden_not_found")


def test_a_garden_of_another_project_or_tenant_is_not_found(people: People) -> None:
    garden = plant(people.robin)
    strangers = [
        people.robin_elsewhere,
        people.admin_elsewhere,
        people.stranger,
        people.stranger_admin,
    ]
    for caller in strangers:
        for answer in every_use_of(caller, garden["garden_id"]):
            refused(answer, 404, "garden_not_found")
        assert garden["slug"] not in slugs(caller)
    assert people.robin.get(f"/v1/gardens/{garden['garden_id']}").json() == garden
    assert members(people.robin, garden["garden_id"]) == {"robin": "admin"}


def test_an_agent_that_is_no_member_is_turned_away(people: People) -> None:
    garden = plant(people.robin)
    for answer in every_use_of(people.wren, garden["garden_id"]):
        refused(answer, 403, "garden_forbidden")
    refused(admit(people.wren, garden["garden_id"], "wren", "reader"), 403, "garden_forbidden")
    refused(dismiss(people.wren, garden["garden_id"], "wren"), 403, "garden_forbidden")
    assert people.robin.get(f"/v1/gardens/{garden['garden_id']}").json() == garden
    assert members(people.robin, garden["garden_id"]) == {"robin": "admin"}


@pytest.mark.parametrize("role", ["writer", "reader"])
def test_members_who_are_no_admins_see_the_garden_but_do_not_run_it(people: People, role: str) -> None:
    garden = plant(people.robin)
    place = garden["garden_id"]
    admit(people.robin, place, "wren", role)
    assert people.wren.get(f"/v1/gardens/{place}").json() == garden
    assert members(people.wren, place) == {"robin": "admin", "wren": role}
    refused(people.wren.patch(f"/v1/gardens/{place}", json={"name": "taken over"}), 403, "garden_forbidden")
    refused(admit(people.wren, place, "wren", "admin"), 403, "garden_forbidden")
    refused(admit(people.wren, place, "finch", "reader"), 403, "garden_forbidden")
    refused(dismiss(people.wren, place, "robin"), 403, "garden_forbidden")
    assert people.robin.get(f"/v1/gardens/{place}").json() == garden
    assert members(people.robin, place) == {"robin": "admin", "wren": role}


def test_an_admin_key_runs_every_garden_of_the_project(people: People) -> None:
    garden = plant(people.robin)["garden_id"]
    assert people.admin.get(f"/v1/gardens/{garden}").status_code == 200
    assert people.admin.patch(f"/v1/gardens/{garden}", json={"name": "Tulips"}).json()["garden"]["name"] == "Tulips"
    assert admit(people.admin, garden, "wren", "writer").status_code == 201
    assert dismiss(people.admin, garden, "wren").status_code == 204
    assert members(people.admin, garden) == {"robin": "admin"}


# Members


@pytest.mark.parametrize("role", ["admin", "writer", "reader"])
def test_a_member_is_new_once_and_then_known(people: People, role: str) -> None:
    garden = plant(people.robin)["garden_id"]
    first = admit(people.robin, garden, "wren", role)
    assert first.status_code == 201
    assert first.json()["created"] is True
    member = first.json()["member"]
    assert (member["agent_id"], member["role"], member["added_by"]) == ("wren", role, "robin")
    again = admit(people.robin, garden, "wren", role)
    assert again.status_code == 200
    assert again.json() == {"member": member, "created": False}


def test_a_role_can_be_changed(people: People) -> None:
    garden = plant(people.robin)["garden_id"]
    admit(people.robin, garden, "wren", "reader")
    changed = admit(people.robin, garden, "wren", "admin")
    assert (changed.status_code, changed.json()["created"], changed.json()["member"]["role"]) == (200, False, "admin")
    assert members(people.robin, garden) == {"robin": "admin", "wren": "admin"}
    assert people.wren.patch(f"/v1/gardens/{garden}", json={"name": "Tulips"}).status_code == 200
    admit(people.robin, garden, "wren", "writer")
    refused(people.wren.patch(f"/v1/gardens/{garden}", json={"name": "Roses"}), 403, "garden_forbidden")


@pytest.mark.parametrize("role", ["owner", "ADMIN", "", None])
def test_an_unknown_role_is_refused(people: People, role: str | None) -> None:
    garden = plant(people.robin)["garden_id"]
    answer = people.robin.put(f"/v1/gardens/{garden}/members/wren", json={"role": role})
    refused(answer, 400, "invalid_request")
    assert members(people.robin, garden) == {"robin": "admin"}


@pytest.mark.parametrize("limit", [1, 2, 200])
def test_pages_of_members_show_each_member_once(people: People, limit: int) -> None:
    garden = plant(people.robin)["garden_id"]
    agents = {"Zoe", "a.b", "a:b", "b@c", "x-1", "x_2"}
    for agent in agents:
        admit(people.robin, garden, agent, "reader")
    listed = [member["agent_id"] for member in walk(people.robin, f"/v1/gardens/{garden}/members", "members", limit)]
    assert len(listed) == 7
    assert set(listed) == agents | {"robin"}


@pytest.mark.parametrize("role", ["writer", "reader", "admin"])
def test_a_member_may_leave(people: People, role: str) -> None:
    garden = plant(people.robin)["garden_id"]
    admit(people.robin, garden, "wren", role)
    assert dismiss(people.wren, garden, "wren").status_code == 204
    assert members(people.robin, garden) == {"robin": "admin"}
    refused(people.wren.get(f"/v1/gardens/{garden}"), 403, "garden_forbidden")


def test_a_removed_member_is_out_at_the_next_request(people: People) -> None:
    garden = plant(people.robin)
    admit(people.robin, garden["garden_id"], "wren", "writer")
    assert people.wren.get(f"/v1/gardens/{garden['garden_id']}").status_code == 200
    assert dismiss(people.robin, garden["garden_id"], "wren").status_code == 204
    refused(people.wren.get(f"/v1/gardens/{garden['garden_id']}"), 403, "garden_forbidden")
    assert garden["slug"] not in slugs(people.wren)


def test_an_agent_that_is_not_a_member_cannot_be_removed(people: People) -> None:
    garden = plant(people.robin)["garden_id"]
    refused(dismiss(people.robin, garden, "wren"), 404, "member_not_found")


@pytest.mark.parametrize("caller", ["robin", "admin"])
@pytest.mark.parametrize("role", ["writer", "reader"])
def test_the_last_admin_cannot_be_demoted(people: People, caller: str, role: str) -> None:
    garden = plant(people.robin)["garden_id"]
    admit(people.robin, garden, "wren", "writer")
    refused(admit(getattr(people, caller), garden, "robin", role), 403, "garden_last_admin")
    assert members(people.robin, garden) == {"robin": "admin", "wren": "writer"}


@pytest.mark.parametrize("caller", ["robin", "admin"])
def test_the_last_admin_cannot_leave_or_be_removed(people: People, caller: str) -> None:
    garden = plant(people.robin)["garden_id"]
    admit(people.robin, garden, "wren", "writer")
    refused(dismiss(getattr(people, caller), garden, "robin"), 403, "garden_last_admin")
    assert members(people.robin, garden) == {"robin": "admin", "wren": "writer"}


def test_the_last_admin_may_be_made_admin_again(people: People) -> None:
    garden = plant(people.robin)["garden_id"]
    assert admit(people.robin, garden, "robin", "admin").status_code == 200


def test_with_a_successor_the_first_admin_may_go(people: People) -> None:
    garden = plant(people.robin)["garden_id"]
    admit(people.robin, garden, "wren", "admin")
    assert admit(people.robin, garden, "robin", "reader").status_code == 200
    assert dismiss(people.robin, garden, "robin").status_code == 204
    assert members(people.wren, garden) == {"wren": "admin"}
    refused(dismiss(people.wren, garden, "wren"), 403, "garden_last_admin")


# At the same time


def test_of_two_admins_who_leave_at_the_same_time_one_stays(people: People) -> None:
    for _ in range(10):
        garden = plant(people.robin)["garden_id"]
        admit(people.robin, garden, "wren", "admin")
        left = at_once(
            [partial(dismiss, people.robin, garden, "robin"), partial(dismiss, people.wren, garden, "wren")],
        )
        assert sorted(left) == [204, 403]
        remaining = {"wren": "admin"} if left[0] == 204 else {"robin": "admin"}
        assert members(people.admin, garden) == remaining


def test_of_two_admins_who_demote_each_other_one_stays(people: People) -> None:
    for _ in range(10):
        garden = plant(people.robin)["garden_id"]
        admit(people.robin, garden, "wren", "admin")
        changed = at_once(
            [
                partial(admit, people.robin, garden, "wren", "reader"),
                partial(admit, people.wren, garden, "robin", "reader"),
            ]
        )
        assert sorted(changed) == [200, 403]
        assert sorted(members(people.admin, garden).values()) == ["admin", "reader"]


def test_of_several_who_take_a_slug_at_the_same_time_one_gets_it(people: People) -> None:
    for _ in range(5):
        name = slug()
        callers = (people.robin, people.wren, people.finch)
        taken = at_once([partial(caller.post, "/v1/gardens", json={"slug": name}) for caller in callers])
        assert sorted(taken) == [201, 409, 409]
        (garden,) = [row for row in walk(people.admin, "/v1/gardens", "gardens", 200) if row["slug"] == name]
        winner = ("robin", "wren", "finch")[taken.index(201)]
        assert garden["created_by"] == winner
        assert members(people.admin, garden["garden_id"]) == {winner: "admin"}


def test_a_member_admitted_twice_at_the_same_time_is_new_once(people: People) -> None:
    for _ in range(5):
        garden = plant(people.robin)["garden_id"]
        admitted = at_once([partial(admit, people.robin, garden, "wren", "writer")] * 3)
        assert sorted(admitted) == [200, 200, 201]
        assert members(people.robin, garden) == {"robin": "admin", "wren": "writer"}


def make_garden(client: httpx.Client, slug: str) -> str:
    made = client.post("/v1/gardens", json={"slug": slug, "scope": "project_shared"})
    assert made.status_code == 201, made.text
    return made.json()["garden"]["garden_id"]


def fill(client: httpx.Client, garden: str, words: str) -> tuple[str, str]:
    """A note and a fact in a garden."""
    note = client.post("/v1/notes", json={"content": words, "garden_id": garden}).json()["note"]["note_id"]
    told = {"subject": words, "predicate": "grows", "object": {"value": "here"}, "garden_id": garden}
    return note, client.post("/v1/facts", json=told).json()["fact"]["fact_id"]


def test_a_deleted_garden_keeps_its_contents_for_its_creator(
    tenancy: Tenancy, as_key: Callable[..., httpx.Client]
) -> None:
    tenancy.tenant("deleters")
    robin = as_key(tenancy.key("deleters", agent_id="robin"))
    wren = as_key(tenancy.key("deleters", agent_id="wren"))
    boss = as_key(tenancy.key("deleters", kind="admin", agent_id="boss"), "default")
    garden = make_garden(robin, "roses")
    path = f"/v1/gardens/{garden}"
    assert robin.put(f"{path}/members/wren", json={"role": "writer"}).status_code == 201
    note, fact = fill(wren, garden, "Roses in June")
    assert wren.delete(path, params={"reason": "mine"}).status_code == 403
    refused = robin.delete(path)
    assert (refused.status_code, refused.json()["error"]["code"]) == (400, "reason_required")
    assert robin.delete(path, params={"reason": "winter"}).status_code == 204
    for client in (robin, boss):
        assert client.get(path).status_code == 404
        assert client.get("/v1/gardens").json()["gardens"] == []
        assert client.get(f"/v1/notes/{note}").status_code == 200
        assert client.get(f"/v1/facts/{fact}").status_code == 200
        assert len(client.get("/v1/notes", params={"garden": garden}).json()["notes"]) == 1
        # Nothing new comes in.
        more = client.post("/v1/notes", json={"content": "Roses in July", "garden_id": garden})
        assert (more.status_code, more.json()["error"]["code"]) == (404, "garden_not_found")
    assert wren.get(f"/v1/notes/{note}").status_code == 404
    assert wren.get(f"/v1/facts/{fact}").status_code == 404
    assert robin.delete(path, params={"reason": "again"}).status_code == 404
    # Its slug is free, and its creator can delete what stayed.
    assert make_garden(robin, "roses") != garden
    assert robin.delete(f"/v1/notes/{note}", params={"reason": "tidy"}).status_code == 204


def test_a_garden_is_deleted_with_its_contents_by_choice(tenancy: Tenancy, as_key: Callable[..., httpx.Client]) -> None:
    tenancy.tenant("clearers")
    robin = as_key(tenancy.key("clearers", agent_id="robin"))
    garden = make_garden(robin, "weeds")
    path = f"/v1/gardens/{garden}"
    planted = [fill(robin, garden, f"Weed {number}") for number in range(13)]
    outside = robin.post("/v1/notes", json={"content": "Not a weed"}).json()["note"]["note_id"]
    clear = {"reason": "tidy", "contents": "delete"}
    refused = robin.delete(path, params=clear)
    assert (refused.status_code, refused.json()["error"]["code"]) == (409, "confirmation_required")
    details = refused.json()["error"]["details"]
    assert details["count"] == 26
    assert robin.get(path).status_code == 200
    assert robin.delete(path, params={**clear, "confirm_token": details["confirm_token"]}).status_code == 204
    assert {robin.get(f"/v1/notes/{note}").status_code for note, _ in planted} == {404}
    assert all(robin.get(f"/v1/facts/{fact}").json()["retracted_at"] for _, fact in planted)
    assert robin.get(f"/v1/notes/{outside}").status_code == 200
    back = robin.post(f"/v1/notes/{planted[0][0]}/recover", json={"reason": "a flower"})
    assert back.status_code == 200
