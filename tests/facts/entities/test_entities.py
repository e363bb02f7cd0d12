"""Entities over HTTP: created once for all spellings, found by every name, merged with all their facts."""

import sys
from typing import Any
from uuid import uuid4

import httpx
import psycopg
import pytest

from app.facts.names import IGNORABLE, is_uri, last_segment, normalize_entity_name
from tests.conftest import TestDatabase
from tests.facts.shared import (
    body,
    entity,
    error,
    fact,
    finish_job,
    history,
    ids,
    listed,
    new,
    note,
    predicate,
    read,
    spans,
    write,
    year,
)

Superuser = psycopg.Connection[dict[str, Any]]


def get(client: httpx.Client, name: str) -> dict[str, Any]:
    answer = client.get(f"/v1/entities/{name}")
    assert answer.status_code == 200, answer.text
    return answer.json()


def named(client: httpx.Client, name: str) -> list[str]:
    answer = client.get("/v1/entities", params={"name": name})
    assert answer.status_code == 200, answer.text
    return [item["entity_id"] for item in answer.json()["entities"]]


def merge(client: httpx.Client, into: dict[str, Any], source: dict[str, Any], **fields: Any) -> dict[str, Any]:
    answer = client.post(f"/v1/entities/{into['entity_id']}/merge", json={"from": source["entity_id"], **fields})
    assert answer.status_code == 200, answer.text
    return answer.json()


def test_an_entity_tells_how_many_facts_and_notes_are_about_it(robin: httpx.Client, wren: httpx.Client) -> None:
    subject, other, name = new("Person"), new("Town"), new("lives in")
    shown = {"evidence": [note(robin), note(robin)]}
    first = fact(robin, subject, name, {"entity": other}, **shown)
    gone = fact(robin, subject, new("likes"), {"value": "tea"}, evidence=shown["evidence"][:1])
    fact(
        robin,
        subject,
        new("hides"),
        {"value": "gold"},
        scope="agent_private",
        evidence=[note(robin, scope="agent_private")],
    )
    assert get(robin, subject)["counts"] == {"facts": 3, "mentions": 3}
    assert get(wren, subject)["counts"] == {"facts": 2, "mentions": 2}, "what others keep private is not counted"
    assert get(robin, other)["counts"]["facts"] == 1
    assert robin.post(f"/v1/facts/{gone['fact_id']}/retract", json={"reason": "wrong"}).status_code == 200
    assert get(wren, subject)["counts"]["facts"] == 1
    past = wren.get(f"/v1/entities/{subject}", params={"as_of": first["created_at"]}).json()
    assert "counts" not in past


# Made once


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ("Zoë {}", "zoe\u0308 {}"),
        ("ÉCOLE {}", "e\u0301cole {}"),
        ("  Two   Words {} ", "two\u00a0words\t{}"),
        ("J\u030cane {}", "\u01f0ane {}"),
        ("user:Alice Smith {}", " USER:alice   smith {}"),
        ("Alice {}", "Ａｌｉｃｅ {}"),
        ("Alice {}", "Al\u200bi\u00adce {}\ufeff"),
        ("Alice {}", "\u202eAlice\u2066 {}"),
        ("Alice {}", "Alice\U000e0041\U000e007f {}"),
        ("Alice {}", "𝐀𝐥𝐢𝐜𝐞\ufe0f {}"),
        ("user:Alice Smith {}", "user\u200b：alice smith {}"),
    ],
)
def test_spellings_of_one_name_are_one_entity(robin: httpx.Client, first: str, second: str) -> None:
    tag = uuid4().hex[:8]
    made = entity(robin, first.format(tag))
    again = robin.post("/v1/entities", json={"canonical": second.format(tag)})
    assert (again.status_code, again.json()["entity"]["entity_id"]) == (200, made["entity_id"])
    assert fact(robin, second.format(tag), new(), "x")["subject"]["entity_id"] == made["entity_id"]


@pytest.mark.parametrize("name", ["J\u030c", "İstanbul", "ΟΔΟΣ", "H\u0331 x", "ẞ", "user: x", "a:B c"])
def test_a_normal_form_is_its_own_normal_form(name: str) -> None:
    assert normalize_entity_name(normalize_entity_name(name)) == normalize_entity_name(name)


def test_invisible_characters_are_the_same_in_python_and_in_the_database(superuser: Superuser) -> None:
    found = superuser.execute(
        "SELECT array_agg(c) AS codes FROM generate_series(1, 1114111) c "
        "WHERE c NOT BETWEEN 55296 AND 57343 AND chr(c) ~ format('[%s]', ignorable_characters())"
    ).fetchone()
    assert found is not None
    assert found["codes"] == [code for code in range(1, sys.maxunicode + 1) if IGNORABLE.match(chr(code))]


def test_every_normal_form_is_stable() -> None:
    codes = (code for code in range(1, sys.maxunicode + 1) if not 0xD800 <= code <= 0xDFFF)
    forms = {normalize_entity_name(f"a{chr(code)}B") for code in codes}
    assert [form for form in forms if normalize_entity_name(form) != form or IGNORABLE.search(form)] == []


@pytest.mark.parametrize("name", ["\u200b\ufeff", "\u3164", "user:\u200b", "ﷺ" * 100])
def test_a_name_without_visible_characters_is_refused(robin: httpx.Client, name: str) -> None:
    assert error(robin.post("/v1/entities", json={"canonical": name})) == (400, "invalid_entity")


def test_a_name_keeps_its_first_spelling(robin: httpx.Client) -> None:
    name = new("Old Name")
    entity(robin, f"  {name} ")
    again = robin.post("/v1/entities", json={"canonical": name.upper()}).json()["entity"]
    assert again["canonical"] == name


def test_a_kind_that_is_said_is_taken_on(robin: httpx.Client) -> None:
    made = entity(robin)
    assert made["kind"] is None
    for kind in ("person", "company"):
        again = robin.post("/v1/entities", json={"canonical": made["canonical"], "kind": kind}).json()["entity"]
        assert (again["entity_id"], again["kind"]) == (made["entity_id"], kind)
    kept = robin.post("/v1/entities", json={"canonical": made["canonical"]}).json()["entity"]
    assert kept["kind"] == "company"


def test_a_fact_fills_in_a_kind_and_does_not_change_one(robin: httpx.Client) -> None:
    name = new()
    fact(robin, name, new(), "x")
    assert fact(robin, {"canonical": name, "kind": "person"}, new(), "x")["subject"]["kind"] == "person"
    assert fact(robin, {"canonical": name, "kind": "city"}, new(), "x")["subject"]["kind"] == "person"


def test_aliases_are_added_and_listed_once(robin: httpx.Client) -> None:
    one, two = new("One"), new("Two")
    made = entity(robin, aliases=[one, one.upper(), two])
    assert made["aliases"] == [one, two]
    again = robin.post("/v1/entities", json={"canonical": made["canonical"], "aliases": [two, made["canonical"]]})
    assert again.json()["entity"]["aliases"] == [one, two]


def test_an_own_name_is_no_alias(robin: httpx.Client) -> None:
    made = entity(robin)
    robin.post(f"/v1/entities/{made['entity_id']}/aliases", json={"alias": made["canonical"].upper()})
    assert get(robin, made["entity_id"])["aliases"] == []


def test_an_idempotency_key_makes_an_entity_once(robin: httpx.Client) -> None:
    headers = {"Idempotency-Key": uuid4().hex}
    first = robin.post("/v1/entities", json={"canonical": new()}, headers=headers)
    again = robin.post("/v1/entities", json={"canonical": first.json()["entity"]["canonical"]}, headers=headers)
    assert (first.status_code, again.status_code) == (201, 201)
    assert first.json() == again.json()


# Found


def test_an_entity_is_found_by_id_name_alias_and_uri(robin: httpx.Client) -> None:
    alias = new("Al")
    made = entity(robin, aliases=[alias])
    for name in (made["entity_id"], made["entity_id"].upper(), made["canonical"].upper(), f" {alias} "):
        assert get(robin, name) == get(robin, made["entity_id"])
        assert named(robin, name) == [made["entity_id"]]
    tag = uuid4().hex[:8]
    uri = entity(robin, f"user:Alice Smith {tag}")
    assert uri["canonical"] == f"user:alice-smith-{tag}"
    for name in (f"user:alice-smith-{tag}", f"User:Alice Smith {tag}"):
        assert get(robin, name)["entity_id"] == uri["entity_id"]


def test_a_uri_with_slashes_is_found(robin: httpx.Client) -> None:
    made = entity(robin, f"https://Example.org/{uuid4().hex}")
    assert named(robin, made["canonical"]) == [made["entity_id"]]
    assert fact(robin, made["canonical"].upper(), new(), "x")["subject"]["entity_id"] == made["entity_id"]


def test_a_name_of_hexadecimal_digits_is_a_name(robin: httpx.Client) -> None:
    digest = uuid4().hex
    made = entity(robin, digest)
    assert get(robin, digest)["entity_id"] == made["entity_id"]
    assert fact(robin, digest, new(), "x")["subject"]["entity_id"] == made["entity_id"]


def test_an_unknown_name_is_not_found(robin: httpx.Client) -> None:
    assert error(robin.get(f"/v1/entities/{new()}")) == (404, "entity_not_found")
    assert error(robin.get(f"/v1/entities/{uuid4()}")) == (404, "entity_not_found")
    assert named(robin, new()) == []


def test_a_canonical_name_beats_an_alias(robin: httpx.Client) -> None:
    name = new("Mercury")
    planet = entity(robin, aliases=[name])
    assert get(robin, name)["entity_id"] == planet["entity_id"]
    metal = entity(robin, name)
    assert metal["entity_id"] != planet["entity_id"]
    assert get(robin, name)["entity_id"] == metal["entity_id"]
    assert named(robin, name) == [metal["entity_id"]]
    assert fact(robin, name, new(), "x")["subject"]["entity_id"] == metal["entity_id"]
    assert len(listed(robin, entity=name)) == 1


def test_an_alias_of_several_is_ambiguous_wherever_one_is_meant(robin: httpx.Client) -> None:
    alias = new("Sam")
    both = [entity(robin, aliases=[alias], kind="person"), entity(robin, aliases=[alias])]
    fact(robin, both[0]["canonical"], new(), {"entity": both[1]["canonical"]})
    subject, relation = new(), new("knows")
    refusals = [
        robin.get(f"/v1/entities/{alias}"),
        robin.post("/v1/facts", json=body(alias, relation, "x")),
        robin.post("/v1/facts", json=body({"canonical": alias}, relation, "x")),
        robin.post("/v1/facts", json=body(subject, relation, {"entity": alias})),
        robin.post("/v1/facts/batch", json={"facts": [body(subject, relation, {"entity": alias})]}),
        robin.get("/v1/facts", params={"entity": alias}),
        robin.get("/v1/facts", params={"object": alias}),
        robin.post("/v1/facts/retract", json={"subject": alias, "predicate": relation}),
    ]
    for answer in refusals:
        assert error(answer) == (409, "entity_ambiguous")
        candidates = answer.json()["error"]["details"]["candidates"]
        assert {(item["entity_id"], item["canonical"], item["kind"]) for item in candidates} == {
            (item["entity_id"], item["canonical"], item["kind"]) for item in both
        }
    assert sorted(named(robin, alias)) == sorted(item["entity_id"] for item in both)
    assert named(robin, subject) == []
    loose = robin.post("/v1/facts/batch", json={"facts": [body(alias, relation, "x")], "atomic": False}).json()
    assert loose["results"][0]["error"]["code"] == "entity_ambiguous"
    assert len(loose["results"][0]["error"]["details"]["candidates"]) == 2


def test_a_prefix_finds_names_in_order_page_by_page(robin: httpx.Client) -> None:
    tag = f"p{uuid4().hex[:10]}"
    made = [entity(robin, f"{tag.upper()} {letter}")["canonical"] for letter in "CABED"]
    entity(robin, f"{tag}x", kind="other")
    found: list[str] = []
    cursor = None
    while True:
        params = {"prefix": f"{tag} ", "limit": 2, **({"cursor": cursor} if cursor else {})}
        page = robin.get("/v1/entities", params=params).json()
        found += [item["canonical"] for item in page["entities"]]
        cursor = page["next_cursor"]
        if cursor is None:
            break
    assert found == sorted(made)
    assert len(robin.get("/v1/entities", params={"prefix": tag}).json()["entities"]) == 6
    other = robin.get("/v1/entities", params={"prefix": tag, "kind": "other"}).json()["entities"]
    assert [item["canonical"] for item in other] == [f"{tag}x"]
    assert robin.get("/v1/entities", params={"prefix": f"{tag}%"}).json()["entities"] == []


def test_names_are_of_their_project_alone(
    robin: httpx.Client, rival: httpx.Client, elsewhere: httpx.Client, wren: httpx.Client
) -> None:
    alias = new("alias")
    made = entity(robin, aliases=[alias])
    assert get(wren, made["canonical"])["entity_id"] == made["entity_id"]
    for client in (rival, elsewhere):
        for name in (made["entity_id"], made["canonical"], alias):
            assert client.get(f"/v1/entities/{name}").status_code == 404
            assert named(client, name) == []
        assert client.get("/v1/entities", params={"prefix": made["canonical"]}).json()["entities"] == []
        assert client.post(f"/v1/entities/{made['entity_id']}/aliases", json={"alias": new()}).status_code == 404
        own = client.post("/v1/entities", json={"canonical": made["canonical"]})
        assert own.status_code == 201
        assert own.json()["entity"]["entity_id"] != made["entity_id"]


# Merged


def test_a_merge_moves_facts_edges_mentions_and_aliases(robin: httpx.Client, superuser: Superuser) -> None:
    alias, name = new("alias"), predicate(robin)["name"]
    into, source = entity(robin), entity(robin, aliases=[alias], kind="person")
    cited = note(robin)
    said = fact(robin, source["canonical"], name, "tea", evidence=[cited])
    pointing = fact(robin, source["canonical"], name, {"entity": new()})
    pointed = fact(robin, new(), name, {"entity": source["canonical"]})
    answer = merge(robin, into, source)
    assert (answer["merged"], answer["facts_moved"], answer["facts_folded"]) == (source["entity_id"], 3, 0)
    assert answer["entity"]["entity_id"] == into["entity_id"]
    assert answer["entity"]["aliases"] == sorted([alias, source["canonical"]])
    assert answer["entity"]["kind"] == "person"
    assert set(ids(listed(robin, entity=into["entity_id"]))) == {said["fact_id"], pointing["fact_id"]}
    assert read(robin, pointed["fact_id"])["object"]["entity"]["entity_id"] == into["entity_id"]
    edges = superuser.execute(
        "SELECT subject_entity_id::text AS s, object_entity_id::text AS o FROM entity_edges WHERE edge_id = ANY(%s)",
        ([pointing["fact_id"], pointed["fact_id"]],),
    ).fetchall()
    assert [into["entity_id"] in (row["s"], row["o"]) for row in edges] == [True, True]
    assert all(source["entity_id"] not in (row["s"], row["o"]) for row in edges)
    mentions = superuser.execute("SELECT entity_id::text FROM note_entity_mentions WHERE note_id = %s", (cited,))
    assert mentions.fetchall() == [{"entity_id": into["entity_id"]}]


def test_old_ids_and_names_resolve_after_a_merge(robin: httpx.Client) -> None:
    alias = new("alias")
    into, source = entity(robin), entity(robin, aliases=[alias])
    held = fact(robin, source["canonical"], new(), "x")
    merge(robin, into, source)
    for name in (source["entity_id"], source["canonical"], alias, into["canonical"]):
        assert get(robin, name)["entity_id"] == into["entity_id"]
        assert named(robin, name) == [into["entity_id"]]
        assert fact(robin, name, new(), "x")["subject"]["entity_id"] == into["entity_id"]
        assert fact(robin, new(), new(), {"entity": name})["object"]["entity"]["entity_id"] == into["entity_id"]
        assert held["fact_id"] in ids(listed(robin, entity=name))
    again = robin.post("/v1/entities", json={"canonical": source["canonical"], "aliases": [f"{alias} 2"]})
    assert (again.status_code, again.json()["entity"]["entity_id"]) == (200, into["entity_id"])
    assert robin.post(f"/v1/entities/{source['entity_id']}/aliases", json={"alias": f"{alias} 3"}).status_code == 201
    assert get(robin, f"{alias} 3")["entity_id"] == into["entity_id"]
    listing = robin.get("/v1/entities", params={"prefix": source["canonical"]}).json()["entities"]
    assert listing == []


@pytest.mark.parametrize("side", ["subject", "object"])
def test_what_then_says_the_same_folds_into_one_fact_with_both_evidences(
    robin: httpx.Client, superuser: Superuser, side: str
) -> None:
    into, source, name, other = entity(robin), entity(robin), predicate(robin)["name"], new()
    notes = [note(robin), note(robin)]

    def say(who: dict[str, Any], **fields: Any) -> dict[str, Any]:
        if side == "subject":
            return fact(robin, who["canonical"], name, {"entity": other}, **fields)
        return fact(robin, other, name, {"entity": who["canonical"]}, **fields)

    kept = say(into, valid_from=year(2020), evidence=notes[:1], confidence=0.4)
    folded = say(source, valid_from=year(2021), evidence=notes[1:], confidence=0.8)
    assert merge(robin, into, source)["facts_folded"] == 1
    one = read(robin, kept["fact_id"])
    assert (one["retracted_at"], one["mentions"], one["confidence"]) == (None, 2, pytest.approx(0.6))
    assert sorted(one["evidence"]) == sorted(notes)
    assert (one["valid_from"], one["valid_to"]) == (year(2020), None)
    gone = read(robin, folded["fact_id"])
    assert gone["retracted_at"] is not None
    assert [item["kind"] for item in history(robin, folded["fact_id"])["retractions"]] == ["merged"]
    assert ids(listed(robin, predicate=name)) == [kept["fact_id"]]
    edges = superuser.execute(
        "SELECT edge_id::text AS id, confidence FROM entity_edges WHERE edge_id = ANY(%s) AND retracted_at IS NULL",
        ([kept["fact_id"], folded["fact_id"]],),
    ).fetchall()
    assert edges == [{"id": kept["fact_id"], "confidence": pytest.approx(0.6)}]


def test_times_of_a_folded_belief_unite(robin: httpx.Client) -> None:
    into, source, name = entity(robin), entity(robin), predicate(robin)["name"]
    times = [(source, 2018, 2021), (into, 2020, 2023), (source, 2022, 2026), (into, 2030, 2031)]
    for who, start, end in times:
        fact(robin, who["canonical"], name, "tea", valid_from=year(start), valid_to=year(end))
    merge(robin, into, source)
    live = [
        item for item in listed(robin, entity=into["entity_id"], include_inactive=True) if item["retracted_at"] is None
    ]
    assert spans(live) == [(year(2018), year(2026)), (year(2030), year(2031))]
    assert write(robin, source["canonical"], name, "tea", valid_from=year(2024))["outcome"] == "reused"


def test_single_valued_timelines_are_put_in_order(robin: httpx.Client) -> None:
    into, source, name = entity(robin), entity(robin), predicate(robin, cardinality="single")["name"]
    for who, value, start in (
        (into, "a", 2018),
        (source, "b", 2019),
        (into, "c", 2020),
        (source, "d", 2021),
        (source, "e", 2020),
    ):
        fact(robin, who["canonical"], name, value, valid_from=year(start))
    merge(robin, into, source)
    every = listed(robin, entity=into["entity_id"], include_inactive=True)
    live = sorted((item for item in every if item["retracted_at"] is None), key=lambda item: item["valid_from"])
    assert [item["object"]["value"] for item in live] == ["a", "b", "e", "d"]
    assert [item["valid_to"] for item in live] == [item["valid_from"] for item in live[1:]] + [None]
    (replaced,) = [item for item in every if item["retracted_at"] is not None]
    assert replaced["object"]["value"] == "c"
    assert [item["kind"] for item in history(robin, replaced["fact_id"])["retractions"]] == ["corrected"]
    chain = history(robin, live[-1]["fact_id"])["chain"]
    assert {item["fact_id"] for item in live} <= {item["fact_id"] for item in chain}


def test_one_value_of_a_timeline_on_both_sides_folds(robin: httpx.Client) -> None:
    into, source, name = entity(robin), entity(robin), predicate(robin, cardinality="single")["name"]
    kept = fact(robin, into["canonical"], name, "Bern", valid_from=year(2020))
    fact(robin, source["canonical"], name, "Bern", valid_from=year(2020))
    assert merge(robin, into, source)["facts_folded"] == 1
    assert ids(listed(robin, entity=into["entity_id"])) == [kept["fact_id"]]
    assert write(robin, source["canonical"], name, "Basel")["superseded"] == [kept["fact_id"]]


def test_timelines_that_point_to_the_merged_are_put_in_order(robin: httpx.Client) -> None:
    into, source, subject = entity(robin), entity(robin), new()
    name = predicate(robin, cardinality="single")["name"]
    fact(robin, subject, name, {"entity": into["canonical"]}, valid_from=year(2018))
    fact(robin, subject, name, {"entity": source["canonical"]}, valid_from=year(2020))
    merge(robin, into, source)
    live = [item for item in listed(robin, entity=subject, include_inactive=True) if item["retracted_at"] is None]
    assert {item["object"]["entity"]["entity_id"] for item in live} == {into["entity_id"]}
    held = spans(live)
    assert held[0][0] == year(2018)
    assert held[-1][1] is None
    assert len(listed(robin, entity=subject)) == 1


def test_values_that_meet_on_one_entity_contradict_each_other(robin: httpx.Client) -> None:
    into, source, name = entity(robin), entity(robin), new("born in")
    for who, value in ((into, "Bern"), (source, "Basel")):
        assert fact(robin, who["canonical"], name, value)["contradicted"] is False
    merge(robin, into, source)
    assert [item["contradicted"] for item in listed(robin, entity=into["entity_id"])] == [True, True]


def test_facts_between_the_merged_stay(robin: httpx.Client) -> None:
    into, source, name = entity(robin), entity(robin), predicate(robin)["name"]
    between = fact(robin, into["canonical"], name, {"entity": source["canonical"]})
    merge(robin, into, source)
    held = read(robin, between["fact_id"])
    assert held["subject"]["entity_id"] == held["object"]["entity"]["entity_id"] == into["entity_id"]
    assert held["retracted_at"] is None


def test_a_chain_of_merges_leads_to_its_end(robin: httpx.Client) -> None:
    a, b, c = (entity(robin) for _ in range(3))
    held = fact(robin, a["canonical"], new(), "x")
    merge(robin, b, a)
    merge(robin, c, b)
    for item in (a, b, c):
        for name in (item["entity_id"], item["canonical"]):
            assert get(robin, name)["entity_id"] == c["entity_id"]
            assert ids(listed(robin, entity=name)) == [held["fact_id"]]
    assert get(robin, c["entity_id"])["aliases"] == sorted([a["canonical"], b["canonical"]])


def test_private_facts_of_others_are_merged_without_being_shown(
    robin: httpx.Client, wren: httpx.Client, superuser: Superuser
) -> None:
    into, source, name = entity(robin), entity(robin), predicate(robin)["name"]
    mine = fact(robin, into["canonical"], name, "tea", scope="agent_private")
    theirs = fact(wren, source["canonical"], name, "tea", scope="agent_private")
    merge(robin, into, source)
    assert ids(listed(robin, entity=into["entity_id"])) == [mine["fact_id"]]
    assert ids(listed(wren, entity=into["entity_id"])) == [theirs["fact_id"]]
    rows = superuser.execute("SELECT FROM graph_facts WHERE subject_entity_id = %s", (source["entity_id"],))
    assert rows.fetchall() == []


def test_a_merge_counts_only_facts_that_its_caller_sees(robin: httpx.Client, wren: httpx.Client) -> None:
    into, source, name = entity(robin), entity(robin), predicate(robin)["name"]
    for client in (robin, wren):
        for one in (into, source):
            fact(client, one["canonical"], name, "tea", scope="agent_private")
        fact(client, source["canonical"], name, new("milk"), scope="agent_private")
    shared = fact(robin, source["canonical"], name, "water")
    answer = merge(robin, into, source)
    assert (answer["facts_moved"], answer["facts_folded"]) == (3, 1)
    assert len(listed(wren, entity=into["entity_id"])) == 3, "theirs moved all the same"
    assert shared["fact_id"] in ids(listed(wren, entity=into["entity_id"]))


def many_facts(superuser: Superuser, one: dict[str, Any], predicate_id: str, count: int) -> None:
    """Plain values of an entity, inserted directly."""
    superuser.execute(
        "INSERT INTO graph_facts (tenant_id, fact_id, project_id, agent_id, scope, owner_key, subject_entity_id, "
        "predicate, predicate_id, object_value, object_hash, value_type, confidence, source_trust, fact_hash, hlc, "
        "single_valued, valid_from, created_at, updated_at) "
        "SELECT 'acme', gen_random_uuid(), 'default', 'robin', 'project_shared', '', %(subject)s::uuid, 'p', "
        "%(predicate)s::uuid, "
        "'value ' || n, sha256(convert_to('string' || chr(10) || 'value ' || n, 'UTF8')), 'string', .5, .5, "
        "sha256(convert_to(n || %(subject)s::uuid::text, 'UTF8')), '1', false, now(), now(), now() "
        "FROM generate_series(1, %(count)s) n",
        {"subject": one["entity_id"], "predicate": predicate_id, "count": count},
    )


def test_entities_with_many_facts_are_merged_by_a_job(
    robin: httpx.Client, superuser: Superuser, database: TestDatabase
) -> None:
    into, source, relation = entity(robin), entity(robin), predicate(robin)
    many_facts(superuser, source, relation["predicate_id"], 4998)
    many_facts(superuser, into, relation["predicate_id"], 2)
    edge = fact(robin, new(), relation["name"], {"entity": source["canonical"]})
    path, sent = f"/v1/entities/{into['entity_id']}/merge", {"from": source["entity_id"]}
    answer = robin.post(path, json=sent)
    assert answer.status_code == 202, answer.text
    accepted = answer.json()
    assert set(accepted) == {"entity", "merging", "job_id"}
    assert (accepted["entity"]["entity_id"], accepted["merging"]) == (into["entity_id"], source["entity_id"])
    assert get(robin, source["entity_id"])["entity_id"] == source["entity_id"], "not yet"
    assert robin.post(path, json=sent).json()["job_id"] == accepted["job_id"], "the same job"
    assert finish_job(database, superuser, accepted["job_id"])["status"] == "completed"
    job = robin.get(f"/v1/jobs/{accepted['job_id']}").json()
    assert (job["status"], job["kind"]) == ("completed", "entity_merge")
    assert job["result"] == {"entity_id": into["entity_id"], "merged": source["entity_id"]}
    assert get(robin, source["entity_id"])["entity_id"] == into["entity_id"]
    assert read(robin, edge["fact_id"])["object"]["entity"]["entity_id"] == into["entity_id"]
    counts = superuser.execute(
        "SELECT count(*) AS facts, count(*) FILTER (WHERE retracted_at IS NULL) AS live, max(mentions) AS mentions "
        "FROM graph_facts WHERE subject_entity_id = %s",
        (into["entity_id"],),
    ).fetchone()
    assert counts == {"facts": 5000, "live": 4998, "mentions": 2}
    assert error(robin.post(path, json=sent)) == (409, "entity_merged")


def test_a_merge_that_became_impossible_fails_with_its_reason(
    robin: httpx.Client, superuser: Superuser, database: TestDatabase
) -> None:
    into, source, third = entity(robin), entity(robin), entity(robin)
    many_facts(superuser, source, predicate(robin)["predicate_id"], 5001)
    job_id = robin.post(f"/v1/entities/{into['entity_id']}/merge", json={"from": source["entity_id"]}).json()["job_id"]
    merge(robin, third, into)
    failed = finish_job(database, superuser, job_id)
    assert (failed["status"], failed["attempts"]) == ("failed", 1)
    assert "entity_merged" in failed["last_error"]


def test_what_cannot_be_merged_is_refused(robin: httpx.Client, rival: httpx.Client, elsewhere: httpx.Client) -> None:
    mine, merged = entity(robin), entity(robin)
    path = f"/v1/entities/{mine['entity_id']}/merge"
    assert error(robin.post(path, json={"into": mine["entity_id"]})) == (409, "same_entity")
    for stranger in (str(uuid4()), entity(rival)["entity_id"], entity(elsewhere)["entity_id"]):
        assert error(robin.post(path, json={"from": stranger})) == (404, "entity_not_found")
        backwards = robin.post(f"/v1/entities/{stranger}/merge", json={"from": mine["entity_id"]})
        assert error(backwards) == (404, "entity_not_found")
    for client in (rival, elsewhere):
        assert client.post(path, json={"from": merged["entity_id"]}).status_code == 404
    merge(robin, mine, merged)
    assert error(robin.post(path, json={"from": merged["entity_id"]})) == (409, "entity_merged")
    assert get(robin, mine["entity_id"])["entity_id"] == mine["entity_id"]


def test_a_merge_is_audited_by_ids_alone(robin: httpx.Client, superuser: Superuser) -> None:
    into, source = entity(robin, new("Secret One")), entity(robin, new("Secret Two"))
    fact(robin, source["canonical"], new("secret relation"), "secret value")
    merge(robin, into, source)
    rows = superuser.execute(
        "SELECT tenant_id, project_id, event_type, agent_id, key_id, details FROM audit_log "
        "WHERE details->>'from' = %s",
        (source["entity_id"],),
    ).fetchall()
    assert len(rows) == 1
    assert (rows[0]["tenant_id"], rows[0]["project_id"], rows[0]["event_type"]) == ("acme", "default", "admin_action")
    assert (rows[0]["agent_id"], rows[0]["details"]["into"]) == ("robin", into["entity_id"])
    assert (rows[0]["details"]["facts_moved"], rows[0]["details"]["facts_folded"]) == (1, 0)
    assert rows[0]["key_id"]
    assert "secret" not in str(rows).lower()


def test_an_idempotency_key_merges_once(robin: httpx.Client) -> None:
    into, source = entity(robin), entity(robin)
    headers = {"Idempotency-Key": uuid4().hex}
    path, sent = f"/v1/entities/{into['entity_id']}/merge", {"from": source["entity_id"]}
    first, again = (robin.post(path, json=sent, headers=headers) for _ in range(2))
    assert (first.status_code, again.status_code) == (200, 200)
    assert first.json() == again.json()


URI_OR_NOT = [
    "http://example.org/people/ada", "http://example.org/people/ada/", "urn:isbn:0451450523", "mailto:ada@example.org",
    "a:b", "a:b c", "a: b", "a:", "a:\u00a0b", "a:\u3000b", "a:\x1cb", "a:///", "1a:b", "a b:c", "é:b", "A+b.c-d:E",
    "Note", "Note: remember", "", "a\n:b", "x:a\nb/c",
]  # fmt: skip


@pytest.mark.parametrize("name", URI_OR_NOT)
def test_python_and_sql_agree_on_what_a_uri_is(name: str, superuser: Superuser) -> None:
    query = "SELECT uri_scheme(%s) IS NOT NULL AS uri, last_segment(%s) AS segment"
    assert superuser.execute(query, (name, name)).fetchone() == {"uri": is_uri(name), "segment": last_segment(name)}
