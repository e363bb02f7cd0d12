"""Predicates over HTTP: three scopes, registration on first use, and changes of status and cardinality."""

from collections.abc import Callable
from typing import Any
from uuid import uuid4

import httpx
import psycopg
import pytest

from app.access import AGENT_SCOPES
from tests.conftest import Tenancy
from tests.facts.shared import body, entity, error, fact, history, ids, listed, new, note, predicate, read, write, year

Superuser = psycopg.Connection[dict[str, Any]]


def decide(client: httpx.Client, predicate_id: str, **fields: Any) -> httpx.Response:
    return client.patch(f"/v1/predicates/{predicate_id}", json=fields)


def one(client: httpx.Client, predicate_id: str) -> dict[str, Any]:
    answer = client.get(f"/v1/predicates/{predicate_id}")
    assert answer.status_code == 200, answer.text
    return answer.json()


def found(client: httpx.Client, name: str) -> list[dict[str, Any]]:
    return client.get("/v1/predicates", params={"prefix": name}).json()["predicates"]


def install(superuser: Superuser, *aliases: str, cardinality: str = "multi", status: str = "active") -> tuple[str, str]:
    """A predicate of the installation: its id and name."""
    predicate_id, name = str(uuid4()), new("installed")
    superuser.execute(
        "INSERT INTO global_predicates (predicate_id, canonical, canonical_norm, cardinality, status, created_at, "
        "updated_at) VALUES (%s, %s, %s, %s, %s, now(), now())",
        (predicate_id, name, name, cardinality, status),
    )
    for alias in aliases:
        superuser.execute(
            "INSERT INTO global_predicate_aliases (alias_norm, alias, predicate_id) VALUES (%s, %s, %s)",
            (alias.lower(), alias, predicate_id),
        )
    return predicate_id, name


def uses(client: httpx.Client, name: str) -> str:
    return fact(client, new(), name, {"entity": new()})["predicate"]["predicate_id"]


# Scopes


def test_the_project_beats_the_tenant_beats_the_installation(
    robin: httpx.Client, elsewhere: httpx.Client, admin: httpx.Client, rival: httpx.Client, superuser: Superuser
) -> None:
    installed, name = install(superuser)
    assert uses(robin, name) == installed
    wide = predicate(admin, name=name.upper(), scope="tenant")
    assert (wide["scope"], uses(robin, name), uses(elsewhere, name)) == (
        "tenant",
        wide["predicate_id"],
        wide["predicate_id"],
    )
    own = predicate(robin, name=name)
    assert (own["scope"], uses(robin, name), uses(elsewhere, name)) == (
        "project",
        own["predicate_id"],
        wide["predicate_id"],
    )
    assert uses(rival, name) == installed
    assert {item["scope"] for item in found(robin, name)} == {"project", "tenant", "global"}
    assert {item["scope"] for item in found(rival, name)} == {"global"}


def test_an_alias_of_a_nearer_scope_beats_a_name_of_a_farther_one(
    robin: httpx.Client, elsewhere: httpx.Client, admin: httpx.Client, superuser: Superuser
) -> None:
    installed, name = install(superuser)
    wide = predicate(admin, scope="tenant")["predicate_id"]
    assert admin.post(f"/v1/predicates/{wide}/aliases", json={"alias": name}).status_code == 201
    assert uses(elsewhere, name) == wide
    own = predicate(robin)["predicate_id"]
    assert robin.post(f"/v1/predicates/{own}/aliases", json={"alias": name}).status_code == 201
    assert (uses(robin, name), uses(elsewhere, name)) == (own, wide)
    assert installed not in (own, wide)


def test_a_predicate_of_the_installation_is_used_by_name_alias_and_id(
    robin: httpx.Client, superuser: Superuser
) -> None:
    alias = new("Alias")
    installed, name = install(superuser, alias, cardinality="single")
    assert one(robin, installed)["aliases"] == [alias]
    assert [uses(robin, text) for text in (alias.upper(), name, installed)] == [installed] * 3
    subject = new()
    fact(robin, subject, alias, "Bern", valid_from=year(2020))
    assert len(write(robin, subject, name, "Basel")["superseded"]) == 1
    shown = one(robin, installed)
    assert (shown["scope"], shown["cardinality"], shown["status"]) == ("global", "single", "active")


def test_a_predicate_of_the_installation_shows_its_aliases_after_its_first_use(
    robin: httpx.Client, superuser: Superuser
) -> None:
    alias = new("Alias")
    installed, name = install(superuser, alias)
    uses(robin, name)
    assert one(robin, installed)["aliases"] == [alias]


def test_a_predicate_of_the_installation_is_read_only(
    robin: httpx.Client, admin: httpx.Client, superuser: Superuser
) -> None:
    fresh, _ = install(superuser)
    used, name = install(superuser)
    uses(robin, name)
    for predicate_id in (fresh, used):
        for client in (robin, admin):
            assert decide(client, predicate_id, status="deprecated").status_code == 403
            assert decide(client, predicate_id, cardinality="single").status_code == 403
            alias = client.post(f"/v1/predicates/{predicate_id}/aliases", json={"alias": new()})
            assert alias.status_code == 403
    assert (one(robin, used)["status"], one(robin, used)["cardinality"]) == ("active", "multi")


def test_a_deprecated_predicate_of_the_installation_takes_no_facts(robin: httpx.Client, superuser: Superuser) -> None:
    _, name = install(superuser, status="deprecated")
    assert error(robin.post("/v1/facts", json=body(new(), name, "x"))) == (409, "predicate_deprecated")


def test_predicates_of_the_tenant_are_for_administrators(robin: httpx.Client, admin: httpx.Client) -> None:
    assert robin.post("/v1/predicates", json={"name": new(), "scope": "tenant"}).status_code == 403
    wide = predicate(admin, scope="tenant")["predicate_id"]
    assert decide(robin, wide, cardinality="single").status_code == 403
    assert robin.post(f"/v1/predicates/{wide}/aliases", json={"alias": new()}).status_code == 403
    assert decide(admin, wide, cardinality="single").json()["predicate"]["cardinality"] == "single"
    assert admin.post(f"/v1/predicates/{wide}/aliases", json={"alias": new()}).status_code == 201


def test_a_decision_for_the_tenant_counts_in_all_its_projects(
    robin: httpx.Client, elsewhere: httpx.Client, admin: httpx.Client
) -> None:
    wide = predicate(admin, scope="tenant")
    subject, name = new(), wide["name"]
    for value in ("Bern", "Basel"):
        fact(elsewhere, subject, name, value)
    refused = decide(admin, wide["predicate_id"], cardinality="single")
    assert error(refused) == (409, "predicate_values_open")
    assert refused.json()["error"]["details"] == {"timelines": 1, "facts": []}
    assert decide(admin, wide["predicate_id"], cardinality="single", resolve="latest").status_code == 200
    assert [item["object"]["value"] for item in listed(elsewhere, entity=subject)] == ["Basel"]
    fact(robin, subject, name, "Zug")
    assert len(write(robin, subject, name, "Chur")["superseded"]) == 1


def test_other_tenants_and_projects_do_not_see_a_predicate(
    robin: httpx.Client, rival: httpx.Client, elsewhere: httpx.Client
) -> None:
    own = predicate(robin)
    for client in (rival, elsewhere):
        assert client.get(f"/v1/predicates/{own['predicate_id']}").status_code == 404
        assert decide(client, own["predicate_id"], status="deprecated").status_code == 404
        path = f"/v1/predicates/{own['predicate_id']}/aliases"
        assert client.post(path, json={"alias": new()}).status_code == 404
        assert found(client, own["name"]) == []
        assert client.post("/v1/facts", json=body(new(), own["predicate_id"], "x")).status_code == 404


# Growth


def test_a_new_name_registers_itself_as_pending_and_multi(robin: httpx.Client) -> None:
    name = new("Grew Up")
    predicate_id = uses(robin, name)
    (shown,) = found(robin, name)
    assert (shown["predicate_id"], shown["name"]) == (predicate_id, name)
    assert (shown["status"], shown["cardinality"], shown["scope"], shown["aliases"]) == (
        "pending",
        "multi",
        "project",
        [],
    )
    assert uses(robin, f"  {name.upper()}  ") == predicate_id


def test_a_predicate_is_registered_beforehand(robin: httpx.Client) -> None:
    name = new("decided")
    made = robin.post("/v1/predicates", json={"name": name, "cardinality": "single"})
    assert (made.status_code, made.json()["created"]) == (201, True)
    assert made.json()["predicate"]["status"] == "active"
    again = robin.post("/v1/predicates", json={"name": name.upper(), "cardinality": "single"})
    assert (again.status_code, again.json()["created"]) == (200, False)
    assert again.json()["predicate"] == made.json()["predicate"]
    other = robin.post("/v1/predicates", json={"name": name, "cardinality": "multi"})
    assert error(other) == (409, "predicate_exists")


def test_the_list_pages_by_name_and_filters_by_status(robin: httpx.Client) -> None:
    tag = f"p{uuid4().hex[:10]}"
    for letter in "CAB":
        predicate(robin, name=f"{tag} {letter}")
    predicate(robin, name=f"{tag} D", status="pending")
    names: list[str] = []
    cursor = None
    while True:
        params = {"prefix": tag, "limit": 3, **({"cursor": cursor} if cursor else {})}
        page = robin.get("/v1/predicates", params=params).json()
        names += [item["name"] for item in page["predicates"]]
        cursor = page["next_cursor"]
        if cursor is None:
            break
    assert names == [f"{tag} {letter}" for letter in "ABCD"]
    pending = robin.get("/v1/predicates", params={"prefix": tag, "status": "pending"}).json()["predicates"]
    assert [item["name"] for item in pending] == [f"{tag} D"]


def test_an_alias_means_its_predicate_and_no_other(robin: httpx.Client) -> None:
    first, second, alias = predicate(robin), predicate(robin), new("Alias")
    path = f"/v1/predicates/{first['predicate_id']}/aliases"
    made = robin.post(path, json={"alias": alias})
    assert (made.status_code, made.json()["created"], made.json()["alias"]["alias"]) == (201, True, alias)
    again = robin.post(path, json={"alias": f" {alias.upper()}"})
    assert (again.status_code, again.json()["created"]) == (200, False)
    assert one(robin, first["predicate_id"])["aliases"] == [alias]
    for taken in (alias, first["name"], second["name"]):
        refused = robin.post(f"/v1/predicates/{second['predicate_id']}/aliases", json={"alias": taken})
        assert error(refused) == (409, "predicate_alias_taken")
    held = fact(robin, new(), alias, "x")
    assert held["predicate"] == {name: first[name] for name in ("predicate_id", "name", "status", "cardinality")}
    assert ids(listed(robin, predicate=alias)) == ids(listed(robin, relation=first["name"])) == [held["fact_id"]]


def test_facts_by_a_name_and_its_alias_are_one_belief(robin: httpx.Client) -> None:
    made, alias, subject = predicate(robin), new("alias"), new()
    robin.post(f"/v1/predicates/{made['predicate_id']}/aliases", json={"alias": alias})
    first = fact(robin, subject, made["name"], "x")
    answer = robin.post(
        "/v1/facts/batch", json={"facts": [body(subject, alias, "x"), body(subject, made["predicate_id"], "x")]}
    )
    assert {item["fact"]["fact_id"] for item in answer.json()["results"]} == {first["fact_id"]}
    assert read(robin, first["fact_id"])["mentions"] == 3


# Decisions


def test_conflicts_end_when_a_predicate_is_decided(robin: httpx.Client, superuser: Superuser) -> None:
    for decision in ({"cardinality": "multi"}, {"cardinality": "single", "resolve": "latest"}):
        subject, name = new(), new("born in")
        first = write(robin, subject, name, "Bern", valid_from=year(2020))
        second = write(robin, subject, name, "Basel", valid_from=year(2021))
        third = write(robin, subject, name, "Zug", valid_from=year(2022))
        assert [len(item["conflicts"]) for item in (first, second, third)] == [0, 1, 2]
        decided = decide(robin, first["fact"]["predicate"]["predicate_id"], status="active", **decision)
        assert (decided.status_code, decided.json()["predicate"]["status"]) == (200, "active")
        rows = superuser.execute(
            "SELECT status, resolved_by FROM fact_conflicts WHERE conflict_id = ANY(%s)",
            ([*second["conflicts"], *third["conflicts"]],),
        ).fetchall()
        assert [(row["status"], row["resolved_by"]) for row in rows] == [("resolved", "robin")] * 3
        every = listed(robin, entity=subject, include_inactive=True)
        assert {item["contradicted"] for item in every} == {False}
        assert len(listed(robin, entity=subject)) == (3 if decision["cardinality"] == "multi" else 1)


def test_becoming_single_with_open_values_is_refused_with_their_list(robin: httpx.Client, wren: httpx.Client) -> None:
    made, subject = predicate(robin, status="pending"), new()
    name = made["name"]
    both = {fact(robin, subject, name, value, valid_from=year(2020))["fact_id"] for value in ("Bern", "Basel")}
    fact(robin, new(), name, "Zug")
    hidden = new()
    for value in ("Chur", "Sion"):
        fact(wren, hidden, name, value, scope="agent_private")
    refused = decide(robin, made["predicate_id"], status="active", cardinality="single")
    assert error(refused) == (409, "predicate_values_open")
    assert refused.json()["error"]["details"]["timelines"] == 2
    assert set(refused.json()["error"]["details"]["facts"]) == both
    assert (one(robin, made["predicate_id"])["status"], len(listed(robin, entity=subject))) == ("pending", 2)


def test_resolve_latest_puts_every_timeline_in_order(robin: httpx.Client) -> None:
    made, subject, same = predicate(robin), new(), new()
    first = fact(robin, subject, made["name"], "Bern", valid_from=year(2018))
    last = fact(robin, subject, made["name"], "Zug", valid_from=year(2022))
    middle = fact(robin, subject, made["name"], "Basel", valid_from=year(2020), valid_to=year(2021))
    wrong = fact(robin, same, made["name"], "Bern", valid_from=year(2020))
    right = fact(robin, same, made["name"], "Basel", valid_from=year(2020))
    decided = decide(robin, made["predicate_id"], cardinality="single", resolve="latest")
    assert (decided.status_code, decided.json()["predicate"]["cardinality"]) == (200, "single")
    assert read(robin, first["fact_id"])["valid_to"] == year(2020)
    assert read(robin, middle["fact_id"])["valid_to"] == year(2021)
    assert ids(listed(robin, entity=subject)) == [last["fact_id"]]
    assert [link["to_fact_id"] for link in history(robin, first["fact_id"])["supersessions"]] == [middle["fact_id"]]
    assert read(robin, wrong["fact_id"])["retracted_at"] is not None
    assert [item["kind"] for item in history(robin, wrong["fact_id"])["retractions"]] == ["corrected"]
    assert ids(listed(robin, entity=same)) == [right["fact_id"]]
    assert write(robin, same, made["name"], "Chur")["superseded"] == [right["fact_id"]]


def test_becoming_single_without_overlaps_needs_no_resolution(robin: httpx.Client) -> None:
    made, subject = predicate(robin), new()
    fact(robin, subject, made["name"], "Bern", valid_from=year(2018), valid_to=year(2020))
    held = fact(robin, subject, made["name"], "Basel", valid_from=year(2020))
    assert decide(robin, made["predicate_id"], cardinality="single").status_code == 200
    assert write(robin, subject, made["name"], "Zug")["superseded"] == [held["fact_id"]]


def test_a_decision_moves_edges_too(robin: httpx.Client, superuser: Superuser) -> None:
    made, subject = predicate(robin), new()
    first = fact(robin, subject, made["name"], {"entity": new()}, valid_from=year(2018))
    fact(robin, subject, made["name"], {"entity": new()}, valid_from=year(2020))
    decide(robin, made["predicate_id"], cardinality="single", resolve="latest")
    row = superuser.execute(
        "SELECT e.valid_to = f.valid_to AND e.closed_at = f.closed_at AS alike FROM entity_edges e "
        "JOIN graph_facts f ON f.fact_id = e.edge_id WHERE e.edge_id = %s",
        (first["fact_id"],),
    ).fetchone()
    assert row == {"alike": True}


def test_single_becomes_multi_and_values_stand_side_by_side_again(robin: httpx.Client) -> None:
    made, subject = predicate(robin, cardinality="single"), new()
    fact(robin, subject, made["name"], "Bern")
    fact(robin, subject, made["name"], "Basel")
    assert decide(robin, made["predicate_id"], cardinality="multi").json()["predicate"]["cardinality"] == "multi"
    assert write(robin, subject, made["name"], "Zug")["superseded"] == []
    assert {item["object"]["value"] for item in listed(robin, entity=subject)} == {"Basel", "Zug"}
    assert error(decide(robin, made["predicate_id"], cardinality="single")) == (409, "predicate_values_open")


def test_a_pending_predicate_known_as_single_supersedes_once_active(robin: httpx.Client) -> None:
    made, subject = predicate(robin, status="pending", cardinality="single"), new()
    first = fact(robin, subject, made["name"], "Bern")
    assert decide(robin, made["predicate_id"], status="active").status_code == 200
    assert write(robin, subject, made["name"], "Basel")["superseded"] == [first["fact_id"]]


@pytest.mark.parametrize(
    ("path", "forbidden"),
    [
        (["pending", "deprecated"], ["active", "pending"]),
        (["active"], ["pending"]),
        (["active", "deprecated"], ["active", "pending"]),
    ],
    ids=str,
)
def test_a_status_only_moves_forward(robin: httpx.Client, path: list[str], forbidden: list[str]) -> None:
    made = predicate(robin, status=path[0])["predicate_id"]
    for status in path[1:]:
        assert decide(robin, made, status=status).json()["predicate"]["status"] == status
    for status in forbidden:
        assert error(decide(robin, made, status=status)) == (409, "predicate_transition")
    assert decide(robin, made, status=path[-1]).status_code == 200
    assert one(robin, made)["status"] == path[-1]


def test_a_deprecated_predicate_is_read_and_not_written(robin: httpx.Client) -> None:
    made, subject, alias = predicate(robin), new(), new("alias")
    robin.post(f"/v1/predicates/{made['predicate_id']}/aliases", json={"alias": alias})
    held = fact(robin, subject, made["name"], "x")
    decide(robin, made["predicate_id"], status="deprecated")
    fresh = new()
    for name in (made["name"], alias, made["predicate_id"]):
        refused = robin.post("/v1/facts", json=body(fresh, name, "x"))
        assert error(refused) == (409, "predicate_deprecated")
        again = robin.post("/v1/facts", json=body(subject, name, "x"))
        assert error(again) == (409, "predicate_deprecated")
    assert robin.get("/v1/entities", params={"name": fresh}).json()["entities"] == []
    assert ids(listed(robin, predicate=made["name"])) == [held["fact_id"]]
    assert read(robin, held["fact_id"])["predicate"]["status"] == "deprecated"
    assert robin.post(f"/v1/facts/{held['fact_id']}/retract", json={}).status_code == 200
    loose = {"facts": [body(new(), made["name"], "x"), body(new(), new(), "x")], "atomic": False}
    results = robin.post("/v1/facts/batch", json=loose).json()["results"]
    assert results[0]["error"]["code"] == "predicate_deprecated"
    assert results[1]["outcome"] == "created"


def test_entities_and_notes_survive_a_decision(robin: httpx.Client) -> None:
    made, subject, cited = predicate(robin), entity(robin), note(robin)
    held = fact(robin, subject["canonical"], made["name"], "Bern", valid_from=year(2020), evidence=[cited])
    fact(robin, subject["canonical"], made["name"], "Basel", valid_from=year(2021))
    decide(robin, made["predicate_id"], cardinality="single", resolve="latest")
    closed = read(robin, held["fact_id"])
    assert (closed["evidence"], closed["subject"]["entity_id"]) == ([cited], subject["entity_id"])
    assert [link["note_id"] for link in history(robin, held["fact_id"])["supersessions"]] == [None]


# Who decides


@pytest.fixture
def plain(tenancy: Tenancy, keys: dict[str, str], as_key: Callable[..., httpx.Client]) -> httpx.Client:
    """An agent whose key has the scopes that agents get unless others are named."""
    assert keys
    return as_key(tenancy.key("acme", agent_id="plain", scopes=None))


def test_an_agent_decides_about_predicates_only_with_the_scope(
    plain: httpx.Client, robin: httpx.Client, admin: httpx.Client
) -> None:
    assert plain.get("/v1/whoami").json()["scopes"] == sorted(AGENT_SCOPES)
    assert "predicates:admin" not in AGENT_SCOPES
    answer = plain.post("/v1/predicates", json={"name": new(), "status": "active"})
    assert error(answer) == (403, "missing_scope")
    assert answer.json()["error"]["details"] == {"needs": ["predicates:admin"]}
    waiting = plain.post("/v1/predicates", json={"name": new(), "cardinality": "single"}).json()["predicate"]
    assert (waiting["status"], waiting["cardinality"]) == ("pending", "single")
    again = plain.post("/v1/predicates", json={"name": waiting["name"], "cardinality": "single"})
    assert (again.status_code, again.json()["created"]) == (200, False)
    assert error(decide(plain, waiting["predicate_id"], status="active")) == (403, "missing_scope")
    assert decide(plain, waiting["predicate_id"], cardinality="multi").status_code == 200, "a pending one, by everybody"
    assert decide(robin, waiting["predicate_id"], status="active").json()["predicate"]["status"] == "active"
    again = plain.post("/v1/predicates", json={"name": waiting["name"]})
    assert (again.status_code, again.json()["predicate"]["status"]) == (200, "active")
    for change in ({"cardinality": "single"}, {"status": "deprecated"}, {"status": "active", "cardinality": "single"}):
        assert error(decide(plain, waiting["predicate_id"], **change)) == (403, "missing_scope")
    assert decide(plain, waiting["predicate_id"], status="active").status_code == 200, "nothing changes"
    assert decide(admin, waiting["predicate_id"], status="deprecated").status_code == 200
    assert decide(plain, predicate(robin, status="pending")["predicate_id"], status="deprecated").status_code == 200


def test_the_cardinality_of_a_deprecated_predicate_stays(robin: httpx.Client) -> None:
    made = predicate(robin)["predicate_id"]
    decide(robin, made, status="deprecated").raise_for_status()
    assert error(decide(robin, made, cardinality="single")) == (409, "predicate_deprecated")
    assert error(decide(robin, made, cardinality="single", status="deprecated")) == (409, "predicate_deprecated")
    assert decide(robin, made, cardinality="multi").status_code == 200, "which it is"
    assert one(robin, made)["cardinality"] == "multi"


def test_new_predicates_and_aliases_are_in_the_audit_log(robin: httpx.Client, superuser: Superuser) -> None:
    made = predicate(robin)["predicate_id"]
    alias = robin.post(f"/v1/predicates/{made}/aliases", json={"alias": new()}).json()["alias"]["alias_id"]
    robin.post(f"/v1/predicates/{made}/aliases", json={"alias": new()})
    written = fact(robin, new(), new("likes"), "tea")
    person = written["subject"]["entity_id"]
    name = robin.post(f"/v1/entities/{person}/aliases", json={"alias": new()}).json()["alias"]["alias_id"]
    fact(robin, new(), written["predicate"]["name"], "tea")
    details = [row["details"] for row in superuser.execute("SELECT details FROM audit_log").fetchall()]
    (registered,) = [one for one in details if one.get("action") == "predicate_create" and one["predicate_id"] == made]
    assert (registered["status"], registered["cardinality"], registered["scope"]) == ("active", "multi", "project")
    assert [one["predicate_id"] for one in details if one.get("alias_id") == alias] == [made]
    assert [one["entity_id"] for one in details if one.get("alias_id") == name] == [person]
    (first,) = [one for one in details if written["fact_id"] in one.get("fact_ids", [])]
    assert first["predicates_created"] == [written["predicate"]["predicate_id"]]
    assert len([one for one in details if written["predicate"]["predicate_id"] in str(one)]) == 1, "only the first use"


def test_a_key_bound_to_a_project_leaves_the_predicates_of_the_tenant_alone(
    admin: httpx.Client, robin: httpx.Client, tenancy: Tenancy, as_key: Callable[..., httpx.Client]
) -> None:
    bound = as_key(tenancy.key("acme", kind="admin", project_id="other"))
    wide = predicate(admin, scope="tenant", status="pending")
    path = f"/v1/predicates/{wide['predicate_id']}"
    refused = [
        bound.post("/v1/predicates", json={"name": new(), "scope": "tenant"}),
        bound.patch(path, json={"status": "deprecated"}),
        bound.patch(path, json={"cardinality": "single"}),
        bound.post(f"{path}/aliases", json={"alias": new()}),
    ]
    for answer in refused:
        assert error(answer) == (403, "project_forbidden")
        assert "bound to no project" in answer.json()["error"]["message"]
    assert one(admin, wide["predicate_id"])["status"] == "pending"
    own = predicate(bound)
    assert (own["scope"], own["status"]) == ("project", "active")
    assert decide(bound, own["predicate_id"], cardinality="single").status_code == 200
    assert decide(bound, predicate(robin)["predicate_id"], status="deprecated").status_code == 404
    assert admin.patch(path, json={"status": "active"}).status_code == 200


def test_a_key_bound_to_a_project_leaves_the_facts_of_others_alone(
    robin: httpx.Client, tenancy: Tenancy, as_key: Callable[..., httpx.Client]
) -> None:
    bound = as_key(tenancy.key("acme", kind="admin", project_id="other"))
    held = fact(robin, new(), new("knows"), {"entity": new()}, scope="org_shared")
    second = entity(robin)["entity_id"]
    subject = held["subject"]["entity_id"]
    refused = [
        bound.post(f"/v1/entities/{subject}/aliases", json={"alias": new()}),
        bound.post(f"/v1/entities/{subject}/merge", json={"from": second}),
        bound.post(f"/v1/facts/{held['fact_id']}/retract", json={}),
        bound.patch(f"/v1/facts/{held['fact_id']}", json={"valid_to": year(2030)}),
    ]
    assert [answer.status_code for answer in refused] == [404] * 4
    assert bound.get("/v1/facts", headers={"X-Project-Id": "default"}).status_code == 403
    assert read(robin, held["fact_id"]) == held
